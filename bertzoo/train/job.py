"""A training job: everything the loop needs, given by the caller, and what is built from it."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertzoo.core.errors import CheckpointError, ConfigError, NonFinite, Stopped
from bertzoo.train import optim, sharding
from bertzoo.train import stages as staging
from bertzoo.train import state as states
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.progress import Reporter
from bertzoo.train.stage_setup import StageSetup
from bertzoo.train.stages import Stage
from bertzoo.train.state import State
from bertzoo.train.step import Batch, HostBatch, make_train_step

SHOWN_RECORDS = 4  # of a batch, in a sentence for a person


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How often a run logs, evaluates and saves, in steps, and how many checkpoints it keeps.

    It also evaluates and saves at the end of every stage. 0 switches evaluation off, and saving but for those ends.
    """

    log_every: int = 10
    evaluate_every: int = 500
    evaluate_rows: int = 1024  # of the held-out part
    save_every: int = 500
    keep_last: int = 3
    keep_best: int = 1  # of the lowest held-out loss

    def __post_init__(self):
        for name in ("log_every", "evaluate_rows", "keep_last"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is less than 1")
        for name in ("evaluate_every", "save_every", "keep_best"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)} is negative; 0 switches it off")
        small, large = sorted((self.evaluate_every, self.save_every))
        if self.keep_best and small and large % small:
            raise ConfigError(
                f"keep_best={self.keep_best} compares the held-out losses of checkpoints, but evaluate_every="
                f"{self.evaluate_every} and save_every={self.save_every} seldom meet; make one a multiple of the other"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """What to train, on what, and where to tell it.

    setups: one for each stage; frozen: what their objectives read and nothing changes or saves, such as a teacher;
    until: the step after which to stop although there are more, None for none;
    batches(stage, row): this process's part of the stage's batches, to its end, from the one that begins with `row`;
    heldout(stage): the batches to evaluate on, this process's part too;
    length(batch): tokens in a row of a batch, where it may be fewer than the stage's max_length;
    flops_per_example(stage, batch): model operations of one row of a batch, forward and backward;
    describe(stage, row, rows): in words, each record of the batch that begins with `row`;
    initial: by path, the parameters that a run without a checkpoint begins with; the others are drawn from the seed;
    measure(step, params): figures that take the place of the held-out batches' means; they have a `loss`
    too, and are taken at every epoch's end, whatever else happens there;
    enough(step): whether to end after a step, before the last;
    followed: whether other runs come after this one, so that a signal at its last step stops the whole all the same;
    programs: the compiled steps of stages, for jobs to share that differ in nothing but seed and batches.
    Raises ConfigError when the stages contradict one another or a batch does not divide over the mesh.
    """

    setups: Sequence[StageSetup]
    stages: Sequence[Stage]
    config: RunSettings
    mesh: jax.sharding.Mesh
    seed: int
    batches: Callable[[int, int], Iterator[HostBatch]]
    heldout: Callable[[int], Iterable[HostBatch]] | None = None
    checkpoints: Checkpoints | None = None
    reporters: Sequence[Reporter] = ()
    length: Callable[[Batch], int] | None = None
    flops_per_example: Callable[[int, Batch], float] | None = None
    frozen: Any = None
    describe: Callable[[int, int, int], list[str]] | None = None
    initial: Mapping[str, np.ndarray] | None = None
    fallbacks: sharding.Fallbacks = sharding.NO_FALLBACKS
    until: int | None = None
    measure: Callable[[int, Any], dict[str, float]] | None = None
    enough: Callable[[int], bool] = lambda step: False
    followed: bool = False
    programs: dict[int, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        staging.validate(self.stages)
        if len(self.setups) != len(self.stages):
            raise ValueError(f"there are {len(self.setups)} setups for {len(self.stages)} stages")
        for stage in self.stages:
            sharding.check_rows(stage.batch_size, stage.accumulate, self.mesh)

    @property
    def evaluates(self) -> bool:
        """Whether there is anything to evaluate on."""
        return self.heldout is not None or self.measure is not None

    @property
    def end(self) -> int:
        """The step after which the run ends, or stops for now."""
        total = staging.total_steps(self.stages)
        return total if self.until is None else min(self.until, total)

    def transformation(self, index: int) -> optax.GradientTransformation:
        """The optimiser of a stage, its schedule spanning the stages that share it."""
        group = staging.schedule_group(self.stages, index)
        return self.setups[index].transformation(group.steps, group.learning_rate)

    def learning_rate(self, index: int) -> Callable[[int], jax.Array]:
        """The function steps done in the run -> learning rate of the update that came last, in a stage."""
        group = staging.schedule_group(self.stages, index)
        rate = optim.schedule_of(self.setups[index].optimizer, group.steps, group.learning_rate)
        return lambda done: rate(done - 1 - group.start)

    def abstract(self, index: int) -> State:
        """Shapes and shardings of the state in a stage; the moments are those of what it trains."""
        objective = self.setups[index].objective
        return states.abstract(objective, self.transformation(index), self.mesh, self.fallbacks)

    def train_step(self, index: int) -> Callable[[State, Any, Batch], tuple[State, dict[str, Any]]]:
        """The compiled step of a stage."""
        if index not in self.programs:
            places = states.shardings_of(self.abstract(index))
            accumulate, objective = self.stages[index].accumulate, self.setups[index].trained
            self.programs[index] = make_train_step(
                objective,
                self.transformation(index),
                accumulate=accumulate,
                shardings=places,
                frozen_shardings=states.shardings_of(self.frozen),
            )
        return self.programs[index]

    def begin(self) -> tuple[State, bool]:
        """The newest checkpoint's state, or a fresh one, and whether it comes from a checkpoint.

        Raises CheckpointError as `Checkpoints.restore_latest` does, ConfigError when the stages have changed meanwhile.
        """
        restored = self.checkpoints.restore_latest(self._saved_at) if self.checkpoints else None
        if restored is None:
            objective, optimizer = self.setups[0].objective, self.transformation(0)
            return states.fresh(objective, optimizer, self.mesh, self.seed, self.initial, self.fallbacks), False
        step, stage = int(restored.step), int(restored.position["stage"])
        if stage != (now := staging.stage_of(self.stages, step)):
            raise ConfigError(
                f"the checkpoint of step {step} was made in stage {stage}, but the config now puts that step in stage "
                f"{now}; give back the stages the run was begun with, or begin another run"
            )
        return restored, True

    def _saved_at(self, step: int) -> State:
        return self.abstract(staging.stage_of(self.stages, step))

    def enter(self, state: State, index: int) -> State:
        """The state with which a stage after the first begins: the optimiser as its `carry` says, and its first row."""
        places = states.shardings_of(self.abstract(index))
        init = jax.jit(self.transformation(index).init, out_shardings=places.opt_state)
        opt_state = optim.carry(state.opt_state, init(state.params), self.stages[index].carry)
        start = {"stage": jnp.int32(index), "row": jnp.int32(0)}
        position = jax.jit(lambda: start, out_shardings=places.position)()
        return dataclasses.replace(state, opt_state=opt_state, position=position)

    def comparable(self, index: int) -> bool:
        """Whether a stage's held-out loss is the one that the best checkpoints are kept by: the last stage's."""
        return self.setups[index].objective == self.setups[-1].objective

    def last_checkpoint(self) -> str:
        """In words, the last good checkpoint."""
        if self.checkpoints is None:
            return "no checkpoints are kept"
        try:
            self.checkpoints.wait()
        except CheckpointError as error:
            return str(error)
        latest = self.checkpoints.latest()
        return f"the last good checkpoint is {latest}" if latest else "there is no checkpoint yet"

    def records(self, step: int, row: int) -> list[str]:
        """In words, the records of the batch of `step`, which begins with `row`."""
        index, _ = staging.locate(self.stages, step - 1)
        rows = self.stages[index].batch_size
        return self.describe(index, row, rows) if self.describe else [f"rows {row} to {row + rows - 1}"]

    def non_finite(self, step: int, records: Sequence[str]) -> NonFinite:
        """The end of a run whose step, on the batch of these records, gave numbers that are not finite."""
        index, _ = staging.locate(self.stages, step - 1)
        more = len(records) - SHOWN_RECORDS
        rest = f"; {more:,} more rows, named in metrics.jsonl" if more > 0 else ""
        return NonFinite(
            f"the loss, gradient or update of step {step} is not finite (stage {index}, "
            f"{'; '.join(records[:SHOWN_RECORDS])}{rest}); {self.last_checkpoint()}"
        )

    def non_finite_heldout(self, step: int) -> NonFinite:
        """The end of a run whose held-out loss after `step` is not finite."""
        return NonFinite(f"the held-out loss after step {step} is not finite; {self.last_checkpoint()}")

    def stopped(self, step: int, signal: str) -> Stopped:
        """The end of a run that a signal stopped after `step`; raises CheckpointError when the save failed."""
        if self.checkpoints is None:
            return Stopped(f"stopped by {signal} after step {step}; nothing was saved, as no checkpoints are kept")
        self.checkpoints.wait()
        return Stopped(
            f"stopped by {signal} after step {step}, saved as {self.checkpoints.latest()}; "
            "run the same command again to resume"
        )
