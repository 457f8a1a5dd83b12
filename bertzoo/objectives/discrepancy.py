"""Distances between a student's layer and a teacher's, summed over tokens (MobileBERT, Sun et al. 2020, §3.5).

Hidden states T and S are (B,L,D), attention maps (B,H,L,M) of probabilities; `weights_BL` is 0 for tokens that do not
count. No gradient reaches the teacher.
"""

import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError

EPSILON = 1e-12  # of the normalisation, as in the authors' code
TINY = 1.2e-38  # smallest normal float32; keeps the logarithm of a probability of 0 finite


def feature_map(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (1/D) Σ_d (LN(T) − LN(S))²: squared difference of the normalised states (§3.5, Eq. 2).

    LN(x) = (x − μ(x)) / √(σ²(x) + EPSILON), without scale and bias.
    """
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    difference_BLD = _normalised(teacher_BLD) - _normalised(student_BLD)
    return jnp.sum(weights_BL * jnp.mean(difference_BLD**2, axis=-1))


def mean(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (μ(T) − μ(S))², where μ is the mean over a token's features (§3.5)."""
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    return jnp.sum(weights_BL * (jnp.mean(teacher_BLD, axis=-1) - jnp.mean(student_BLD, axis=-1)) ** 2)


def variance(teacher_BLD: jax.Array, student_BLD: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · |σ²(T) − σ²(S)|, where σ² is the variance over a token's features (§3.5)."""
    teacher_BLD, student_BLD = _pair(teacher_BLD, student_BLD)
    return jnp.sum(weights_BL * jnp.abs(jnp.var(teacher_BLD, axis=-1) - jnp.var(student_BLD, axis=-1)))


def attention(teacher_BHLM: jax.Array, student_BHLM: jax.Array, weights_BL: jax.Array) -> jax.Array:
    """Return Σ_bl w · (1/H) Σ_h KL(T ‖ S), where KL = −Σ_m T·log S − (−Σ_m T·log T) (§3.5, Eq. 3).

    The teacher's entropy is constant, so the gradient is that of the cross-entropy. If the numbers of heads differ, the
    maps are averaged over heads first. Raises ConfigError if the numbers of keys differ.
    """
    teacher_BHLM, student_BHLM = _pair(teacher_BHLM, student_BHLM)
    if teacher_BHLM.shape[3] != student_BHLM.shape[3]:
        raise ConfigError(
            f"in rows of {student_BHLM.shape[2]} tokens, the teacher attends to {teacher_BHLM.shape[3]} keys and the "
            f"student to {student_BHLM.shape[3]}, so their maps cannot be compared. Set knowledge.attention = 0, or "
            "give both models the same stride."
        )
    if teacher_BHLM.shape[1] != student_BHLM.shape[1]:
        teacher_BHLM, student_BHLM = (jnp.mean(x, axis=1, keepdims=True) for x in (teacher_BHLM, student_BHLM))
    cross_BHL, entropy_BHL = _cross_entropy(teacher_BHLM, student_BHLM), _cross_entropy(teacher_BHLM, teacher_BHLM)
    return jnp.sum(weights_BL * jnp.mean(cross_BHL - entropy_BHL, axis=1))


def soft_cross_entropy(teacher_BPV: jax.Array, student_BPV: jax.Array) -> jax.Array:
    """Return (B,P): −Σ_v softmax(T)·log softmax(S) of logits T and S (pre-training distillation, §3.5)."""
    teacher_BPV, student_BPV = _pair(teacher_BPV, student_BPV)
    return -jnp.sum(jax.nn.softmax(teacher_BPV) * jax.nn.log_softmax(student_BPV), axis=-1)


def _pair(teacher: jax.Array, student: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jax.lax.stop_gradient(teacher).astype(jnp.float32), student.astype(jnp.float32)


def _normalised(x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + EPSILON)


def _cross_entropy(p: jax.Array, q: jax.Array) -> jax.Array:
    return -jnp.sum(p * jnp.log(jnp.maximum(q, TINY)), axis=-1)
