"""Multi-head self-attention, alone or beside convolution heads (ConvBERT)."""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.nn.dynamic_convolution import zero_padding
from bertzoo.nn.platform import current_platform
from bertzoo.nn.positions import take_tokens
from bertzoo.nn.products import batched_product
from bertzoo.nn.random import Dropout

# Score of masked keys: low enough to vanish in the softmax, and finite in bfloat16 and float16.
MASKED_SCORE = -3e4


def attend(
    query_BLHK: jax.Array,
    key_BMHK: jax.Array,
    value_BMHJ: jax.Array,
    mask_BM: jax.Array,
    dropout: Dropout,
    train: bool,
    near_BLM: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return softmax(q·kᵀ/√K)·v (B,L,H,J) and the attention probabilities (B,H,L,M), for M keys.

    Keys are masked out where `mask_BM` is 0 and where `near_BLM`, if given, is false. The softmax is in float32.
    Dropout applies to the probabilities that multiply v, not to the returned ones.

    The first result is computed by `Platform.attention_kernel` if this kernel supports the arrays, else by cuDNN if
    `cudnn_supports` is true and no dropout acts, else by plain operations. The probabilities always come from plain
    operations, which jit removes if nothing uses them.
    """
    kernel, context_BLHJ = current_platform().attention_kernel, None
    if kernel is not None and near_BLM is None:
        context_BLHJ = kernel(query_BLHK, key_BMHK, value_BMHJ, mask_BM, dropout, train, None)
    probabilities_BHLM = attention_probabilities(query_BLHK, key_BMHK, mask_BM, near_BLM)
    if context_BLHJ is not None:
        return context_BLHJ, probabilities_BHLM
    if not dropout.acts(train) and cudnn_supports(query_BLHK, key_BMHK, value_BMHJ):
        rows, _, queries, keys = probabilities_BHLM.shape
        mask_BHLM = jnp.broadcast_to(visible_keys(mask_BM, near_BLM), (rows, 1, queries, keys))
        context_BLHJ = jax.nn.dot_product_attention(
            query_BLHK, key_BMHK, value_BMHJ, mask=mask_BHLM, implementation="cudnn"
        )
        return context_BLHJ, probabilities_BHLM
    dropped_BHLM = dropout(probabilities_BHLM.astype(value_BMHJ.dtype), train)
    return batched_product("bhlm,bmhj->blhj", dropped_BHLM, value_BMHJ), probabilities_BHLM


def attention_probabilities(
    query_BLHK: jax.Array, key_BMHK: jax.Array, mask_BM: jax.Array, near_BLM: jax.Array | None
) -> jax.Array:
    """Return softmax(q·kᵀ/√K) over the keys that `attend` sees, (B,H,L,M) in float32; uniform if it sees none."""
    scaled_BLHK = query_BLHK * jnp.asarray(query_BLHK.shape[-1] ** -0.5, query_BLHK.dtype)
    scores_BHLM = batched_product("blhk,bmhk->bhlm", scaled_BLHK, key_BMHK, jnp.float32)
    scores_BHLM = jnp.where(visible_keys(mask_BM, near_BLM), scores_BHLM, MASKED_SCORE)
    return jax.nn.softmax(scores_BHLM, axis=-1)


def visible_keys(mask_BM: jax.Array, near_BLM: jax.Array | None) -> jax.Array:
    """Return whether a query sees a key, (B,1,L,M) or, without `near_BLM`, (B,1,1,M)."""
    visible_BHLM = mask_BM[:, None, None, :] > 0
    return visible_BHLM if near_BLM is None else visible_BHLM & near_BLM[:, None]


def cudnn_supports(query: jax.Array, key: jax.Array, value: jax.Array) -> bool:
    """Return whether cuDNN has fused attention for arrays of these shapes and dtypes on JAX's default device.

    cuDNN's dropout is not used. Its seed is part of the compiled program, so every step would drop the same elements.
    """
    if current_platform().name != "gpu" or query.dtype != jnp.bfloat16 or key.shape != value.shape:
        return False
    if query.shape[1] % 2 or key.shape[1] % 2 or query.shape[-1] not in range(8, 129, 8):  # no gradients of odd lengths
        return False
    gpu = jax.devices()[0]
    return "cuda" in gpu.client.platform_version.lower() and float(gpu.compute_capability) >= 8.0


class SelfAttention(nn.Module):
    """Map x (B,L,D) and mask (B,L) to output (B,L,D) and attention probabilities (B,H,L,L) (Vaswani et al. 2017 §3.2).

    `query` and `key` map (B,L,D) to (B,L,H,K); `value` maps `values_BMI`, by default x, to (B,L,H,J); `output` maps
    (B,L,H,J) to (B,L,D).
    """

    query: nn.Module
    key: nn.Module
    value: nn.Module
    output: nn.Module
    dropout: Dropout

    convolution: ClassVar[Any] = None  # further heads; a field of the kinds of attention that have them

    def __call__(
        self,
        x_BLD: jax.Array,
        mask_BL: jax.Array,
        train: bool,
        values_BMI: jax.Array | None = None,
        positions_BR: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        query_BLHK = self.query(take_tokens(x_BLD, positions_BR))
        keys_values = self.keys_and_values(x_BLD, x_BLD if values_BMI is None else values_BMI, mask_BL)
        context_BLHJ, probabilities_BHLM = attend(query_BLHK, *keys_values, self.dropout, train)
        if self.convolution is not None:
            convolved_BLHJ = self.convolution(x_BLD, query_BLHK, mask_BL, positions_BR)
            context_BLHJ = jnp.concatenate([context_BLHJ, convolved_BLHJ], axis=2)
        return self.output(context_BLHJ), probabilities_BHLM

    @nn.nowrap
    def keys_and_values(
        self, x_BLD: jax.Array, values_BMI: jax.Array, mask_BL: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the keys (B,M,H,K), the values (B,M,H,J) and their mask (B,M)."""
        return self.key(x_BLD), self.value(values_BMI), mask_BL


class WindowedAttention(SelfAttention):
    """Self-attention whose `key` and `value` convolve over tokens and keep every `stride`-th, M of L, from the first.

    Both read padding tokens as 0, and a key exists where the token in the middle of its window is no padding. The
    attention probabilities are (B,H,L,M).
    """

    stride: int

    @nn.nowrap
    def keys_and_values(
        self, x_BLD: jax.Array, values_BMI: jax.Array, mask_BL: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        key_BMHK, value_BMHJ = self.key(zero_padding(x_BLD, mask_BL)), self.value(zero_padding(values_BMI, mask_BL))
        return key_BMHK, value_BMHJ, mask_BL[:, :: self.stride]


class MixedAttention(SelfAttention):
    """Self-attention with convolution heads beside its attention heads, whose probabilities it returns (ConvBERT §3.3).

    `convolution` maps (B,L,D), the query and the mask to (B,L,H,K). `output` maps both kinds of heads, concatenated to
    (B,L,2·H,K), to (B,L,D).
    """

    convolution: nn.Module = dataclasses.field()  # required, unlike in the base class
