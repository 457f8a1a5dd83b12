"""Penalties on prune vectors, as functions of vectors and weights β by the names of their dimensions."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

Vectors = Mapping[str, jax.Array]
Betas = Mapping[str, float]


def l1(vectors: Vectors, betas: Betas) -> jax.Array:
    """Σ β·‖α‖₁ (Khetan and Karnin 2020, Eq. 2)."""
    return jnp.asarray(sum(betas[name] * jnp.sum(jnp.abs(vector)) for name, vector in vectors.items()))


def soft_threshold(vectors: Vectors, betas: Betas, step: float | jax.Array) -> dict[str, jax.Array]:
    """sign(α)·max(|α| − step·β, 0): the proximal step of Σ β·‖α‖₁, where `step` is γ times the learning rate."""
    return {
        name: jnp.sign(vector) * jnp.maximum(jnp.abs(vector) - step * betas[name], 0.0)
        for name, vector in vectors.items()
    }


class HardConcrete(NamedTuple):
    """The ℓ0 penalty's gates: from parameters log α, of any sign, to gates in [0, 1] that are exactly 0 with a chance
    that has a gradient (Louizos et al. 2018, §2.2); the defaults are theirs.
    """

    temperature: float = 2 / 3
    low: float = -0.1
    high: float = 1.1

    def sample(self, logits: jax.Array, key: jax.Array) -> jax.Array:
        """Gates drawn at random, as in training (Eq. 10 and 11)."""
        u = jax.random.uniform(key, logits.shape, minval=1e-6, maxval=1 - 1e-6)
        return self._stretched(jax.nn.sigmoid((jnp.log(u) - jnp.log1p(-u) + logits) / self.temperature))

    def gate(self, logits: jax.Array) -> jax.Array:
        """The gates that are used once trained (Eq. 13)."""
        return self._stretched(jax.nn.sigmoid(logits))

    def penalty(self, logits: Vectors, betas: Betas) -> jax.Array:
        """Σ β·P(gate ≠ 0) (Eq. 12)."""
        shift = self.temperature * jnp.log(-self.low / self.high)
        return jnp.asarray(sum(betas[name] * jnp.sum(jax.nn.sigmoid(x - shift)) for name, x in logits.items()))

    def _stretched(self, s: jax.Array) -> jax.Array:
        return jnp.clip(s * (self.high - self.low) + self.low, 0.0, 1.0)
