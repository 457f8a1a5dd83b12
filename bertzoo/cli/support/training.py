"""What the verbs that train have in common: a run of one process or of several, and its corpus."""

import argparse
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import batch_workers_option, corpus_option, say, tokenising, workers_option
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.train import supervisor

if TYPE_CHECKING:
    from bertzoo.runs.open_run import Options


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of a run."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the run goes")
    workers_option(parser)
    batch_workers_option(parser)
    corpus_option(parser, "the corpus of a run that is resumed")
    many = parser.add_argument_group(
        "several processes",
        "found by themselves on Cloud TPU, GKE and Slurm; elsewhere give each its own --distributed.process. All need "
        "to see --run_dir.",
    )
    many.add_argument("--distributed.coordinator", metavar="HOST:PORT", help="where process 0 listens")
    many.add_argument("--distributed.processes", type=int, metavar="N", help="how many processes the run has")
    many.add_argument("--distributed.process", type=int, metavar="I", help="which of them this is, from 0")
    many.add_argument(
        "--distributed.start_timeout", type=int, default=300, metavar="S", help="seconds for all to come (default: 300)"
    )
    many.add_argument(
        "--distributed.heartbeat_timeout",
        type=int,
        default=30,
        metavar="S",
        help="seconds of silence after which a process counts as lost and the others end (default: 30)",
    )


def model_flag(flag: str) -> Callable[[str], Path]:
    """The type of a flag that names a model on this machine's disk."""

    def path(text: str) -> Path:
        if text:
            return on_disk(text, f"{flag} =", "copy the model to this machine and name the copy")
        raise UserError(f"{flag} is empty; name a model")

    return path


def main(
    args: argparse.Namespace,
    overrides: Sequence[tuple[str, str]],
    cls: type,
    train: Callable[[argparse.Namespace, Any], str],
) -> int:
    """Train to the end, as one process or as one of several; `train` returns what is said then."""
    from bertzoo.core import config as loader
    from bertzoo.train import hosts

    recipe = loader.load(cls, args.files, overrides)
    given = {name.removeprefix("distributed."): value for name, value in vars(args).items() if "distributed." in name}
    cluster = hosts.Cluster(**given)
    if cluster.found() and not supervisor.is_child():
        which = "this process" if cluster.process is None else f"process {cluster.process} of {cluster.processes}"
        return supervisor.supervise(sys.argv[1:], which)
    hosts.connect(cluster)
    supervisor.joined()
    with hosts.losses():
        theirs = hosts.share("the config", lambda: loader.dump(recipe))
        if changed := loader.difference(tomllib.loads(theirs), tomllib.loads(loader.dump(recipe))):
            raise ConfigError(
                f"this process has another config than process 0: {'; '.join(changed)}; give all the same"
            )
        said = train(args, recipe)
    if hosts.is_first():
        say(said)
    return 0


def options(args: argparse.Namespace) -> "Options":
    """How the flags say that the run is carried out."""
    from bertzoo.runs.open_run import Options

    return Options(
        corpus=args.corpus,
        workers=args.workers,
        batch_workers=args.batch_workers,
        tell=say,
        progress=tokenising,
    )


def finished(step: int, run: str) -> str:
    """What there is to say at the end."""
    return f"finished after {step} steps; next: bertzoo report {run}, bertzoo evaluate {run}"
