"""How a model is computed, as opposed to what it is."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp


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
    """

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    grouped: Literal["einsum", "convolution"] = "einsum"

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)
