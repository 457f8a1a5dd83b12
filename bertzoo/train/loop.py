"""The training loop: stages of steps, with evaluation, checkpoints and signals in a fixed order."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from bertzoo.train.compilation import memory_errors
from bertzoo.train.hosts import Agreement
from bertzoo.train.job import Job, RunSettings
from bertzoo.train.notice import MaintenanceWatch
from bertzoo.train.recorder import Recorder
from bertzoo.train.signals import StopRequest
from bertzoo.train.stages import locate, start_of, total_steps
from bertzoo.train.state import State
from bertzoo.train.step import Batch, evaluate, make_eval_step, put_batch

__all__ = ["Job", "RunSettings", "run"]


def run(job: Job) -> State:
    """Train from the newest checkpoint, or from the start, to the job's end, and return the final state.

    Raises NonFinite, OutOfMemory, CheckpointError and ConfigError. After SIGTERM, SIGINT, SIGHUP or a maintenance
    notice, saves the state and raises Stopped.
    """
    built, record, measure, agreed = job.experiment, Recorder(job), _evaluation(job), Agreement()
    state, resumed = job.initial_state()
    step = int(state.step)
    if resumed:
        record.event("resumed", step)
    memory = memory_errors(lambda: record.stage, job.memory_advice)
    with StopRequest() as stop, MaintenanceWatch(stop.request), memory:
        # Evaluate the initial parameters before the first step.
        if job.initial and not resumed and job.heldout and job.config.evaluate_every:
            record.heldout(0, measure(0, 0, state.params))
        while step < job.end and not job.enough(step):
            # Enter a stage with its own optimiser, rows and program; a resumed run enters in the middle of one.
            index, inside = locate(built.stages, step)
            state = job.enter_stage(state, index) if index and not inside else state
            train_step = built.step(index, job.frozen)
            record.enter_stage(index, fresh=not inside)
            for step, row, batch in _steps(job, state):
                if not train_step.is_compiled(batch):
                    record.compiled(step, batch, functools.partial(train_step.compile, state, job.frozen, batch))
                # 1. Dispatch the step: the device computes while the host continues.
                state, report = train_step(state, job.frozen, batch)
                # 2. Read the previous step's metrics, which are ready; a number that is not finite ends the run.
                record.put(step, row, report, batch, state.params)
                evaluates, saves = _due(job, step, start_of(built.stages, index + 1))
                # Read the stop flag once per step, so that every process stops after the same step.
                requested = agreed(stop.name)
                stopping = requested if step < job.end or job.followed else None
                if evaluates or saves or stopping:
                    # 3. Read this step's metrics too: evaluate and save only finite numbers.
                    record.drain()
                    # 4. Evaluate, then save with the held-out loss; after a signal there is no time to evaluate.
                    loss = None
                    if evaluates and (job.measure or not stopping):  # the job's own measure is never skipped
                        loss = record.heldout(step, measure(index, step, state.params))
                    if job.checkpoints and (saves or stopping):
                        job.checkpoints.save(state, loss=loss if job.selects_best(index) else None)
                    record.resume()
                    if not stopping and job.enough(step):
                        break
                # 5. After a signal, report where the run stopped; at the last step it has finished instead.
                if stopping:
                    record.event("stopped", step, signal=stopping)
                    raise job.stopped(step, stopping)
    if job.checkpoints:
        job.checkpoints.wait()
    record.event("finished" if step == total_steps(built.stages) or job.enough(step) else "paused", step)
    return state


def _steps(job: Job, state: State) -> Iterator[tuple[int, int, Batch]]:
    """Yield (step, first row of its batch, batch on the devices) for the remaining steps of the state's stage."""
    index, row, done = int(state.position["stage"]), int(state.position["row"]), int(state.step)
    source = job.batches(index, row)
    for step in range(done + 1, start_of(job.experiment.stages, index + 1) + 1):
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


def _evaluation(job: Job) -> Callable[[int, int, Any], dict[str, float]]:
    """Return a function (stage's index, step, params) -> means over held-out batches, or metrics of `job.measure`."""
    setups = job.experiment.setups  # stages with one objective share one program
    step_of = functools.cache(lambda index: make_eval_step(setups[index].objective))
    first = [[setup.objective for setup in setups].index(setup.objective) for setup in setups]

    def measure(index: int, step: int, params: Any) -> dict[str, float]:
        if job.measure is not None:
            return job.measure(step, params)
        batches = job.heldout(index) if job.heldout else ()
        return evaluate(step_of(first[index]), params, job.frozen, batches, job.experiment.mesh)

    return measure
