"""Linen leaves and trunk that know no paper: they take numbers and callables, never a config.

Dimension letters, used in names (`x_BLD`), shapes and einsums:

B batch, L length, M key length, D model width, E embedding width, I input width (MobileBERT: bottleneck width),
O output width, H heads, K key size per head, J value size per head, F feed-forward width, V vocabulary, P predictions
per row, G groups, W window, N layers, C classes, T token types.

Logical axis names of the parameters, which train/sharding.py maps to mesh axes: vocab (V), embed (E), position,
token_type (T), model (D), heads (H), head_size (K, J), feed_forward (F), window (W), group_in (I/G), group_out (O),
pooled (D), classes (C).
"""

from bertzoo.nn.attention import SelfAttention
from bertzoo.nn.dense import Dense
from bertzoo.nn.dropout import Dropout
from bertzoo.nn.embedding import Embedding, Table
from bertzoo.nn.encoder import Encoder, EncoderOutput, FeedForward, Layer
from bertzoo.nn.grouped import Grouped, grouped_convolution, grouped_einsum
from bertzoo.nn.heads import ClassificationHead, MaskedHead, pool
from bertzoo.nn.norm import LayerNorm

__all__ = [
    "ClassificationHead",
    "Dense",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderOutput",
    "FeedForward",
    "Grouped",
    "Layer",
    "LayerNorm",
    "MaskedHead",
    "SelfAttention",
    "Table",
    "grouped_convolution",
    "grouped_einsum",
    "pool",
]
