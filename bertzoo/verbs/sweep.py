"""Fine-tune over a grid of settings, a process a device; run the same command again to resume.

A sweep is a TOML file or the name of a shipped one: squeezebert and mobilebert are the searches of these papers. Its
[grid] has a list of values for each option of `bertzoo finetune`, [tasks.NAME] what is different for one task. Any
other option is passed on to every run and takes the place of a list in the grid; --tasks.cola.from=MODEL is for the
runs of one task, and {task} in a value stands for the task's name. Where alpha is 1, --teacher is left out.

Every point is a run in RUN/points; a finished one is not run again, one that failed is, an interrupted one goes on.
RUN/sweep.csv has a line a point. SIGTERM or Ctrl-C stops all runs and ends with exit code 3; where a point failed
the others go on, and the exit code is 1 in the end.

examples:
  bertzoo sweep squeezebert --tasks=rte,mrpc --data_dir=glue --from=runs/mnli --teacher='runs/teacher/{task}' \
--run_dir=runs/sweep
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --random=20 --processes=4
  bertzoo sweep mobilebert --data_dir=glue --from=runs/mobilebert --run_dir=runs/sweep --list
"""

import argparse
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from bertzoo.errors import Stopped, UserError
from bertzoo.verbs.shared import say

if TYPE_CHECKING:
    from bertzoo.sweep.grid import Point
    from bertzoo.sweep.queue import Ended
    from bertzoo.sweep.record import Record

PASSES_ON = True


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("sweep", metavar="CONFIG", help="a TOML file or the name of a shipped sweep")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the sweep goes")
    parser.add_argument("--tasks", type=_names, default=(), metavar="A,B", help="only these tasks of the sweep")
    parser.add_argument("--processes", type=_count, metavar="N", help="runs side by side (default: one a device)")
    parser.add_argument(
        "--random", type=_count, default=0, metavar="N", help="only N points of each task, drawn at random"
    )
    parser.add_argument(
        "--random_seed", type=int, default=0, metavar="S", help="draws other points (default: 0); --seed is a run's"
    )
    parser.add_argument("--list", action="store_true", help="print the command of every point and run none")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _count(text: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise UserError(f"{text!r} is not a number of at least 1, as --processes and --random need one")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Run every point that is not finished, and print the table and the best of each task."""
    from bertzoo.sweep import grid, slots
    from bertzoo.sweep.record import Record

    sweep = grid.load(args.sweep, overrides, args.tasks)
    points = sweep.points(args.random, args.random_seed)
    record = Record(args.run_dir, points)
    _check(record)
    if args.list:
        for point in points:
            print(shlex.join(["bertzoo", *point.arguments(record.run_dir(point))]))
        return 0
    environments = slots.slots(args.processes)
    with record.locked():
        record.claim(sweep)
        waiting = []
        for point in points:
            with suppress(UserError):  # damaged results are made anew
                record.look(point)
            if point.name not in record.finished:
                waiting.append(point)
        side = f", {len(environments)} side by side" if len(environments) > 1 else ""
        say(f"{len(points)} points, {len(record.finished)} of them finished already{side}")
        try:
            _run(record, waiting, environments)
        except KeyboardInterrupt:
            raise Stopped(
                f"stopped with {len(record.finished)} of {len(points)} points finished; run the same command again to "
                "go on"
            ) from None
        finally:
            record.write()
    return _told(record)


def _check(record: "Record") -> None:
    """Raise as `bertzoo finetune` would for the options of any point, before the first one runs."""
    from bertzoo import cli
    from bertzoo import config as loader

    for point in record.points:
        verb, args, overrides = cli.parse(point.arguments(record.run_dir(point)))
        if args is None:
            raise UserError("--help of a run is that of `bertzoo finetune --help`")
        loader.load(verb.config(), args.files, overrides)


def _run(record: "Record", waiting: Sequence["Point"], environments: Sequence[dict[str, str]]) -> None:
    from bertzoo.sweep import queue

    def ended(point: "Point", how: "Ended") -> None:
        said = _became(record, point, how)
        record.write()
        say(f"{len(record.finished)}/{len(record.points)} {point.task} {point.described()}: {said}")

    jobs = [
        queue.Job(item=point, arguments=point.arguments(record.run_dir(point)), log=record.log(point))
        for point in waiting
    ]
    queue.run(jobs, environments, ended)


def _became(record: "Record", point: "Point", how: "Ended") -> str:
    """What became of a point, recorded and in words."""
    if how.stopped:
        record.states[point.name] = "stopped", ""
        return "stopped"
    error = how.error
    try:
        if not error and record.look(point):
            return f"{record.finished[point.name].score:.2f}"
        error = error or f"it ended well but left no results ({record.log(point)})"
    except UserError as damaged:
        error = str(damaged)
    record.states[point.name] = "failed", error
    return f"failed: {error}"


def _told(record: "Record") -> int:
    """Print the table and the best of each task, and give the exit code."""
    for line in record.lines():
        print(line)
    for task in dict.fromkeys(point.task for point in record.points):
        if (best := record.best(task)) is not None:
            score, where = record.finished[best.name].score, record.run_dir(best)
            print(f"best of {task}: {score:.2f} with {best.described()}, in {where}")
    stopped, failed = (sum(state == what for state, _ in record.states.values()) for what in ("stopped", "failed"))
    say(f"wrote {record.table}; next: bertzoo results {record.path}")
    if stopped:
        raise Stopped(f"{stopped} of {len(record.points)} points were stopped; run the same command again to go on")
    if failed:
        say(f"{failed} of {len(record.points)} points failed; run the same command again to try them again")
    return 1 if failed else 0
