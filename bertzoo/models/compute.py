"""How a model is computed, as opposed to what it is."""

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
    """Number format and memory trade-offs; parameters, softmax, norms and losses are float32 whatever it says.

    dtype: of matrix products and activations. remat: recompute each layer in the backward pass instead of keeping its
    activations. grouped: how grouped products of window 1 are lowered (measured in benchmarks/grouped.py).
    vocab_multiple: the word table has spare rows of zeros up to a multiple of it, so that a mesh or a chip's tiles
    divide it; no token is ever looked up or predicted there, and what leaves the run has none of them.
    """

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    grouped: Literal["einsum", "convolution"] = "einsum"
    vocab_multiple: int = 1

    def __post_init__(self):
        if self.vocab_multiple < 1:
            raise ConfigError(f"vocab_multiple = {self.vocab_multiple} is less than 1, which pads nothing")

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    def vocab_rows(self, vocab_size: int) -> int:
        """Rows of a word table of so many entries, the spare ones too."""
        return -(-vocab_size // self.vocab_multiple) * self.vocab_multiple
