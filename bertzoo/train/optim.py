"""Optimisers composed from optax: LAMB in Google's and optax's variants, AdamW, and BERT's Adam."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertzoo.core.errors import ConfigError
from bertzoo.train import schedule as schedules
from bertzoo.train.schedule import Schedule
from bertzoo.train.stacking import leaf_name, stacked
from bertzoo.train.state import name_of

EXCLUDED_NAMES = frozenset({"bias", "scale"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Adaptive:
    """Fields of every optimiser."""

    learning_rate: float  # the peak of the schedule
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 1.0  # of the gradient's global norm; 0 disables clipping
    schedule: Schedule = dataclasses.field(default_factory=Schedule)

    def __post_init__(self):
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not in [0, 1)")
        for name in ("learning_rate", "epsilon", "weight_decay", "clip_norm"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is not a finite number of at least 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb(_Adaptive):
    """LAMB (You et al. 2020, Algorithm 2).

    "google" (albert/lamb_optimizer.py): no bias correction; biases and norms have no decay and no trust ratio.
    "optax" (`optax.lamb` with the decay masked): bias correction; every tensor has a trust ratio.
    """

    kind: Literal["lamb"] = "lamb"
    variant: Literal["google", "optax"] = "google"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(_Adaptive):
    """AdamW (Loshchilov & Hutter 2019), bias-corrected; biases and norms are not decayed."""

    kind: Literal["adamw"] = "adamw"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertAdam(_Adaptive):
    """BERT's Adam (bert/optimization.py): update m/(√v + epsilon) + decay·w without bias correction."""

    kind: Literal["bert_adam"] = "bert_adam"


Optimizer = Lamb | AdamW | BertAdam


class MomentsState(NamedTuple):
    """First and second moments of every parameter."""

    mu: Any
    nu: Any


def scale_by_moments(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """Adam without bias correction, m/(√v + epsilon), for which `optax.scale_by_adam` has no switch."""

    def init(params):
        return MomentsState(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(updates, state, params=None):
        mu = optax.tree.update_moment(updates, state.mu, beta1, 1)
        nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, beta2, 2)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu), MomentsState(mu, nu)

    return optax.GradientTransformation(init, update)


def excluded(params: Any) -> Any:
    """Mark the leaves without decay and (in Google's LAMB) without a trust ratio: biases and norms, by leaf name."""
    return jax.tree.map_with_path(lambda path, _: leaf_name(path) in EXCLUDED_NAMES, params)


def _included(params: Any) -> Any:
    return jax.tree.map(lambda out: not out, excluded(params))


def per_tensor(config: Optimizer) -> optax.GradientTransformation:
    """Build the part of the update that uses one tensor at a time: moments, decay, trust ratio; its sign is +."""
    moments = (config.beta1, config.beta2, config.epsilon)
    decay = optax.masked(optax.add_decayed_weights(config.weight_decay), _included)
    match config:
        case Lamb(variant="google"):
            ratio = optax.masked(optax.scale_by_trust_ratio(), _included)
            return optax.chain(scale_by_moments(*moments), decay, ratio)
        case Lamb():
            return optax.chain(optax.scale_by_adam(*moments), decay, optax.scale_by_trust_ratio())
        case AdamW():
            return optax.chain(optax.scale_by_adam(*moments), decay)
        case BertAdam():
            return optax.chain(scale_by_moments(*moments), decay)


def schedule_of(config: Optimizer, steps: int, learning_rate: float | None = None) -> Callable[[Any], jax.Array]:
    """Return the function step -> learning rate of an optimiser's schedule over `steps` steps.

    learning_rate: replaces the config's peak.
    """
    peak = config.learning_rate if learning_rate is None else learning_rate
    return schedules.build(config.schedule, peak, steps)


def build(
    config: Optimizer,
    steps: int,
    learning_rate: float | None = None,
    *,
    stack: bool | None = None,
    rates: Callable[[str], float] | None = None,
) -> optax.GradientTransformation:
    """Compose the whole optimiser: clip by the global norm, update per tensor, scale by the schedule.

    Its state has one leaf per parameter in the parameter's shape. stack: changes compile time, not results (see
    `stacking`); None stacks if the default backend is a TPU. rates: factor of the learning rate by a parameter's path;
    a parameter with factor 0 does not change, has no state and counts in no norm. Raises ConfigError as the schedule
    does.
    """
    stack = jax.default_backend() == "tpu" if stack is None else stack
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    update = stacked(per_tensor(config)) if stack else per_tensor(config)
    rate = schedule_of(config, steps, learning_rate)
    whole = optax.chain(clip, update, optax.scale_by_learning_rate(rate))
    return whole if rates is None else _restricted(whole, rates)


def _restricted(whole: optax.GradientTransformation, rates: Callable[[str], float]) -> optax.GradientTransformation:
    def label(path: tuple, _: Any) -> str:
        return "trained" if rates(name_of(path)) else "frozen"

    @optax.stateless
    def factors(updates: Any, params: Any) -> Any:
        return jax.tree.map_with_path(lambda path, update: update * rates(name_of(path)), updates)

    return optax.partition(
        {"trained": optax.chain(whole, factors), "frozen": optax.set_to_zero()},
        lambda params: jax.tree.map_with_path(label, params),
    )


def _bias_count(path: tuple, _: Any) -> bool:
    return getattr(path[-1], "tuple_name", "") == "ScaleByAdamState"


def carry(old: Any, new: Any, parts: Literal["moments", "all", "params"]) -> Any:
    """Return the optimiser state at the start of a stage, from the old stage's state and a newly initialised one.

    "moments": mu and nu, and the count of their bias correction if there is one; the schedule's count restarts.
    "all": the old state, so that the schedule continues. "params": the new state.
    """
    if parts == "all":
        return old
    if parts == "params":
        return new
    tree = optax.tree_utils
    new = tree.tree_set(new, mu=tree.tree_get(old, "mu"), nu=tree.tree_get(old, "nu"))
    count = tree.tree_get(old, "count", None, _bias_count)
    return new if count is None else tree.tree_set(new, _bias_count, count=count)
