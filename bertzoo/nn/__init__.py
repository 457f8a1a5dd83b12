"""Linen layers that the models share. The fields of a layer are numbers, callables and other layers, never a config.

Dimension letters, used in names (`x_BLD`), shapes and einsums:

B batch, L length, M key length, D model width, E embedding width, I input width (MobileBERT: bottleneck width),
O output width, H heads, K key size per head, J value size per head, F feed-forward width, V vocabulary, P predictions
per row, R selected positions per row, G groups, W window, N layers, C classes, T token types.
A module with the argument `positions_BR` computes only the R tokens of each row at these positions: (B,R,D), (B,H,R,L).

Logical axis names of the parameters, which train/sharding.py maps to mesh axes: vocab (V), embed (E), position,
token_type (T), model (D), heads (H), head_size (K, J), feed_forward (F), window (W), group_in (I/G), group_out (O),
pooled (D), classes (C), bottleneck (I, where a kernel has the model width too), pruned (a vector that pruning trains).
"""

from bertzoo.nn.attention import MixedAttention, SelfAttention, WindowedAttention
from bertzoo.nn.dense import Dense, DensePair, Grouped, LayerNorm, NoNorm, grouped_convolution, grouped_einsum
from bertzoo.nn.dynamic_convolution import (
    Depthwise,
    DynamicConvolution,
    FixedConvolution,
    SpanConvolution,
    SpanKey,
    depthwise_convolution,
    dynamic_convolution,
    keep_padding,
    zero_padding,
)
from bertzoo.nn.embedding import Embedding, Table, Trigram
from bertzoo.nn.encoder import (
    Bottleneck,
    BottleneckLayer,
    Encoder,
    EncoderOutput,
    FeedForward,
    Layer,
    SharedBottleneck,
    from_bottleneck,
    from_stream,
)
from bertzoo.nn.heads import ClassificationHead, MaskedHead, ReplacedHead, Untied
from bertzoo.nn.modern import GatedFeedForward, Linear, PreNormLayer, RotaryAttention, ScaleNorm
from bertzoo.nn.parameter import TruncatedNormal, glorot_uniform
from bertzoo.nn.random import Dropout, content_seeds, row_seeds, sample
