"""Select the tokens at given positions of each row."""

import jax
import jax.numpy as jnp


def take_tokens(x: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """Return the tokens of x (B,L,...) at `positions_BR`, as (B,R,...), or x itself if `positions_BR` is None."""
    if positions_BR is None:
        return x
    return jnp.take_along_axis(x, jnp.expand_dims(positions_BR, tuple(range(2, x.ndim))), axis=1)


def tokens_read(masked_BP: jax.Array, length: int) -> jax.Array | None:
    """Return the positions (B,R) that the heads of a masked language model read: the first token's, then `masked_BP`.

    cuDNN's attention requires an even R, so the first token may come twice. If a row's `length` is at most R, the
    selection saves no work, and the result is None.
    """
    rows, masked = masked_BP.shape
    firsts = 1 + (masked + 1) % 2
    if length <= firsts + masked:
        return None
    return jnp.concatenate([jnp.zeros((rows, firsts), jnp.int32), masked_BP], axis=1)


def masked_states(hidden: jax.Array, masked_BP: jax.Array, read_BR: jax.Array | None) -> jax.Array:
    """Return the states (B,P,D) of the masked tokens.

    hidden: states of all tokens or, unless `read_BR` (of `tokens_read`) is None, of the tokens at `read_BR`.
    """
    return take_tokens(hidden, masked_BP) if read_BR is None else hidden[:, -masked_BP.shape[1] :]
