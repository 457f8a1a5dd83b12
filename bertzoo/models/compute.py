"""Settings of how a model is computed, which leave the model itself unchanged."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError


def gelu(x: jax.Array) -> jax.Array:
    """x·Φ(x) (Hendrycks & Gimpel 2016) with Φ by erf; `jax.nn.gelu` has erfc, which XLA's CPU backend fuses worse."""
    return 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}
Activation = Literal["gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Number format and memory trade-offs; parameters, softmax, norms and losses are always float32.

    No token is looked up or predicted in the spare rows of the word table, and no export has them.
    """

    dtype: Literal["float32", "bfloat16"] = "float32"  # number format of matrix products and activations
    remat: bool = False  # recompute each layer in the backward pass instead of keeping its activations
    # how grouped products of window 1 are lowered (docs/performance.md has the times)
    grouped: Literal["einsum", "convolution"] = "einsum"
    # pad the word table with rows of zeros to a multiple of this, so that a mesh or a chip's tiles divide it
    vocab_multiple: int = 1

    def __post_init__(self):
        if self.vocab_multiple < 1:
            raise ConfigError(f"vocab_multiple = {self.vocab_multiple} is less than 1. Use 1 for no spare rows.")

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    def vocab_rows(self, vocab_size: int) -> int:
        """Return the rows of a word table for `vocab_size` entries, spare rows included."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple
