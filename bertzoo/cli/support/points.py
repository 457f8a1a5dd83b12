"""Check and run the points of `bertzoo sweep`: runs of bertzoo finetune or prune, one per combination of settings."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import Parser, say
from bertzoo.core.errors import Stopped, UserError

if TYPE_CHECKING:
    from bertzoo.finetuning.sweep.grid import SweepPoint
    from bertzoo.finetuning.sweep.queue import ProcessExit
    from bertzoo.finetuning.sweep.record import Record


def parse_names(text: str) -> tuple[str, ...]:
    """Return the comma-separated names in a flag's value."""
    return tuple(name.strip() for name in text.split(","))


def parse_count(flag: str, text: str) -> int:
    """Return the number in the value of a flag; raises UserError, naming the flag, unless it is at least 1."""
    if text.isdecimal() and int(text):
        return int(text)
    raise UserError(f"{flag} needs a whole number of 1 or more, not {text!r}. Write, for example, {flag}=4.")


def task_options(parser: Parser, tasks: str, unit: str) -> None:
    """Declare --tasks, --processes and --list.

    tasks: help of --tasks.
    unit: what runs, in the plural, such as "points".
    """
    group = parser.group(unit)
    group.add_argument("--tasks", type=parse_names, default=(), metavar="A,B", help=tasks)
    group.add_argument(
        "--processes",
        type=partial(parse_count, "--processes"),
        metavar="N",
        help=f"{unit} that run at once (default: one per device)",
    )
    group.add_argument("--list", action="store_true", help=f"print the commands of all {unit} and run none")


def _parsed(record: "Record", point: "SweepPoint") -> tuple[Any, Any, Any]:
    """Parse the command line of a point (a run of the sweep); return the command's module, arguments and config."""
    from bertzoo.cli import main as cli
    from bertzoo.core import config

    verb, args, overrides = cli.parse(point.arguments(record.run_dir(point)))
    if args is None:
        command = point.arguments("")[0]
        raise UserError(
            f"--help does not apply to a run of the sweep. Remove --help. `bertzoo {command} --help` lists the options."
        )
    return verb, args, config.load(verb.config(), args.files, overrides)


def check_options(record: "Record") -> list[Any]:
    """Return the configs of all points (runs of the sweep); raises UserError for options that the runs reject."""
    return [_parsed(record, point)[2] for point in record.points]


def tasks(record: "Record") -> Iterator[tuple["SweepPoint", Any, Any]]:
    """Yield (point, config, task) for the fine-tunings (points) of a sweep.

    Of several points with the same custom task (`own`), only the first is yielded, because reading the task's labels
    from its files takes long. Raises `bertzoo finetune`'s error if an option of a config does not apply to its task.
    """
    seen = set()
    for point in record.points:
        if point.is_pruning:
            continue
        verb, args, recipe = _parsed(record, point)
        if recipe.task == "own":
            if (recipe.data_dir, recipe.own) in seen:
                continue
            seen.add((recipe.data_dir, recipe.own))
        yield point, recipe, verb.task_of(args, recipe)


def check_inputs(record: "Record") -> None:
    """Check the points (runs of the sweep) that fine-tune.

    Raises UserError if options of a point do not fit its task, or if the files of an unfinished point's task are wrong.
    """
    seen = set()
    for point, recipe, task in list(tasks(record)):  # `list` checks the options of every point first
        with suppress(UserError):  # damaged results are computed again
            record.look(point)
        key = (task.name, recipe.data_dir, recipe.own, recipe.squad.heldout)
        if key not in seen and point.name not in record.finished:
            task.check_files()
            seen.add(key)


def check_models(record: "Record") -> None:
    """Raise UserError if an unfinished point (run of the sweep) lacks its model, teacher or text.

    Also raises it if the model does not fit the point's task or max_length.
    """
    seen = set()
    for point in record.points:
        if point.name not in record.finished:
            verb, args, recipe = _parsed(record, point)
            verb.check_models(args, recipe, seen)


def run_points(record: "Record", environments: Sequence[dict[str, str]]) -> None:
    """Run each unfinished point (run of a sweep); raises Stopped after a signal.

    environments: sets of environment variables; at most one process at a time uses a set.
    """
    from bertzoo.finetuning.sweep import queue

    waiting = []
    for point in record.points:
        with suppress(UserError):  # damaged results are computed again
            record.look(point)
        if point.name not in record.finished:
            waiting.append(point)
    side = f", {len(environments)} side by side" if len(environments) > 1 else ""
    say(f"{len(record.points)} points, {len(record.finished)} already finished{side}")

    def ended(point: "SweepPoint", how: "ProcessExit") -> None:
        outcome = _record_outcome(record, point, how)
        record.write()
        say(f"{len(record.finished)}/{len(record.points)} {point.task} {point.described()}: {outcome}")

    jobs = [
        queue.ProcessJob(item=point, arguments=point.arguments(record.run_dir(point)), log=record.log(point))
        for point in waiting
    ]
    try:
        queue.run_processes(jobs, environments, ended)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped with {len(record.finished)} of {len(record.points)} points finished. Run the same command "
            "again to resume."
        ) from None
    finally:
        record.write()


def _record_outcome(record: "Record", point: "SweepPoint", how: "ProcessExit") -> str:
    """Record how a point's process ended, and return a text such as "stopped" or the score."""
    if how.stopped:
        record.states[point.name] = "stopped", ""
        return "stopped"
    error = how.error
    try:
        if not error and record.look(point):
            return record.show(record.finished[point.name].score)
        error = error or f"it ended well but left no results ({record.log(point)})"
    except UserError as damaged:
        error = str(damaged)
    record.states[point.name] = "failed", error
    return f"failed: {error}"


def report_outcomes(record: "Record") -> int:
    """Print how many points (runs of the sweep) failed; return 1 if any failed, else 0.

    Raises Stopped if a signal stopped some points.
    """
    stopped, failed = (sum(state == word for state, _ in record.states.values()) for word in ("stopped", "failed"))
    pruning = any(point.is_pruning for point in record.points)
    after = f"report {record.path}/best/prune" if pruning else f"results {record.path}"
    say(f"wrote {record.table}; next: bertzoo {after}")
    if stopped:
        raise Stopped(f"{stopped} of {len(record.points)} points were stopped. Run the same command again to resume.")
    if failed:
        say(f"{failed} of {len(record.points)} points failed; run the same command to try them again")
    return 1 if failed else 0
