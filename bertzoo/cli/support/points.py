"""What `sweep` and `chain` have in common: points run as processes of their own, and what becomes of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import say
from bertzoo.core.errors import Stopped, UserError

if TYPE_CHECKING:
    from bertzoo.finetuning.sweep.grid import Point
    from bertzoo.finetuning.sweep.queue import Ended
    from bertzoo.finetuning.sweep.record import Record


def names(text: str) -> tuple[str, ...]:
    """The type of a flag with names between commas."""
    return tuple(name.strip() for name in text.split(","))


def count(text: str) -> int:
    """The type of a flag with a number of at least 1."""
    if text.isdecimal() and int(text):
        return int(text)
    raise UserError(f"{text!r} is not a number of at least 1, as --processes and --random need one")


def check(record: "Record") -> None:
    """Raise as `bertzoo finetune` would for the options of any point, before the first one runs."""
    from bertzoo.cli import main as cli
    from bertzoo.core import config as loader

    for point in record.points:
        verb, args, overrides = cli.parse(point.arguments(record.run_dir(point)))
        if args is None:
            raise UserError("--help of a run is that of `bertzoo finetune --help`")
        loader.load(verb.config(), args.files, overrides)


def tasks(record: "Record") -> Iterator[tuple["Point", Any, Any]]:
    """Every point with its config and its task; raises as `bertzoo finetune` would where these do not go together.

    Of points with the same files of one's own, which are read for their labels, the first stands for all.
    """
    from bertzoo.cli import main as cli
    from bertzoo.core import config as loader

    read = set()
    for point in record.points:
        verb, args, overrides = cli.parse(point.arguments(record.run_dir(point)))
        assert args is not None  # `check` has seen it
        recipe = loader.load(verb.config(), args.files, overrides)
        if recipe.task == "own":
            if (recipe.data_dir, recipe.own) in read:
                continue
            read.add((recipe.data_dir, recipe.own))
        yield point, recipe, verb.task_of(args, recipe)


def check_inputs(record: "Record") -> None:
    """Raise UserError where the files of a task, each read once, are missing or wrong, or a run refuses its options."""
    seen = set()
    for point, recipe, task in list(tasks(record)):  # options first, of every point
        with suppress(UserError):  # damaged results are made anew
            record.look(point)
        key = (task.name, recipe.data_dir, recipe.own, recipe.squad.heldout)
        if key not in seen and point.name not in record.finished:
            task.look()
            seen.add(key)


def check_models(record: "Record") -> None:
    """Raise as `bertzoo finetune` would where the model or the teacher of an unfinished point is missing or unfit."""
    from bertzoo.cli import main as cli
    from bertzoo.core import config as loader

    seen = set()
    for point in record.points:
        if point.name not in record.finished:
            verb, args, overrides = cli.parse(point.arguments(record.run_dir(point)))
            assert args is not None  # `check` has seen it
            verb.check_models(args, loader.load(verb.config(), args.files, overrides), seen)


def work(
    record: "Record", environments: Sequence[dict[str, str]], ready: Callable[["Point"], bool] = lambda point: True
) -> None:
    """Run every point that is not finished, once it is `ready`; raises Stopped where a signal asks for it."""
    waiting = []
    for point in record.points:
        with suppress(UserError):  # damaged results are made anew
            record.look(point)
        if point.name not in record.finished:
            waiting.append(point)
    side = f", {len(environments)} side by side" if len(environments) > 1 else ""
    say(f"{len(record.points)} points, {len(record.finished)} of them finished already{side}")
    try:
        _run(record, waiting, environments, ready)
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped with {len(record.finished)} of {len(record.points)} points finished; run the same command again "
            "to go on"
        ) from None
    finally:
        record.write()


def _run(
    record: "Record",
    waiting: Sequence["Point"],
    environments: Sequence[dict[str, str]],
    ready: Callable[["Point"], bool],
) -> None:
    from bertzoo.finetuning.sweep import queue

    def ended(point: "Point", how: "Ended") -> None:
        said = _became(record, point, how)
        record.write()
        say(f"{len(record.finished)}/{len(record.points)} {point.task} {point.described()}: {said}")

    jobs = [
        queue.Job(item=point, arguments=point.arguments(record.run_dir(point)), log=record.log(point))
        for point in waiting
    ]
    queue.run(jobs, environments, ended, ready)


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


def told(record: "Record") -> int:
    """Say what became of all points, and give the exit code."""
    stopped, failed = (sum(state == what for state, _ in record.states.values()) for what in ("stopped", "failed"))
    say(f"wrote {record.table}; next: bertzoo results {record.path}")
    if stopped:
        raise Stopped(f"{stopped} of {len(record.points)} points were stopped; run the same command again to go on")
    if failed:
        say(f"{failed} of {len(record.points)} points failed; run the same command again to try them again")
    return 1 if failed else 0
