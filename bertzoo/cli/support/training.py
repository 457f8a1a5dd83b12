"""What the verbs that train have in common: a run of one process or of several, and its corpus."""

import argparse
import functools
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
    import jax

    from bertzoo.data.corpus.corpus import Corpus
    from bertzoo.data.tokenizers.vocabulary import Tokenizer
    from bertzoo.runs.batches import Feed
    from bertzoo.runs.pretrain_config import Checked
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.runs.transfer_config import Recipe


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


def check_apart(path: Path, run: "RunDirectory", flag: str, instead: str) -> None:
    """Raise UserError where a flag names the run itself; it says what to do `instead`."""
    if path.resolve() == run.path.resolve():
        raise UserError(f"{flag} and --run_dir are both {run.name}; {instead}")


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


def telling() -> Callable[[str], None]:
    """What tells a person something once, however many processes there are."""
    from bertzoo.train import hosts

    return say if hosts.is_first() else lambda line: None


def checked(
    recipe: "Recipe", run: "RunDirectory", tell: Callable[[str], None], origin: Path | None = None
) -> "jax.sharding.Mesh":
    """The mesh of a run that may go on with this recipe; before the corpus, which may take hours."""
    from bertzoo.runs import job
    from bertzoo.train import hosts

    for line in hosts.share("the run's config", lambda: run.compare(recipe, origin)):
        tell(f"changed since the run began: {line}")
    mesh = job.devices(recipe)
    hosts.share("the newest checkpoint's model", lambda: job.check(recipe, run, mesh))
    return mesh


def same_everywhere(record: dict[str, Any], what: str, path: Path) -> None:
    """Raise UserError where another process finds other parameters in a model's directory than the first."""
    from bertzoo.train import hosts

    digest = record["parameters_sha256"]
    if digest != hosts.share(what, lambda: digest):
        raise UserError(f"the parameters in {path} are not those that process 0 finds there; give all the same")


def feed(
    args: argparse.Namespace,
    recipe: "Recipe",
    run: "RunDirectory",
    vocabulary: "Tokenizer | None",
    tell: Callable[[str], None],
) -> "Feed":
    """The batches of a run, from its corpus."""
    from bertzoo.runs.batches import Feed

    corpus = open_corpus(args, recipe, run, vocabulary, tell)
    return Feed(recipe, corpus, run.plans, tell, workers=args.batch_workers)


def finished(step: int, run: str) -> str:
    """What there is to say at the end."""
    return f"finished after {step} steps; next: bertzoo report {run}, bertzoo evaluate {run}"


def open_corpus(
    args: argparse.Namespace,
    recipe: "Checked",
    run: "RunDirectory",
    vocabulary: "Tokenizer | None",
    tell: Callable[[str], None],
) -> "Corpus":
    """The corpus of a run, tokenised by the first process if need be; raises UserError where others find another.

    A run that has a checkpoint reads the corpus that it began with, wherever that is by now.
    """
    from bertzoo.data import pipeline
    from bertzoo.train import hosts

    begun = run.latest() is not None
    if args.corpus and not begun:
        raise UserError(
            f"--corpus={args.corpus} is for a run that is resumed, but {run.name} has no checkpoint; name its corpus "
            "with --data.source"
        )

    @functools.cache
    def opened() -> "Corpus":
        if begun and (args.corpus or run.corpus_is_elsewhere()):
            corpus = run.open_corpus(args.corpus)
            if vocabulary is not None:
                pipeline.check_words(corpus, vocabulary)
            return corpus
        with tokenising() as progress:
            corpus = pipeline.open_corpus(
                recipe.data, run.corpus, workers=args.workers, progress=progress, vocabulary=vocabulary, tell=say
            )
        if begun:
            run.check_corpus(corpus)
        return corpus

    expected = hosts.share("the corpus", lambda: opened().hash, timeout=24 * 3600)
    corpus = opened()
    hosts.barrier("the corpus", timeout=24 * 3600)  # each host copies one that is behind a URL
    if corpus.hash != expected:
        raise UserError(f"the corpus {corpus.address} is not the one that process 0 reads; give all the same")
    for split, part in corpus.manifest.splits.items():
        tell(f"corpus, {split}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")
    return corpus
