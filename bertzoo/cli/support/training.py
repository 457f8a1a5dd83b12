"""Flags and start-up of the commands that train, with one process or several."""

import argparse
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import (
    Parser,
    batch_workers_option,
    config_files,
    corpus_option,
    run_dir_option,
    say,
    tokenising,
    workers_option,
)
from bertzoo.core.documents import parse_toml
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import Location, location
from bertzoo.train import supervisor

if TYPE_CHECKING:
    from bertzoo.runs.training import Options


def arguments(parser: Parser) -> None:
    """Declare the flags of a training run."""
    config_files(parser)
    run_dir_option(parser, "the run's directory or gs:// URL")
    corpus_option(parser, "input", "the corpus of a resumed run")
    workers_option(parser)
    batch_workers_option(parser)
    many = parser.group("several processes")
    many.description = (
        "On Cloud TPU, GKE and Slurm, coordinator, processes and process are detected. Elsewhere, set all three for "
        "every process, each with its own --distributed.process. All processes must see the same RUN."
    )
    many.add_argument(
        "--distributed.coordinator", metavar="HOST:PORT", help="the address of process 0 (default: detected)"
    )
    many.add_argument(
        "--distributed.processes", type=int, metavar="N", help="the number of processes of the run (default: detected)"
    )
    many.add_argument(
        "--distributed.process", type=int, metavar="I", help="the number of this process, from 0 (default: detected)"
    )
    many.add_argument(
        "--distributed.start_timeout", type=int, default=300, metavar="S", help="seconds to wait for all processes"
    )
    many.add_argument(
        "--distributed.heartbeat_timeout",
        type=int,
        default=30,
        metavar="S",
        help="seconds without a heartbeat after which a process counts as lost and the others end",
    )


def model_path(flag: str, name: str) -> Location:
    """Return the path or URL of a model; raises UserError, naming the flag, for an empty name or a mistyped URL."""
    if name:
        return location(name, f"{flag} =", "Write :// after the protocol.")
    raise UserError(f"{flag} is empty. Name a model.")


def model_option(parser: Parser, flag: str, text: str) -> None:
    """Declare `flag`, whose value is a model's path or URL; --from is stored as args.origin. text: the flag's help."""
    kind = functools.partial(model_path, flag)
    parser.group("input").add_argument(flag, dest={"--from": "origin"}.get(flag), type=kind, metavar="MODEL", help=text)


def config_loader(cls: type, files: Sequence[str], overrides: Sequence[tuple[str, str]]) -> Callable[[], Any]:
    """Return a function that loads the config of `files` with the options of the command line."""
    from bertzoo.core import config as loader

    return functools.partial(loader.load, cls, files, overrides)


def main(
    args: argparse.Namespace,
    load: Callable[[], Any],
    train: Callable[[argparse.Namespace, Any, "Options"], str],
    late: bool = False,
) -> int:
    """Train to the end, as the only process or one of several; `train`, which takes the run's options, returns the
    closing line.

    load: returns the config.
    late: whether to call `load` only after the processes have connected, because `load` reads a model.
    """
    from bertzoo.core import config as loader
    from bertzoo.train import hosts

    recipe = None if late else load()
    flags = {name.removeprefix("distributed."): value for name, value in vars(args).items() if "distributed." in name}
    cluster = hosts.Cluster(**flags)
    if cluster.detection() and not supervisor.is_child():
        which = "this process" if cluster.process is None else f"process {cluster.process} of {cluster.processes}"
        return supervisor.supervise(sys.argv[1:], which)
    hosts.connect(cluster)
    with hosts.host_lost_errors():
        from bertzoo.runs.training import Options

        recipe = recipe or hosts.in_turn("the model", load)
        first = hosts.share("the config", lambda: loader.dump(recipe))
        if changed := loader.difference(parse_toml(first), parse_toml(loader.dump(recipe))):
            raise ConfigError(
                f"this process and process 0 have different configs: {'; '.join(changed)}. Give every process the "
                "same config."
            )
        options = Options(
            corpus=args.corpus,
            workers=args.workers,
            batch_workers=args.batch_workers,
            progress=tokenising,
        )
        line = train(args, recipe, options)
    if hosts.is_first():
        say(line)
    return 0


def finished(step: int, run: str) -> str:
    """Return the closing line of a finished run."""
    return f"finished after {step} steps; next: bertzoo report {run}, bertzoo evaluate {run}"
