"""Learning-rate schedules: warm-up, then polynomial decay, either at once or (as in MiniCPM) after a stable phase."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from bertzoo.core.errors import ConfigError


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
        if self.warmup_steps < 0:
            raise ConfigError(f"warmup_steps={self.warmup_steps} is negative. Use 0 for no warm-up.")
        if not 0 <= self.warmup_share <= 1:
            raise ConfigError(f"warmup_share={self.warmup_share} is not between 0 and 1. Use a share such as 0.01.")
        if self.warmup_steps and self.warmup_share:
            raise ConfigError(
                f"warmup_steps={self.warmup_steps} and warmup_share={self.warmup_share} both set the warm-up. Keep one."
            )
        if not 0 <= self.end_factor <= 1:
            raise ConfigError(f"end_factor={self.end_factor} is not between 0 and 1. Use 0 to end at 0.")
        if self.power <= 0:
            raise ConfigError(f"power={self.power} is not positive. Use 1 for a linear decay.")
        if self.kind == "linear" and self.power != 1:
            raise ConfigError(f'kind="linear" and power={self.power} disagree. Set kind="polynomial".')
        if self.kind == "wsd":
            self._check_wsd()
        elif self.decay_share is not None:
            raise ConfigError(f'decay_share={self.decay_share} applies to kind="wsd", not "{self.kind}". Remove it.')
        decays = self.power != 1 or self.end_factor or self.decay_from != "start" or self.warmup != "replace"
        if self.kind == "constant" and decays:
            raise ConfigError('kind="constant" does not use power, end_factor, decay_from or warmup. Remove them.')

    def _check_wsd(self) -> None:
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

    @property
    def final_share(self) -> float:
        """The share of the steps in which the learning rate decays, for kind = "wsd"."""
        return 0.2 if self.decay_share is None else self.decay_share


def build(config: Schedule, peak: float, steps: int) -> Callable[[jax.typing.ArrayLike], jax.Array]:
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
            left = jnp.clip((steps - step) / max(steps - start, 1), 0, 1)  # 1 until wsd decays
            decay = (1 - config.end_factor) * left**config.power + config.end_factor
        if not warm:
            return peak * decay
        if config.warmup == "least":
            return peak * jnp.minimum(decay, step / warm)
        inside = decay * step / warm if config.warmup == "multiply" else step / warm
        return peak * jnp.where(step < warm, inside, decay)

    return rate
