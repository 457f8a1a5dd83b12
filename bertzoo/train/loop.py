"""The training loop: stages of steps, with evaluation, checkpoints and signals in a fixed order."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import CheckpointError, ConfigError, NonFinite, Stopped
from bertzoo.train import optim
from bertzoo.train import state as states
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.experiment import Experiment, locate, stage_of, start_of, total_steps
from bertzoo.train.hosts import Agreement
from bertzoo.train.memory import Advice, memory_errors
from bertzoo.train.progress import Recorder, Reporter
from bertzoo.train.signals import StopRequest
from bertzoo.train.state import State
from bertzoo.train.step import Batch, HostBatch, evaluate, put_batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Intervals, in steps, at which a run logs, evaluates and saves, and the number of checkpoints that it keeps.

    A run also saves and, unless evaluate_every = 0, evaluates at the end of every stage.
    """

    log_every: int = 10  # steps between two log lines
    evaluate_every: int = 500  # steps between two evaluations on the held-out split; 0: never evaluate
    evaluate_rows: int = 1024  # rows of the held-out split that an evaluation reads
    save_every: int = 500  # steps between two checkpoints; 0: only at the end of a stage
    keep_last: int = 3  # newest checkpoints to keep
    keep_best: int = 1  # checkpoints with the lowest held-out loss to keep as well
    # first step of a trace by jax.profiler, in the folder profile; in a pruning, of each of its trainings; 0: no trace
    profile_start: int = 0
    profile_steps: int = 0  # steps that the trace holds
    # keep compiled programs in the run directory, where all processes and later runs of the command read them; "none":
    # on TPUs and GPUs. "false": in the user's cache folder, if the run has one process
    keep_programs: bool | None = None
    trackers: tuple[Literal["wandb", "mlflow", "trackio"], ...] = ()  # experiment trackers that get the metrics too

    def __post_init__(self):
        check_range(self, "log_every", "evaluate_rows", "keep_last", least=1, advice="Use 1 or more.")
        optional = ("evaluate_every", "save_every", "keep_best", "profile_start", "profile_steps")
        check_range(self, *optional, least=0, advice="Use 0 to disable it.")
        if bool(self.profile_start) != bool(self.profile_steps):
            raise ConfigError(
                f"profile_start={self.profile_start} and profile_steps={self.profile_steps} trace nothing. Set both, "
                "for example to 100 and 5, or neither."
            )
        small, large = sorted((self.evaluate_every, self.save_every))
        if self.keep_best and small and large % small:
            raise ConfigError(
                f"keep_best={self.keep_best} compares the held-out losses of checkpoints, but evaluate_every="
                f"{self.evaluate_every} and save_every={self.save_every} seldom coincide. Make one a multiple of the "
                "other, or set keep_best=0."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """The inputs of the training loop: losses, optimisers, data, devices, reporters and checkpoints."""

    experiment: Experiment
    config: RunSettings
    seed: int
    # (stage, row) -> this process's rows of the stage's batches, from the batch that starts at `row`
    batches: Callable[[int, int], Iterator[HostBatch]]
    heldout: Callable[[int], Iterable[HostBatch]] | None = None  # stage -> this process's rows of the held-out batches
    checkpoints: Checkpoints | None = None
    reporters: Sequence[Reporter] = ()
    length: Callable[[Batch], int] | None = None  # row length of a batch, if it may be less than the stage's max_length
    # (stage, batch) -> a row's FLOPs, forward and backward
    flops_per_example: Callable[[int, Batch], float] | None = None
    frozen: Any = None  # parameters that objectives read but training neither changes nor saves, such as a teacher's
    initial: Mapping[str, np.ndarray] | None = None  # parameters by path of a fresh run; the others are drawn
    # (step, params) -> metrics of every evaluation, including `loss`, instead of the held-out means
    measure: Callable[[int, Any], dict[str, float]] | None = None
    enough: Callable[[int], bool] = lambda step: False  # whether to finish early, after this step
    followed: bool = False  # whether another run follows in this program; if so, a signal at the last step stops it
    profile: Path | None = None  # directory for a trace of the steps in `config`
    memory_advice: Advice = lambda stage, share: "Use a smaller batch."

    def initial_state(self) -> tuple[State, bool]:
        """Return the newest checkpoint's state or a fresh one, and whether it comes from a checkpoint.

        Raises the errors of `Checkpoints.restore_latest`. Raises ConfigError if the checkpoint's step was saved in one
        stage, but belongs to another in the present config.
        """
        built, restored = self.experiment, None
        if self.checkpoints:
            restored = self.checkpoints.restore_latest(lambda step: built.state(stage_of(built.stages, step)))
        if restored is None:
            objective, optimizer = built.setups[0].objective, built.transformation(0)
            return states.fresh(objective, optimizer, built.mesh, self.seed, self.initial), False
        step, stage = int(restored.step), int(restored.position["stage"])
        if stage != (configured := stage_of(built.stages, step)):
            raise ConfigError(
                f"the checkpoint of step {step} was saved in stage {stage}, but the config now has that step in stage "
                f"{configured}. Restore the stages that the run started with, or start another run."
            )
        return restored, True

    def enter_stage(self, state: State, index: int) -> State:
        """Return `state` moved to the first row of stage `index`, with the optimiser state that `Stage.carry` keeps."""
        built, shardings = self.experiment, states.shardings_of(self.experiment.state(index))
        init = jax.jit(built.transformation(index).init, out_shardings=shardings.opt_state)
        opt_state = optim.carry(state.opt_state, init(state.params), built.stages[index].carry)
        start = {"stage": jnp.int32(index), "row": jnp.int32(0)}
        position = jax.jit(lambda: start, out_shardings=shardings.position)()
        return dataclasses.replace(state, opt_state=opt_state, position=position)

    def compute_metrics(self, index: int, step: int, params: Any) -> dict[str, float]:
        if self.measure is not None:
            return self.measure(step, params)
        batches = self.heldout(index) if self.heldout else ()
        eval_step = self.experiment.step(index).eval_step
        return evaluate(eval_step, params, self.frozen, batches, self.experiment.mesh)

    def non_finite(self, problem: str) -> NonFinite:
        """Build the error for a number that is not finite; `problem` names it and its step."""
        if self.checkpoints is None:
            last = "This run keeps no checkpoints."
        else:
            try:
                self.checkpoints.wait()
                latest = self.checkpoints.latest()
                last = f"The last good checkpoint is {latest}." if latest else "There is no checkpoint yet."
            except CheckpointError as error:
                last = str(error)
        return NonFinite(f"{problem}. {last} Lower the learning rate or warm up longer.")

    def stopped(self, step: int, signal: str) -> Stopped:
        """Build the error for a run that a signal stopped after `step`; raises CheckpointError if the save failed."""
        if self.checkpoints is None:
            return Stopped(
                f"stopped by {signal} after step {step}. Nothing was saved, because this run keeps no checkpoints."
            )
        self.checkpoints.wait()
        return Stopped(
            f"stopped by {signal} after step {step}, saved as {self.checkpoints.latest()}. Run the same command "
            "again to resume."
        )


def run(job: Job) -> State:
    """Train from the newest checkpoint, or from the start, to the job's end, and return the final state.

    Raises NonFinite, OutOfMemory, CheckpointError and ConfigError. After SIGTERM, SIGINT or SIGHUP, saves the state and
    raises Stopped.
    """
    built, record, agreed = job.experiment, Recorder(job), Agreement()
    with record.spend("restoring"):
        state, resumed = job.initial_state()
    step, end = int(state.step), total_steps(built.stages)
    if resumed:
        record.event("resumed", step)
    memory = memory_errors(lambda: record.stage, job.memory_advice)
    first, count = job.config.profile_start, job.config.profile_steps
    traced = range(max(first, step + 1), first + count) if job.profile else range(0)
    with StopRequest() as stop, memory, contextlib.ExitStack() as trace:
        # Evaluate the initial parameters before the first step.
        if job.initial and not resumed and job.heldout and job.config.evaluate_every:
            record.heldout(0, job.compute_metrics(0, 0, state.params))
        while step < end and not job.enough(step):
            # Enter a stage, which has its optimiser, rows and program; a resumed run may enter in the middle of it.
            index, inside = locate(built.stages, step)
            state = job.enter_stage(state, index) if index and not inside else state
            train_step = built.step(index)
            record.enter_stage(index, fresh=not inside)
            for step, row, batch in record.count_waiting(_steps(job, state)):
                if not train_step.is_compiled(batch):
                    record.compiled(step, batch, functools.partial(train_step.compile, state, job.frozen, batch))
                if step in traced[:1]:
                    jax.block_until_ready(state)  # so that the trace holds no step before the first
                    options = jax.profiler.ProfileOptions()
                    options.python_tracer_level = 0  # every Python call would slow the host and fill the trace
                    jax.profiler.start_trace(str(job.profile), profiler_options=options)
                    trace.callback(jax.profiler.stop_trace)
                # 1. Dispatch the step: the device computes while the host continues.
                with jax.profiler.StepTraceAnnotation("train", step_num=step):
                    state, report = train_step(state, job.frozen, batch)
                # 2. Read the previous step's metrics, which are ready; a number that is not finite ends the run.
                record.put(step, row, report, batch)
                if step in traced[-1:]:
                    record.drain()
                    with record.spend("saving"):
                        trace.close()
                    record.event("profiled", step)
                evaluates, saves = _due(job, step, start_of(built.stages, index + 1))
                # Read the stop flag once per step, so that every process stops after the same step.
                requested = agreed(stop.name)
                stopping = requested if step < end or job.followed else None
                if evaluates or saves or stopping:
                    # 3. Read this step's metrics too: evaluate and save only finite numbers.
                    record.drain()
                    # 4. Evaluate, then save with the held-out loss; after a signal there is no time to evaluate.
                    loss = None
                    if evaluates and (job.measure or not stopping):  # the job's own measure is never skipped
                        with record.spend("evaluating"):
                            loss = record.heldout(step, job.compute_metrics(index, step, state.params))
                    if job.checkpoints and (saves or stopping):
                        with record.spend("saving"):
                            # Only losses of the last stage's objective may select the best checkpoints.
                            comparable = built.setups[index].objective == built.setups[-1].objective
                            job.checkpoints.save(state, loss=loss if comparable else None)
                    if not stopping and job.enough(step):
                        break
                # 5. After a signal, report where the run stopped; at the last step it has finished instead.
                if stopping:
                    record.event("stopped", step, signal=stopping)
                    raise job.stopped(step, stopping)
        if job.checkpoints:
            job.checkpoints.wait()
        # A signal may have come since the flag was read. The first call returns the request of the last step.
        if job.followed and (late := agreed(stop.name) or agreed(stop.name)):
            record.event("stopped", step, signal=late)
            raise job.stopped(step, late)
    record.event("finished", step)
    return state


def _steps(job: Job, state: State) -> Iterator[tuple[int, int, Batch]]:
    """Yield (step, first row of its batch, batch on the devices) for the remaining steps of the state's stage."""
    index, row, finished = int(state.position["stage"]), int(state.position["row"]), int(state.step)
    source = job.batches(index, row)
    for step in range(finished + 1, start_of(job.experiment.stages, index + 1) + 1):
        batch = next(source, None)
        if batch is None:
            raise RuntimeError(f"the batches of stage {index} end before step {step}. Yield one for every step.")
        yield step, row, put_batch(batch, job.experiment.mesh)
        row += job.experiment.stages[index].batch_size


def _due(job: Job, step: int, stage_end: int) -> tuple[bool, bool]:
    """Return (whether to evaluate, whether to save) after `step`: at the intervals and at the end of the stage."""
    config = job.config
    evaluates = config.evaluate_every and (step == stage_end or step % config.evaluate_every == 0)
    saves = step == stage_end or (config.save_every and step % config.save_every == 0)
    return bool(evaluates and (job.heldout or job.measure)), bool(saves)
