"""Optimisers composed from optax: LAMB in Google's, NVIDIA's and optax's variants, AdamW, BERT's Adam, and Muon."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError
from bertzoo.nn.parameter import Matrix
from bertzoo.train.state import name_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """The learning rate at each step, as a factor of the peak.

    With p = step/steps and w the warm-up's length in steps, known recipes are
    BERT      step/w, then 1-p (it jumps down at w)              the defaults and `warmup_steps`
    ELECTRA   (1-p)·min(1, step/w) (no jump)                     `warmup="multiply"`
    NVIDIA    step/w, then (1-p)^0.5 (it jumps down at w)        `kind="polynomial"`, `power=0.5`, `warmup_share`
    Hugging Face  step/w, then (steps-step)/(steps-w) (no jump)  `decay_from="warmup"`
    MobileBERT ends at 1e-4 of the peak, not at 0: `end_factor=1e-4`; its progressive knowledge transfer uses
    min(step/w, 0.9 + 0.1·(1-p)^0.5): `warmup="least"`, `end_factor=0.9`, `power=0.5`.
    Warm-up, stable, decay (Hu et al. 2024, §4): step/w, then 1, and min(1, (1-p)/decay_share)^power at the end:
    `kind="wsd"`.
    """

    kind: Literal["linear", "polynomial", "constant", "wsd"] = "linear"  # the decay after the warm-up
    warmup_steps: int = 0  # length of the warm-up in steps; use this or warmup_share, not both
    warmup_share: float = 0.0  # length of the warm-up as a share of the schedule's steps, not rounded to whole steps
    # factor in a warm-up of w steps: step/w (replace), step/w · decay (multiply), lesser of step/w and decay (least)
    warmup: Literal["replace", "multiply", "least"] = "replace"
    decay_from: Literal["start", "warmup"] = "start"  # where the decay starts: at step 0 or at the end of the warm-up
    power: float = 1.0  # exponent of the polynomial decay
    end_factor: float = 0.0  # factor of the peak at the last step
    decay_share: float | None = None  # share of the steps, at the end, in which wsd decays; "none": 0.2

    def __post_init__(self):
        check_range(self, "warmup_steps", least=0, advice="Use 0 for no warm-up.")
        check_range(self, "warmup_share", least=0, most=1, advice="Use a share such as 0.01.")
        if self.warmup_steps and self.warmup_share:
            raise ConfigError(
                f"warmup_steps={self.warmup_steps} and warmup_share={self.warmup_share} both set the warm-up. Keep one."
            )
        check_range(self, "end_factor", least=0, most=1, advice="Use 0 to end at 0.")
        check_range(self, "power", above=0, advice="Use 1 for a linear decay.")
        if self.kind == "linear" and self.power != 1:
            raise ConfigError(f'kind="linear" and power={self.power} disagree. Set kind="polynomial".')
        if self.kind == "wsd":
            if self.decay_from != "start" or self.warmup != "replace":
                raise ConfigError(
                    f'kind="wsd" needs warmup="replace" and decay_from="start", but has warmup="{self.warmup}" and '
                    f'decay_from="{self.decay_from}". Use these defaults.'
                )
            if not 0 < self.final_share <= 1 - self.warmup_share:
                raise ConfigError(
                    f"decay_share={self.final_share} is not a positive share that leaves room for "
                    f"warmup_share={self.warmup_share}. Together they must be at most 1."
                )
        elif self.decay_share is not None:
            raise ConfigError(f'decay_share={self.decay_share} applies to kind="wsd", not "{self.kind}". Remove it.')
        decays = self.power != 1 or self.end_factor or self.decay_from != "start" or self.warmup != "replace"
        if self.kind == "constant" and decays:
            raise ConfigError('kind="constant" does not use power, end_factor, decay_from or warmup. Remove them.')

    @property
    def final_share(self) -> float:
        """The share of the steps in which the learning rate decays, for kind = "wsd"."""
        return 0.2 if self.decay_share is None else self.decay_share


def build_schedule(config: Schedule, peak: float, steps: int) -> Callable[[jax.typing.ArrayLike], jax.Array]:
    """Return the function step -> learning rate (float32) of a schedule over `steps` steps; step 0 is the first update.

    Raises ConfigError if the warm-up (for kind = "wsd", the warm-up and the decay) takes more than `steps` steps.
    """
    if config.warmup_steps > steps:
        raise ConfigError(
            f"warmup_steps={config.warmup_steps} is longer than the schedule's steps={steps}. Lower warmup_steps."
        )
    warm = config.warmup_steps or config.warmup_share * steps
    start = warm if config.decay_from == "warmup" else 0
    if config.kind == "wsd":
        start = (1 - config.final_share) * steps
        if warm > start + 1e-6 * steps:
            raise ConfigError(
                f"warmup_steps={config.warmup_steps} and a decay over decay_share={config.final_share} of the schedule "
                f"do not both fit in its steps={steps}. Lower one of them."
            )

    def rate(step: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        decay = jnp.ones_like(step)
        if config.kind != "constant":
            remaining = jnp.clip((steps - step) / max(steps - start, 1), 0, 1)  # 1 until wsd decays
            decay = (1 - config.end_factor) * remaining**config.power + config.end_factor
        if not warm:
            return peak * decay
        if config.warmup == "least":
            return peak * jnp.minimum(decay, step / warm)
        inside = decay * step / warm if config.warmup == "multiply" else step / warm
        return peak * jnp.where(step < warm, inside, decay)

    return rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Adaptive:
    """Fields that the configs of all optimisers share."""

    learning_rate: float  # peak of the schedule
    beta1: float = 0.9  # decay of the first moment
    beta2: float = 0.999  # decay of the second moment
    epsilon: float = 1e-6  # number added to the root of the second moment
    weight_decay: float = 0.01  # factor of weight decay; biases and norms are not decayed
    clip_norm: float = 1.0  # limit of the gradient's global norm; 0 disables clipping
    schedule: Schedule = dataclasses.field(default_factory=Schedule)  # the learning rate by step

    def __post_init__(self):
        for name in ("beta1", "beta2"):
            check_range(self, name, least=0, below=1, advice=f"Use {getattr(_Adaptive, name)}, the default.")
        check_range(self, "learning_rate", "epsilon", "weight_decay", "clip_norm", least=0, advice="Use 0 or more.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lamb(_Adaptive):
    """LAMB (You et al. 2020, Algorithm 2).

    "google" (albert/lamb_optimizer.py): no bias correction; biases and norms have no decay and no trust ratio.
    "nvidia" (DeepLearningExamples' FusedLAMB): the same with bias correction.
    "optax" (`optax.lamb` with the decay masked): bias correction; every tensor has a trust ratio.
    """

    kind: Literal["lamb"] = "lamb"
    # google: no bias correction, no trust ratio for biases and norms; nvidia: the same with bias correction;
    # optax: bias correction, and a trust ratio for every tensor
    variant: Literal["google", "nvidia", "optax"] = "google"

    def __post_init__(self):
        super().__post_init__()
        if self.variant == "nvidia" and not self.weight_decay:
            raise ConfigError(
                f'variant = "nvidia" has a trust ratio only for tensors with decay, but weight_decay = '
                f'{self.weight_decay}. Set a decay, or use variant = "google" or "optax".'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamW(_Adaptive):
    """AdamW (Loshchilov & Hutter 2019), bias-corrected; biases and norms are not decayed."""

    kind: Literal["adamw"] = "adamw"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertAdam(_Adaptive):
    """BERT's Adam (bert/optimization.py): update m/(√v + epsilon) + decay·w without bias correction."""

    kind: Literal["bert_adam"] = "bert_adam"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Muon(_Adaptive):
    """Muon (Jordan et al. 2024) for the matrices of the encoder, AdamW for all other parameters.

    A matrix's update has a root mean square of about `update_rms`, like AdamW's, so Muon and AdamW share learning rate
    and decay (Liu et al. 2025, §2.2). beta1, beta2 and epsilon belong to AdamW. Each group of a grouped kernel is its
    own matrix.
    """

    kind: Literal["muon"] = "muon"
    momentum: float = 0.95  # decay of the matrices' momentum
    nesterov: bool = True  # use Nesterov momentum
    iterations: int = 5  # iterations of Newton-Schulz
    update_rms: float = 0.2  # root mean square of a matrix's update before the learning rate

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "momentum", least=0, below=1, advice="Use 0.95, as in the paper.")
        if self.iterations < 1:
            raise ConfigError(f"iterations = {self.iterations} is not at least 1. Use 5, as in the paper.")
        check_range(self, "update_rms", above=0, advice="Use 0.2 to match AdamW.")


Optimizer = Lamb | AdamW | BertAdam | Muon


class MomentsState(NamedTuple):
    """First and second moments of every parameter."""

    mu: Any
    nu: Any


def scale_by_moments(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """Build Adam without bias correction, m/(√v + epsilon), which `optax.scale_by_adam` does not offer."""

    def init(params):
        return MomentsState(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(updates, state, params=None):
        mu = optax.tree.update_moment(updates, state.mu, beta1, 1)
        nu = optax.tree.update_moment_per_elem_norm(updates, state.nu, beta2, 2)
        return jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu), MomentsState(mu, nu)

    return optax.GradientTransformation(init, update)


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Build `optax.clip_by_global_norm` as a multiplication by one factor.

    On CPUs, XLA fuses the multiplication into the updates that follow. optax divides, and XLA writes the quotients to
    memory, which takes a quarter of AdamW's time for BERT-base.
    """

    @optax.stateless
    def clipped(updates: Any, params: Any) -> Any:
        norm = optax.tree.norm(updates)
        factor = jnp.where(norm < limit, 1.0, limit / norm)
        return jax.tree.map(lambda update: update * factor.astype(update.dtype), updates)

    return clipped


def scale_by_trust_ratio() -> optax.GradientTransformation:
    """Build LAMB's factor |parameter| / |update| (You et al. 2020, Algorithm 2), or 1 where either norm is 0.

    `optax.scale_by_trust_ratio` computes each norm a second time, from an array that depends on the first, so a TPU
    reads every parameter and every update once more.
    """

    def scaled(update: Any, param: Any) -> jax.Array:
        param_norm, update_norm = jnp.linalg.norm(param), jnp.linalg.norm(update)
        return update * jnp.where((param_norm == 0) | (update_norm == 0), 1.0, param_norm / update_norm)

    return optax.stateless_with_tree_map(scaled)


def decayed(params: Any) -> Any:
    """Return a tree with False for biases and norms, which have no decay and, in two LAMB variants, no trust ratio."""
    return jax.tree.map_with_path(lambda path, _: name_of(path[-1:]) not in ("bias", "scale"), params)


def per_tensor(config: Optimizer) -> optax.GradientTransformation:
    """Build the per-tensor terms of the update (moments, decay, trust ratio), to be multiplied by −learning rate."""
    moments = (config.beta1, config.beta2, config.epsilon)
    decay = optax.masked(optax.add_decayed_weights(config.weight_decay), decayed)
    match config:
        case Lamb(variant="optax"):
            return optax.chain(optax.scale_by_adam(*moments), decay, scale_by_trust_ratio())
        case Lamb():
            adam = optax.scale_by_adam if config.variant == "nvidia" else scale_by_moments
            return optax.chain(adam(*moments), decay, optax.masked(scale_by_trust_ratio(), decayed))
        case AdamW() | Muon():  # for Muon, all parameters but its matrices
            return optax.chain(optax.scale_by_adam(*moments), decay)
        case BertAdam():
            return optax.chain(scale_by_moments(*moments), decay)


def _muon(config: Muon, matrices: Mapping[str, Matrix]) -> optax.GradientTransformation:
    """Build Muon's update of the kernels whose paths are in `matrices`, to be multiplied by −learning rate."""

    @optax.stateless
    def orthogonal(updates: Any, params: Any) -> Any:
        return jax.tree.map_with_path(lambda path, x: orthogonalise(x, matrices[name_of(path)], config), updates)

    momentum = optax.trace(config.momentum, config.nesterov)
    return optax.chain(momentum, orthogonal, optax.add_decayed_weights(config.weight_decay))


def orthogonalise(update: jax.Array, matrix: Matrix, config: Muon) -> jax.Array:
    """Return a kernel's update with each of its matrices made orthogonal and scaled to the RMS `config.update_rms`."""
    outputs = math.prod(update.shape[-matrix.outputs :]) // matrix.groups
    inputs = math.prod(update.shape[-matrix.inputs - matrix.outputs : -matrix.outputs])
    x_NIGO = update.reshape(-1, inputs, matrix.groups, outputs)
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=3)
    # beta=0 only orthogonalises: `_muon` keeps the momentum, in the kernel's shape, to be sharded and saved like it.
    muon = optax.contrib.scale_by_muon(
        ns_steps=config.iterations, beta=0.0, nesterov=False, weight_dimension_numbers=axes
    )
    orthogonal: Any = muon.update(x_NIGO, muon.init(x_NIGO))[0]
    return config.update_rms * max(inputs, outputs) ** 0.5 * orthogonal.reshape(update.shape)


def schedule_of(config: Optimizer, steps: int, learning_rate: float | None = None) -> Callable[[Any], jax.Array]:
    """Return the function step -> learning rate over `steps` steps; `learning_rate` replaces the config's peak."""
    peak = config.learning_rate if learning_rate is None else learning_rate
    return build_schedule(config.schedule, peak, steps)


def build(
    config: Optimizer,
    steps: int,
    learning_rate: float | None = None,
    *,
    rates: Callable[[str], float] | None = None,
    matrices: Mapping[str, Matrix] | None = None,
) -> optax.GradientTransformation:
    """Compose the whole optimiser: clip by the global norm, update per tensor, scale by the schedule.

    steps: length of the schedule. learning_rate: replaces the config's peak.
    rates: a function from a parameter's path to a factor of its learning rate. A parameter with factor 0 does not
    change, has no optimiser state and counts in no norm.
    matrices: {path of a kernel: which of its axes form matrices}; only Muon needs it.

    Raises the errors of `build_schedule`.
    """
    clip = clip_by_global_norm(config.clip_norm) if config.clip_norm else optax.identity()
    update = per_tensor(config)
    if isinstance(config, Muon):
        # AdamW updates embeddings, heads, biases and norms.
        chosen = {name: matrix for name, matrix in (matrices or {}).items() if "encoder" in name.split("/")}
        if not chosen:
            raise ValueError("Muon needs an encoder's kernels in `matrices`. Pass `state.matrices_of(objective)`.")
        update = optax.partition(
            {True: _muon(config, chosen), False: update},
            lambda params: jax.tree.map_with_path(lambda path, _: name_of(path) in chosen, params),
        )
    rate = schedule_of(config, steps, learning_rate)
    whole = optax.chain(clip, update, optax.scale_by_learning_rate(rate))
    return whole if rates is None else _restricted(whole, rates)


def _restricted(whole: optax.GradientTransformation, rates: Callable[[str], float]) -> optax.GradientTransformation:
    @optax.stateless
    def factors(updates: Any, params: Any) -> Any:
        return jax.tree.map_with_path(lambda path, update: update * rates(name_of(path)), updates)

    return optax.partition(
        {"trained": optax.chain(whole, factors), "frozen": optax.set_to_zero()},
        lambda params: jax.tree.map_with_path(lambda p, _: "trained" if rates(name_of(p)) else "frozen", params),
    )


def _bias_count(path: tuple, _: Any) -> bool:
    return getattr(path[-1], "tuple_name", "") == "ScaleByAdamState"


def carry(old: Any, new: Any, mode: Literal["moments", "all", "params"]) -> Any:
    """Return the optimiser state at the start of a stage, from the old stage's state and a newly initialised state.

    mode: "moments" carries the moments mu and nu, Muon's momentum and, if the optimiser corrects bias, its step count;
    the schedule restarts. "all" carries the whole old state, so that the schedule continues, and "params" none of it.
    """
    if mode == "all":
        return old
    if mode == "params":
        return new
    tree = optax.tree_utils
    new = tree.tree_set(new, mu=tree.tree_get(old, "mu"), nu=tree.tree_get(old, "nu"))
    if (trace := tree.tree_get(old, "trace")) is not None:
        new = tree.tree_set(new, trace=trace)
    count = tree.tree_get(old, "count", None, _bias_count)
    return new if count is None else tree.tree_set(new, _bias_count, count=count)
