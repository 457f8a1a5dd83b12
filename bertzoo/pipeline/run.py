"""Run the steps of a pipeline that are not finished, each as a process of its own."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bertzoo.core.errors import ConfigError, Stopped, UserError
from bertzoo.finetuning.sweep import queue
from bertzoo.pipeline import page
from bertzoo.pipeline.check import Parse, check_steps
from bertzoo.pipeline.recipe import Step
from bertzoo.pipeline.record import PipelineRecord, is_training


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How steps run. environments: variables of each process that fine-tunes or sweeps side by side with others;
    launcher: words that start a step of pretrain, transfer or prune on other machines; tell: receives each line.
    """

    environments: Sequence[dict[str, str]] = ({},)
    launcher: Sequence[str] = ()
    tell: Callable[[str], None] = lambda line: None


def run_pipeline(record: PipelineRecord, steps: Sequence[Step], parse: Parse, execution: Execution) -> int:
    """Run `steps` of a pipeline and write its page; return the number of those that failed.

    Everything is checked first. Raises ConfigError if what a finished step depends on has changed, UserError if a step
    cannot start, Stopped after a signal.
    """
    record.read()
    check_steps(record, [step for step in steps if record.entry(step) is None], parse)  # before the directory exists
    with record.locked():
        waiting = [step for step in steps if record.entry(step) is None]
        _check_finished(record)
        _check_order(record, waiting)
        done = len(steps) - len(waiting)
        execution.tell(f"{len(steps)} steps, {done} already finished")
        record.write()
        try:
            for group in _groups(waiting):
                _run_group(record, [step for step in group if not _waits(record, step)], execution, steps)
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped with {sum(record.entry(step) is not None for step in steps)} of {len(steps)} steps finished. "
                "Run the same command again to resume."
            ) from None
        finally:
            page.write_page(record)
    _check_finished(record)  # a step that was made again may have changed what later ones were made of
    return sum(step.name in record.errors for step in steps)


def _check_finished(record: PipelineRecord) -> None:
    """Raise ConfigError if a finished step would now run otherwise or on something else."""
    lines = []
    for step in record.pipeline.steps:
        if record.entry(step) is None or record.unfinished(step):
            continue  # what it reads is made again first, and compared at the end
        lines += [f"{step.name} is finished, but {change}" for change in record.changes(step)]
    if lines:
        raise ConfigError(
            f"{'; '.join(lines)}. Restore that, or remove the outputs of these steps in {record.places.stages} to run "
            "them again."
        )


def _check_order(record: PipelineRecord, steps: Sequence[Step]) -> None:
    """Raise UserError if a step reads one that is neither finished nor about to run."""
    chosen = {step.name for step in steps}
    for step in steps:
        for name in record.unfinished(step):
            if name not in chosen:
                raise UserError(
                    f"{step.name} reads {name}, which is not finished. Run that stage first, or leave out --only and "
                    "--from_stage."
                )


def _waits(record: PipelineRecord, step: Step) -> bool:
    """Whether a step cannot run, as one that it reads has failed; records which."""
    if lacking := record.unfinished(step):
        record.errors[step.name] = f"needs {', '.join(lacking)}"
    return bool(lacking)


def _groups(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Steps that may run side by side: fine-tunings of one stage, or of later ones that read none of these."""
    for _, group in groupby(steps, lambda step: step.stage if step.form.by_task else step.name):
        yield list(group)


def _run_group(record: PipelineRecord, group: Sequence[Step], execution: Execution, steps: Sequence[Step]) -> None:
    """Run steps side by side and record how each ended."""

    def job(step: Step) -> queue.ProcessJob[Step]:
        launcher = execution.launcher if is_training(step) else ()
        output = Path(record.places.output(step)) if step.form.prints else None
        return queue.ProcessJob(
            item=step, arguments=record.words(step), log=record.log(step), output=output, launcher=launcher
        )

    def ended(step: Step, how: queue.ProcessExit) -> None:
        try:
            if how.code == 0:
                record.finish(step, how.seconds)
            else:
                record.errors[step.name] = "stopped" if how.stopped else how.error
        except UserError as error:  # it ended well, but its output is missing or damaged
            record.errors[step.name] = str(error)
        done = sum(record.entry(other) is not None for other in steps)
        execution.tell(f"{done}/{len(steps)} {step.name}: {page.outcome(record, step)} ({how.seconds:,.0f} s)")
        page.write_page(record)

    for step in group:
        execution.tell(f"{step.name}: bertzoo {step.verb}; its output goes to {record.log(step)}")
        if not step.form.resumes:
            _remove(Path(record.places.output(step)))
    side = len(group) > 1 and group[0].form.by_task
    queue.run_processes(map(job, group), execution.environments if side else [{}], ended)
    if any(record.errors.get(step.name) == "stopped" for step in group):
        raise KeyboardInterrupt


def _remove(output: Path) -> None:
    """Remove what a killed step may have left, of a command that does not go on by itself."""
    if output.is_dir():
        shutil.rmtree(output)
    else:
        output.unlink(missing_ok=True)
