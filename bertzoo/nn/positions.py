"""Selection of a row's tokens, where later layers read no others."""

import jax
import jax.numpy as jnp


def take_tokens(x: jax.Array, positions_BR: jax.Array | None) -> jax.Array:
    """(B,L,...) -> (B,R,...), the tokens at `positions_BR`; None returns x."""
    if positions_BR is None:
        return x
    return jnp.take_along_axis(x, jnp.expand_dims(positions_BR, tuple(range(2, x.ndim))), axis=1)
