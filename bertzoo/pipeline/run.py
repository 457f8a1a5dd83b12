"""Run the unfinished steps of a pipeline, each in its own process."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bertzoo.core.errors import ConfigError, Stopped, UserError
from bertzoo.finetuning.sweep import queue
from bertzoo.pipeline import page
from bertzoo.pipeline.check import Parse, check_steps
from bertzoo.pipeline.recipe import Step
from bertzoo.pipeline.record import PipelineRecord

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Settings for running steps.

    environments: sets of environment variables. Fine-tuning and sweep steps run side by side, each with its own set.
    launcher: words that start a step of pretrain, transfer or prune on other machines.
    """

    environments: Sequence[dict[str, str]] = ({},)
    launcher: Sequence[str] = ()


def run_pipeline(record: PipelineRecord, steps: Sequence[Step], parse: Parse, execution: Execution) -> int:
    """Run the unfinished steps among `steps` and write pipeline.md; return the number of steps that failed.

    All steps are checked first. Raises ConfigError if a finished step's command, config, inputs or output have changed.
    Raises UserError if a step cannot start, and Stopped after a signal.
    """
    record.read()
    check_steps(record, [step for step in steps if record.entry(step) is None], parse)  # before the directory exists
    with record.locked():
        _forget_summaries(record, steps)
        waiting = [step for step in steps if record.entry(step) is None]
        _check_finished(record)
        _check_order(record, waiting)
        done = len(steps) - len(waiting)
        _LOG.info(f"{len(steps)} steps, {done} already finished")
        record.write()
        try:
            for _ in range(2):  # the second time, summaries of what the first has made anew
                for group in _groups(waiting):
                    _run_group(record, [step for step in group if not _waits(record, step)], execution, steps)
                _forget_summaries(record, steps)
                waiting = [step for step in steps if record.entry(step) is None and step.name not in record.errors]
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped with {sum(record.entry(step) is not None for step in steps)} of {len(steps)} steps finished. "
                "Run the same command again to resume."
            ) from None
        finally:
            page.write_page(record)
    _check_finished(record)  # a step that ran again may have changed what a finished step had read
    return sum(step.name in record.errors for step in steps)


def _check_finished(record: PipelineRecord) -> None:
    """Raise ConfigError if the command, config, inputs or output of a finished step have changed."""
    lines = []
    for step in record.pipeline.steps:
        if step.form.is_summary or record.entry(step) is None or record.unfinished(step):
            continue  # a summary is made again, and a step that is read runs again first; the end of the run compares
        lines += [f"{step.name} is finished, but {change}" for change in record.changes(step)]
    if lines:
        raise ConfigError(
            f"{'; '.join(lines)}. Undo these changes, or remove the outputs of these steps in {record.places.stages} "
            "to run them again."
        )


def _check_order(record: PipelineRecord, steps: Sequence[Step]) -> None:
    """Raise UserError if a step reads the output of a step that is neither finished nor in `steps`."""
    chosen = {step.name for step in steps}
    for step in steps:
        for name in record.unfinished(step):
            if name not in chosen:
                raise UserError(
                    f"{step.name} reads {name}, which is not finished. Run the stage of {name} first, or leave out "
                    "--only and --from_stage."
                )


def _forget_summaries(record: PipelineRecord, steps: Sequence[Step]) -> None:
    """Remove reports and submissions whose inputs have changed; their steps then run again."""
    for step in steps:
        finished = step.form.is_summary and record.entry(step) is not None and not record.unfinished(step)
        if finished and record.changes(step):
            _remove(record, step)


def _waits(record: PipelineRecord, step: Step) -> bool:
    """Return whether a step reads an unfinished or outdated step; if so, record the reason in `record.errors`."""
    reasons = [f"needs {name}" for name in record.unfinished(step)]
    if not reasons:
        reasons = [why for name in record.pipeline.needs(step) if (why := record.outdated(record.pipeline.step(name)))]
    if reasons:
        record.errors[step.name] = "; ".join(reasons)
    return bool(reasons)


def _groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield groups of steps that may run side by side: all steps of a fine-tuning or sweep stage, or one step."""
    for _, group in groupby(steps, lambda step: step.stage if step.form.by_task else step.name):
        yield list(group)


def _run_group(record: PipelineRecord, group: Sequence[Step], execution: Execution, steps: Sequence[Step]) -> None:
    """Run the steps of `group` side by side and record how each ended. steps: all steps, for progress lines."""

    def job(step: Step) -> queue.ProcessJob[Step]:
        launcher = execution.launcher if step.is_training else ()
        output = Path(record.places.output(step)) if step.form.prints else None
        return queue.ProcessJob(
            item=step, arguments=record.words(step), log=record.log(step), output=output, launcher=launcher
        )

    def ended(step: Step, how: queue.ProcessExit) -> None:
        try:
            if how.code == 0:
                record.finish(step, facts[step.name], how.seconds)
            else:
                record.errors[step.name] = "stopped" if how.stopped else how.error
        except UserError as error:  # it ended well, but its output is missing or damaged
            record.errors[step.name] = str(error)
        done = sum(record.entry(other) is not None for other in steps)
        _LOG.info(f"{done}/{len(steps)} {step.name}: {page.outcome(record, step)} ({how.seconds:,.0f} s)")
        page.write_page(record)

    facts = {step.name: record.begin(step) for step in group}
    for step in group:
        _LOG.info(f"{step.name}: bertzoo {step.verb}; its output goes to {record.log(step)}")
        if not step.form.resumes:
            _remove(record, step)
    side = len(group) > 1 and group[0].form.by_task
    queue.run_processes(map(job, group), execution.environments if side else [{}], ended)
    if any(record.errors.get(step.name) == "stopped" for step in group):
        raise KeyboardInterrupt


def _remove(record: PipelineRecord, step: Step) -> None:
    """Remove a step's output, which may be partial if the step was killed."""
    for path in map(Path, record.files(step)):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
