"""Select the tokens at given positions of each row."""

import jax
import jax.numpy as jnp


def take_tokens(x: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """Return the tokens of x (B,L,...) at `positions_BR`, as (B,R,...), or x itself if `positions_BR` is None."""
    if positions_BR is None:
        return x
    return jnp.take_along_axis(x, jnp.expand_dims(positions_BR, tuple(range(2, x.ndim))), axis=1)
