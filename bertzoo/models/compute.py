"""The [compute] table of a config: number format and memory use of a model's computation."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp

from bertzoo.nn import products
from bertzoo.nn.platform import current_platform


def _rounded_once(activation: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """Return the activation in float32, rounded once, on CPUs with bfloat16 instructions; only its input is kept."""

    @jax.custom_vjp
    def in_float32(x: jax.Array) -> jax.Array:
        return activation(x.astype(jnp.float32)).astype(x.dtype)

    def backward(x: jax.Array, dy: jax.Array) -> tuple[jax.Array]:
        (gradient,) = jax.vjp(activation, x.astype(jnp.float32))[1](dy.astype(jnp.float32))
        return (gradient.astype(x.dtype),)

    in_float32.defvjp(lambda x: (in_float32(x), x), backward)

    @functools.wraps(activation)
    def on_platform(x: jax.Array) -> jax.Array:
        return in_float32(x) if products.is_fast(x) and current_platform().name == "cpu" else activation(x)

    return on_platform


@_rounded_once
def gelu(x: jax.Array) -> jax.Array:
    """Return x·Φ(x) (Hendrycks & Gimpel 2016), with erf; `jax.nn.gelu` uses erfc, which XLA fuses worse on CPUs."""
    return 0.5 * x * (1 + jax.lax.erf(x * 0.5**0.5))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": _rounded_once(functools.partial(jax.nn.gelu, approximate=True)),
    "relu": jax.nn.relu,
}
Activation = Literal["gelu", "gelu_tanh", "relu"]


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Number format and memory use of the computation; parameters, softmax, norms and losses are always float32."""

    RETIRED: ClassVar[dict[str, Any]] = {"vocab_multiple": 1, "grouped": "einsum"}

    dtype: Literal["float32", "bfloat16"] = "float32"  # number format of matrix products and activations
    remat: bool = False  # recompute each layer in the backward pass instead of keeping its activations

    @property
    def jax_dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    def log_format(self) -> None:
        """Log how a CPU computes matrix products in bfloat16; do nothing for float32, GPUs and TPUs.

        Raises ConfigError if the environment variable `products.RESULTS_VARIABLE` has an invalid value.
        """
        if self.dtype == "bfloat16" and jax.default_backend() == "cpu":
            products.log_cpu_results()
