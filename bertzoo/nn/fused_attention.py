"""Attention for TPUs as Pallas kernels, which write neither scores nor probabilities to memory.

`fused_attention` is for rows of at most 512 tokens, so that a block holds all queries and keys of a few heads. The
backward kernel computes the probabilities again, and dropout drops the same elements as `Dropout` does.
`long_attention`, JAX's own kernel, is for longer rows and for windows of tokens.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask

from bertzoo.nn.attention import MASKED_SCORE
from bertzoo.nn.random import mix

LANES = 128
TOKENS = 512  # tokens in a block, if it holds several rows or a section of one
NEAR_TOKENS = 128  # tokens in a block of windows: the fewest that the kernel takes


def heads_per_block(heads: int, *sizes: int) -> int:
    """Return the least divisor of `heads` whose vectors, of these sizes, fill groups of LANES lanes, or `heads`."""
    for count in range(1, heads):
        if heads % count == 0 and all(count * size % LANES == 0 for size in sizes):
            return count
    return heads


def rows_per_block(rows: int, length: int) -> int:
    """Return the largest divisor of `rows` whose rows of `length` have at most TOKENS tokens; 1 if a row has more."""
    return next((count for count in range(min(rows, TOKENS // length), 1, -1) if rows % count == 0), 1)


def block_bytes(heads: int, query: jax.Array, key: jax.Array, value: jax.Array) -> int:
    """Return about how many bytes of VMEM a block of the backward kernel needs, for `heads` heads on one device.

    It has two copies of the vectors and of their gradients, because the next block is loaded meanwhile, and six float32
    matrices of scores.
    """
    queries, keys = query.shape[1], key.shape[1]
    key_size, value_size = query.shape[3], value.shape[3]
    vectors = 2 * queries * key_size + queries * value_size + 2 * keys * (key_size + value_size)
    rows = rows_per_block(query.shape[0], max(queries, keys))
    in_block = heads_per_block(heads, key_size, value_size)
    return 2 * query.dtype.itemsize * rows * in_block * vectors + 6 * 4 * queries * keys


def _product(left: jax.Array, right: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Return the float32 product of two matrices that sums over one axis of each."""
    numbers = ((axes[:1], axes[1:]), ((), ()))
    precision = jax.lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    return jax.lax.dot_general(left, right, numbers, precision=precision, preferred_element_type=jnp.float32)


def _over_heads(heads: int, rate: float, words: Any, seeds: Any, query: Any, key: Any, value: Any, mask: Any, use: Any):
    """Call `use` for every head of every row of a block.

    Its arguments: slices of the block with the head's queries and keys, and with its values, the queries (L,K), scaled
    by 1/√K, the keys (M,K), the values (M,J), the probabilities (L,M) before dropout, whether a key is a real token
    (1,M), and a function that applies the head's dropout to (L,M).
    """
    rows = query.shape[0]
    key_size, value_size = query.shape[2] // heads, value.shape[2] // heads
    block, group = pl.program_id(0), pl.program_id(1)

    def attend_row(row: Any, _: Any) -> None:
        valid_1M = mask[row] > 0
        for head in range(heads):
            key_slice = row, slice(None), slice(head * key_size, (head + 1) * key_size)
            value_slice = row, slice(None), slice(head * value_size, (head + 1) * value_size)
            query_LK, key_MK = query[key_slice], key[key_slice]
            query_LK = query_LK * jnp.asarray(key_size**-0.5, query_LK.dtype)
            scores_LM = jnp.where(valid_1M, _product(query_LK, key_MK, (1, 1)), MASKED_SCORE)
            keep_LM = None
            if rate:
                number = words[1] + (group * heads + head).astype(jnp.uint32)
                keep_LM = _keep_mask(seeds[block * rows + row], words[0], number, scores_LM.shape, rate)
            exponentials_LM = jnp.exp(scores_LM - jnp.max(scores_LM, axis=-1, keepdims=True))
            probabilities_LM = exponentials_LM / jnp.sum(exponentials_LM, axis=-1, keepdims=True)
            drop = functools.partial(_dropped, keep_LM=keep_LM, rate=rate)
            use(key_slice, value_slice, query_LK, key_MK, value[value_slice], probabilities_LM, valid_1M, drop)

    jax.lax.fori_loop(0, rows, attend_row, None)


def _keep_mask(seed: jax.Array, salt: jax.Array, head: jax.Array, shape: tuple[int, ...], rate: float) -> jax.Array:
    """Return (L,M): whether dropout keeps each pair of query and key of a head, by the random bits of `random_bits`."""
    rows, columns = (jax.lax.broadcasted_iota(jnp.uint32, shape, axis) for axis in (0, 1))
    position = (head * jnp.uint32(shape[0]) + rows) * jnp.uint32(shape[1]) + columns
    return mix(mix(position ^ seed) + salt) >= jnp.uint32(round(rate * 2**32))


def _dropped(x_LM: jax.Array, keep_LM: jax.Array | None, rate: float) -> jax.Array:
    if keep_LM is None:
        return x_LM
    return jnp.where(keep_LM, x_LM * jnp.asarray(1.0 / (1.0 - rate), x_LM.dtype), jnp.zeros((), x_LM.dtype))


def _forward_kernel(heads: int, rate: float, words, seeds, query, key, value, mask, context):
    def use(_, value_slice, query_LK, key_MK, value_MJ, probabilities_LM, valid_1M, drop) -> None:
        dropped_LM = drop(probabilities_LM.astype(value_MJ.dtype))
        context[value_slice] = _product(dropped_LM, value_MJ, (1, 0)).astype(context.dtype)

    _over_heads(heads, rate, words, seeds, query, key, value, mask, use)


def _backward_kernel(heads: int, rate: float, words, seeds, query, key, value, mask, dy, dquery, dkey, dvalue):
    def use(key_slice, value_slice, query_LK, key_MK, value_MJ, probabilities_LM, valid_1M, drop) -> None:
        dtype, dy_LJ = value_MJ.dtype, dy[value_slice]
        dvalue[value_slice] = _product(drop(probabilities_LM.astype(dtype)), dy_LJ, (0, 0)).astype(dtype)
        dprobabilities_LM = drop(_product(dy_LJ, value_MJ, (1, 1)))
        mean_L1 = jnp.sum(dprobabilities_LM * probabilities_LM, axis=-1, keepdims=True)
        scores_LM = jnp.where(valid_1M, probabilities_LM * (dprobabilities_LM - mean_L1), 0.0).astype(dtype)
        scale = query_LK.shape[1] ** -0.5
        dquery[key_slice] = (_product(scores_LM, key_MK, (1, 0)) * scale).astype(dtype)
        dkey[key_slice] = _product(scores_LM, query_LK, (0, 0)).astype(dtype)

    _over_heads(heads, rate, words, seeds, query, key, value, mask, use)


def _call(
    kernel: Callable, heads: int, rate: float, numbers: Any, arrays: Any, mask_BM: Any, outs: Any, interpret: bool
):
    """Run a kernel over blocks of rows and heads; inputs and `outs` have the axes row, token and head · size."""
    rows, length = arrays[0].shape[0], max(array.shape[1] for array in arrays)
    together = rows_per_block(rows, length)
    in_block = heads_per_block(heads, *(array.shape[2] // heads for array in arrays))

    def split(array: Any) -> pl.BlockSpec:
        shape = together, array.shape[1], array.shape[2] // heads * in_block
        return pl.BlockSpec(shape, lambda row, group: (row, 0, group))

    scalars = pl.BlockSpec(memory_space=pltpu.SMEM)
    mask = pl.BlockSpec((together, 1, mask_BM.shape[1]), lambda row, group: (row, 0, 0))
    inputs, more = arrays[:3], arrays[3:]
    return pl.pallas_call(
        functools.partial(kernel, in_block, rate),
        grid=(rows // together, heads // in_block),
        in_specs=[scalars, scalars, *map(split, inputs), mask, *map(split, more)],
        out_specs=jax.tree.map(split, outs),
        out_shape=outs,
        interpret=interpret,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
    )(*numbers, *inputs, mask_BM[:, None, :].astype(jnp.int32), *more)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _attend(heads: int, rate: float, interpret: bool, query, key, value, mask_BM, numbers):
    out = jax.ShapeDtypeStruct((*query.shape[:2], value.shape[2]), value.dtype)
    return _call(_forward_kernel, heads, rate, numbers, (query, key, value), mask_BM, out, interpret)


def _attend_backward(heads: int, rate: float, interpret: bool, arguments, dy):
    *inputs, mask_BM, numbers = arguments
    outs = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in inputs)
    gradients = _call(_backward_kernel, heads, rate, numbers, (*inputs, dy), mask_BM, outs, interpret)
    return *gradients, None, None


_attend.defvjp(lambda *arguments: (_attend(*arguments), arguments[3:]), _attend_backward)


def fused_attention(
    query_BLHK: jax.Array,
    key_BMHK: jax.Array,
    value_BMHJ: jax.Array,
    mask_BM: jax.Array,
    rate: float,
    seeds_B: jax.Array,
    salt: jax.Array,
    first_head: jax.Array,
    interpret: bool,
) -> jax.Array:
    """Return softmax(q·kᵀ/√K)·v (B,L,H,J), the first of the two results of `attend`.

    rate: of dropout, whose random bits are hashes of a row's seed, the salt (uint32) and the element's position.
    first_head: index of the first head in the arrays; above 0 if other devices compute the heads before it.
    interpret: run the kernel without a TPU, for tests.
    """
    heads = query_BLHK.shape[2]
    flat = [array.reshape(*array.shape[:2], -1) for array in (query_BLHK, key_BMHK, value_BMHJ)]
    words_2 = jnp.stack([salt, first_head.astype(jnp.uint32)])
    context: Any = _attend(heads, rate, interpret, *flat, mask_BM, (words_2, seeds_B))
    return context.reshape(*context.shape[:2], heads, -1)


def long_attention(
    query_BLHK: jax.Array,
    key_BMHK: jax.Array,
    value_BMHJ: jax.Array,
    mask_BM: jax.Array,
    reach: int | None,
    interpret: bool,
) -> jax.Array:
    """Return softmax(q·kᵀ/√K)·v (B,L,H,J) for rows of any length, without dropout.

    reach: largest distance between a query and the keys that it sees; the kernel skips blocks that are farther away.
    The result of a query that sees no key is undefined. interpret: as in `fused_attention`.
    """
    heads, size = query_BLHK.shape[2:]
    tokens = TOKENS if reach is None else NEAR_TOKENS

    query, key, value = (  # whole blocks of tokens, with the heads first, (B,H,L,K)
        jnp.pad(x, ((0, 0), (0, -x.shape[1] % tokens), (0, 0), (0, 0))).transpose(0, 2, 1, 3)
        for x in (query_BLHK * jnp.asarray(size**-0.5, query_BLHK.dtype), key_BMHK, value_BMHJ)
    )
    shape = query.shape[2], key.shape[2]
    masks = splash_attention_mask
    mask = masks.FullMask(shape) if reach is None else masks.LocalMask(shape, (reach, reach), 0)
    names = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_kv_dkv_compute", "block_q_dq", "block_kv_dq")
    kernel = splash_attention_kernel.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads),
        block_sizes=splash_attention_kernel.BlockSizes(**dict.fromkeys(names, tokens)),
        interpret=interpret,
    )
    padded_BM = jnp.pad(mask_BM.astype(jnp.int32), ((0, 0), (0, shape[1] - mask_BM.shape[1])))
    segments = splash_attention_kernel.SegmentIds(q=jnp.ones((len(mask_BM), shape[0]), jnp.int32), kv=padded_BM)
    context_BHLJ: Any = jax.vmap(kernel)(query, key, value, segments)
    return context_BHLJ[:, :, : query_BLHK.shape[1]].transpose(0, 2, 1, 3)
