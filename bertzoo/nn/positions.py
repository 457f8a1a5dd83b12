"""Select the tokens at given positions of each row."""

import jax
import jax.numpy as jnp


def take_tokens(x: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """Return the tokens of x (B,L,...) at `positions_BR`, as (B,R,...), or x itself if `positions_BR` is None."""
    if positions_BR is None:
        return x
    return jnp.take_along_axis(x, jnp.expand_dims(positions_BR, tuple(range(2, x.ndim))), axis=1)


def first_and_masked(masked_BP: jax.Array, length: int) -> tuple[jax.Array | None, jax.Array]:
    """Return (positions (B,1+P) of each row's first token and masked tokens, indices (B,P) of the masked among them).

    The last layer of a model whose heads read only these tokens computes no others. If a row has at most 1 + P tokens
    (`length`), this saves nothing, and the result is (None, masked_BP).
    """
    rows, masked = masked_BP.shape
    if length <= 1 + masked:
        return None, masked_BP
    first_B1 = jnp.zeros((rows, 1), jnp.int32)
    return jnp.concatenate([first_B1, masked_BP], axis=1), jnp.broadcast_to(jnp.arange(1, masked + 1), masked_BP.shape)
