"""Teach a student with a teacher, layer by layer or all at once, then distil; run the same command again to resume.

The config has the teacher's model as [teacher], the student's as [model], the strategy as [transfer] (progressive,
joint, auxiliary or nothing), what passes between them as [knowledge] and the stages after it as [[distillation]].
--teacher is a run, one of its checkpoints, a model directory, a Hugging Face directory or a TensorFlow 1 checkpoint. It
is not in the student's checkpoints: a resumed run reads it again, and refuses another.

examples:
  bertzoo transfer demo_transfer --teacher=runs/demo_teacher --run_dir=runs/demo_student
  bertzoo transfer mobilebert_transfer --teacher=runs/ib_bert_large --data.source='text/*.txt.xz' --run_dir=runs/student
  bertzoo transfer mobilebert_transfer --teacher=runs/ib_bert_large --run_dir=runs/trial --stages=1-3 --transfer.steps=9
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support import training as runs
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.runs.transfer_config import Transfer


def config() -> type:
    """The class of the config."""
    from bertzoo.runs.transfer_config import Transfer

    return Transfer


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    runs.arguments(parser)
    parser.add_argument(
        "--teacher",
        type=runs.model_flag("--teacher"),
        metavar="MODEL",
        help="the teacher; a run that is resumed knows where it was",
    )
    parser.add_argument(
        "--stages",
        type=_range,
        metavar="A-B",
        help="only the stages from A to B, counted from 1; the same command with others goes on from there",
    )


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)-(\d+)", text)
    if found and 1 <= int(found[1]) <= int(found[2]):
        return int(found[1]), int(found[2])
    raise UserError(f"--stages={text} is not a range of stages such as 1-3")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Teach to the end, as one process or as one of several."""
    return runs.main(args, overrides, config(), train)


def train(args: argparse.Namespace, recipe: "Transfer") -> str:
    """Teach to the end and return what there is to say; what one process can do for all, the first does."""
    from bertzoo.runs import job, teacher
    from bertzoo.runs.any_model import check
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.train import hosts

    tell, run = runs.telling(), RunDirectory(args.run_dir)
    path, record = hosts.share("the teacher", lambda: _teacher(args.teacher, run))
    runs.check_apart(Path(path), run, "--teacher", "give the student a directory of its own")
    check(Path(path))
    until = hosts.share("the stages", lambda: _until(args.stages, recipe, run))
    with run.shared():
        mesh = runs.checked(recipe, run, tell)
        taught = teacher.read(Path(path), recipe, mesh)
        if record and record["parameters_sha256"] != taught.record["parameters_sha256"]:
            raise UserError(
                f"the parameters in {path} are not those that this run's teacher had in {record['path']}; give that "
                "teacher again, or choose another --run_dir"
            )
        runs.same_everywhere(taught.record, "the teacher's parameters", Path(path))
        if not record:
            for line in taught.said:
                tell(line)
        feed = runs.feed(args, recipe, run, taught.tokenizer, tell)
        step = job.train(recipe, feed, run, mesh, taught, until)
    if until is not None and step < sum(stage.steps for stage in recipe.stages):
        last, count = args.stages[1], len(recipe.stages)
        return f"stopped after stage {last} of {count}, at step {step}; the same command with later --stages goes on"
    return runs.finished(step, args.run_dir)


def _teacher(given: Path | None, run: "RunDirectory") -> tuple[str, dict | None]:
    """Where the teacher is, and what is recorded of it; of a run without a checkpoint nothing counts."""
    record = None
    if run.latest() is not None:
        run.fetch()
        record = run.origin("teacher")
    if given is None and record is None:
        raise UserError("--teacher is missing; name the model that teaches")
    return str(given) if given is not None else record["path"], record  # pyright: ignore[reportOptionalSubscript]


def _until(asked: tuple[int, int] | None, recipe: "Transfer", run: "RunDirectory") -> int | None:
    """The step to stop after; raises UserError where the run does not stand at one of the stages asked for."""
    from bertzoo.train.stages import locate, start_of

    if asked is None:
        return None
    first, last = asked
    if last > len(recipe.stages):
        raise UserError(f"--stages={first}-{last}: there are only {len(recipe.stages)} stages")
    stands = locate(recipe.stages, run.latest() or 0)[0] + 1
    if not first <= stands <= last:
        where = f"stage {stands} is next" if stands <= len(recipe.stages) else "all are done"
        raise UserError(f"--stages={first}-{last}: of the run in {run.name} {where}; give a range with it")
    return start_of(recipe.stages, last)
