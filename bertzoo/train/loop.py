"""The one loop: stages of steps, with evaluation, checkpoints and signals in a fixed order."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from bertzoo.train.hosts import Agreement
from bertzoo.train.job import Job, RunSettings
from bertzoo.train.notice import Watch
from bertzoo.train.recorder import Recorder
from bertzoo.train.signals import StopRequest
from bertzoo.train.stages import locate, start_of, total_steps
from bertzoo.train.state import State
from bertzoo.train.step import Batch, evaluate, make_eval_step, put_batch

__all__ = ["Job", "RunSettings", "run"]


def run(job: Job) -> State:
    """Train from the newest checkpoint, or from the beginning, to the job's end.

    Raises NonFinite; Stopped after a SIGTERM, SIGINT, SIGHUP or a maintenance notice, once the state is saved;
    CheckpointError; ConfigError.
    """
    record, measure, agreed = Recorder(job), _evaluation(job), Agreement()
    state, resumed = job.begin()
    step = int(state.step)
    if resumed:
        record.event("resumed", step)
    with StopRequest() as stop, Watch(stop.ask):
        # What a run was given is measured before anything is learnt.
        if job.initial and not resumed and job.heldout and job.config.evaluate_every:
            record.heldout(0, measure(0, 0, state.params))
        while step < job.end and not job.enough(step):
            # A stage begins, with its optimiser, its rows and its program; a resumed one begins in its middle.
            index, inside = locate(job.stages, step)
            state = job.enter(state, index) if index and not inside else state
            train_step = job.train_step(index)
            record.begin(index, fresh=not inside)
            for step, row, batch in _steps(job, state):
                # 1. Dispatch the step: the device works on it while the host goes on.
                state, report = train_step(state, job.frozen, batch)
                # 2. Read the metrics of the step before, done by now; a number that is not finite ends the run.
                record.put(step, row, report, batch, state.params)
                evaluates, saves = _due(job, step, start_of(job.stages, index + 1))
                # A signal is looked at once a step, so that what is said below is what was done; all processes stop
                # after the same step, whichever of them was told to.
                asked = agreed(stop.name)
                stopping = asked if step < job.end or job.followed else None
                if evaluates or saves or stopping:
                    # 3. Read this step's metrics too: nothing is evaluated or saved before it is known to be finite.
                    record.drain()
                    # 4. Evaluate, then save, so that the checkpoint knows its held-out loss; a signal leaves no time.
                    loss = None
                    if evaluates and (job.measure or not stopping):  # what the job measures itself is never left out
                        loss = record.heldout(step, measure(index, step, state.params))
                    if job.checkpoints and (saves or stopping):
                        job.checkpoints.save(state, loss=loss if job.comparable(index) else None)
                    record.resume()
                    if not stopping and job.enough(step):
                        break
                # 5. After a signal, say where the run stopped; at the last step it has finished instead.
                if stopping:
                    record.event("stopped", step, signal=stopping)
                    raise job.stopped(step, stopping)
    if job.checkpoints:
        job.checkpoints.wait()
    record.event("finished" if step == total_steps(job.stages) or job.enough(step) else "paused", step)
    return state


def _steps(job: Job, state: State) -> Iterator[tuple[int, int, Batch]]:
    """(step, its first row, its batch on the devices) for the steps that remain in the state's stage."""
    index, row, done = int(state.position["stage"]), int(state.position["row"]), int(state.step)
    source = job.batches(index, row)
    for step in range(done + 1, start_of(job.stages, index + 1) + 1):
        batch = next(source, None)
        if batch is None:
            raise RuntimeError(f"the batches of stage {index} came to an end before step {step}")
        yield step, row, put_batch(batch, job.mesh)
        row += job.stages[index].batch_size


def _due(job: Job, step: int, stage_end: int) -> tuple[bool, bool]:
    """Whether to evaluate and whether to save after `step`: at their intervals and at the end of the stage."""
    config = job.config
    evaluates = config.evaluate_every and (step == stage_end or step % config.evaluate_every == 0)
    saves = step == stage_end or (config.save_every and step % config.save_every == 0)
    return bool(evaluates and job.evaluates), bool(saves)


def _evaluation(job: Job) -> Callable[[int, int, Any], dict[str, float]]:
    """The function (stage, step, params) -> means over the held-out batches, or what the job measures instead."""
    # One program serves all stages of one objective.
    step_of = functools.cache(lambda index: make_eval_step(job.setups[index].objective))
    first = [[setup.objective for setup in job.setups].index(setup.objective) for setup in job.setups]

    def measure(index: int, step: int, params: Any) -> dict[str, float]:
        if job.measure is not None:
            return job.measure(step, params)
        batches = job.heldout(index) if job.heldout else ()
        return evaluate(step_of(first[index]), params, job.frozen, batches, job.mesh)

    return measure
