"""Stages of a run: steps, batch size, row length, and the state that each stage keeps from the stage before."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from bertzoo.core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """One phase of training with a fixed batch shape.

    With carry = "all", the stage and the stage before it share a schedule (BERT: 90 % of steps at 128 tokens, 10 % at
    512).
    """

    steps: int  # optimiser steps
    batch_size: int  # rows of one step, over all devices and microbatches
    max_length: int  # row length in tokens
    max_predictions: int = 20  # most masked positions per row
    # predicted share of a row's tokens, or [first, last] for a linear change over the stage; "none":
    # data.masking.share, which held-out evaluation always uses
    masking_share: float | tuple[float, ...] | None = None
    learning_rate: float | None = None  # peak of the stage's schedule; "none": the optimiser's
    # microbatches a step is cut into; "none": on CPUs those of about 1,024 tokens (runs/training), elsewhere one
    accumulate: int | None = None
    # state to keep from the stage before, beside the parameters: "moments" keeps the optimiser's moments under a new
    # schedule; "all" also continues the schedule; "params" starts with a fresh optimiser
    carry: Literal["moments", "all", "params"] = "moments"

    def __post_init__(self):
        for name in ("steps", "batch_size", "max_length", "max_predictions", "accumulate"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is less than 1. Use 1 or more.")
        if self.batch_size % self.microbatches:
            raise ConfigError(
                f"batch_size={self.batch_size} is not divisible by accumulate={self.accumulate}. Change one of them."
            )
        if self.max_predictions >= self.max_length:
            raise ConfigError(
                f"max_predictions={self.max_predictions} is not less than max_length={self.max_length}, "
                "so every token of a row would be masked. Lower max_predictions."
            )
        if self.masking_share is not None:
            self._check_masking_share()
        if self.learning_rate is not None and not 0 <= self.learning_rate < float("inf"):
            raise ConfigError(f"learning_rate={self.learning_rate} is negative or not finite. Use 0 or more.")
        if self.steps * self.batch_size >= 2**31:
            raise ConfigError(
                f"steps={self.steps} of batch_size={self.batch_size} exceed the limit of 2^31 rows in a stage. "
                'Split the stage in two, the second with carry="all".'
            )

    def _check_masking_share(self) -> None:
        shares = self.masking_shares or ()
        shown = f"masking_share={list(shares) if isinstance(self.masking_share, tuple) else self.masking_share}"
        if len(shares) != 2 or not all(0 < share < 1 for share in shares):
            raise ConfigError(
                f"{shown} is neither a share between 0 and 1 nor two shares. Use 0.15, for example, or [first, last]."
            )
        needed = round(max(shares) * self.max_length)
        if needed > self.max_predictions:
            largest = f"{shown} predicts up to {needed} of max_length={self.max_length} tokens"
            remedy = "Lower masking_share." if needed >= self.max_length else f"Set max_predictions={needed}."
            raise ConfigError(f"{largest}, more than max_predictions={self.max_predictions}. {remedy}")

    @property
    def microbatches(self) -> int:
        """Return the number of microbatches that a step is cut into, 1 if the config leaves it open."""
        return self.accumulate or 1

    @property
    def masking_shares(self) -> tuple[float, ...] | None:
        """Shares of a row's tokens to predict at the first and at the last step; None selects data.masking.share."""
        if self.masking_share is None or isinstance(self.masking_share, tuple):
            return self.masking_share
        return self.masking_share, self.masking_share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The schedule that one or more stages share.

    start: number of steps before the schedule.
    steps: length of the schedule in steps.
    learning_rate: peak of the schedule; None takes the peak in the optimiser's config.
    """

    start: int
    steps: int
    learning_rate: float | None


def validate(stages: Sequence[Stage], where: Callable[[int], str] = "stages.{}".format) -> None:
    """Raise ConfigError if the stages contradict one another; the error names a stage by `where(index)`."""
    if not stages:
        raise ConfigError("stages is empty. Add at least one [[stages]] with steps, batch_size and max_length.")
    if stages[0].carry == "all":
        raise ConfigError(f'{where(0)}.carry="all" has no stage before it to carry from. Remove it.')
    for i, stage in enumerate(stages):
        peak = schedule_group(stages, i).learning_rate
        if stage.carry == "all" and stage.learning_rate not in (None, peak):
            raise ConfigError(
                f'{where(i)}.carry="all" continues the schedule of the previous stage, whose peak is '
                f"{peak or 'optimizer.learning_rate'}, not learning_rate={stage.learning_rate}. Remove carry or "
                "learning_rate."
            )


def total_steps(stages: Sequence[Stage]) -> int:
    """Return the number of steps of all stages."""
    return sum(stage.steps for stage in stages)


def start_of(stages: Sequence[Stage], index: int) -> int:
    """Return the number of steps done when stage `index` starts."""
    return total_steps(stages[:index])


def locate(stages: Sequence[Stage], step: int) -> tuple[int, int]:
    """Return (index of the stage that does the next step, steps done inside it) after `step` steps.

    After the last step, returns (len(stages), 0). Raises ConfigError if the run has fewer steps.
    """
    left = step
    for index, stage in enumerate(stages):
        if left < stage.steps:
            return index, left
        left -= stage.steps
    if left:
        raise ConfigError(f"step {step} is beyond the {total_steps(stages)} steps of the stages. Use an earlier step.")
    return len(stages), 0


def stage_of(stages: Sequence[Stage], step: int) -> int:
    """Return the index of the stage that contains step number `step`; the run's first step has number 1.

    Raises the errors of `locate`.
    """
    index, inside = locate(stages, step)
    return index if inside else index - 1


def schedule_group(stages: Sequence[Stage], index: int) -> Group:
    """Return the schedule of stage `index`: stages joined by carry="all" share a schedule."""
    first = index
    while stages[first].carry == "all":
        first -= 1
    last = index + 1
    while last < len(stages) and stages[last].carry == "all":
        last += 1
    start = start_of(stages, first)
    return Group(start=start, steps=start_of(stages, last) - start, learning_rate=stages[first].learning_rate)
