"""Pretrain a model from config files; run the same command again to resume.

Everything of the run goes to --run_dir: resolved config, tokenised corpus, checkpoints, metrics.jsonl, TensorBoard.
SIGTERM or Ctrl-C saves and stops with exit code 3.

--from continues another model's training, on other text or under another objective: with its embedding and encoder, the
heads that the objective has too, and its tokenizer, which the text is tokenised with. [model] must be that model's.

examples:
  bertzoo pretrain demo --run_dir=runs/demo
  bertzoo pretrain squeezebert --data.source='text/*.txt.xz' --run_dir=runs/first --optimizer.learning_rate=2e-3
  bertzoo pretrain bert_base --from=bert-base-uncased --data.source='law/*.txt' --run_dir=runs/law
"""

import argparse
import functools
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo import supervisor
from bertzoo.errors import ConfigError, UserError
from bertzoo.places import on_disk
from bertzoo.verbs.shared import batch_workers_option, say, tokenising, workers_option

if TYPE_CHECKING:
    from bertzoo.data.corpus import Corpus
    from bertzoo.data.tokenizer import Tokenizer
    from bertzoo.recipe import Pretrain
    from bertzoo.rundir import RunDirectory
    from bertzoo.start import Start


def config() -> type:
    """The class of the config."""
    from bertzoo.recipe import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the run goes")
    parser.add_argument(
        "--from",
        dest="origin",
        type=_origin,
        metavar="MODEL",
        help="start from a run, one of its checkpoints, a model directory, a Hugging Face directory or a TensorFlow 1 "
        "checkpoint; a run that is resumed has all it needs and does not read it again",
    )
    workers_option(parser)
    batch_workers_option(parser)
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


def _origin(text: str) -> Path:
    if text:
        return on_disk(text, "--from =", "copy the model to this machine and name the copy")
    raise UserError("--from is empty; name a model")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train to the end, as one process or as one of several."""
    from bertzoo import config as loader
    from bertzoo.train import hosts

    recipe = loader.load(config(), args.files, overrides)
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
        step = train(args, recipe)
    if hosts.is_first():
        say(f"finished after {step} steps; next: bertzoo report {args.run_dir}, bertzoo evaluate {args.run_dir}")
    return 0


def train(args: argparse.Namespace, recipe: "Pretrain") -> int:
    """Train to the end and return the number of steps done; what one process can do for all, the first does."""
    from bertzoo import training
    from bertzoo.convert.directory import check
    from bertzoo.data.pipeline import open_corpus
    from bertzoo.feed import Feed
    from bertzoo.rundir import RunDirectory
    from bertzoo.train import hosts

    tell = say if hosts.is_first() else lambda line: None
    run = RunDirectory(args.run_dir)
    if args.origin is not None and args.origin.resolve() == run.path.resolve():
        raise UserError(f"--from and --run_dir are both {run.path}; a run resumes by itself, without --from")
    # Before there is a directory; a run that has a checkpoint does not read its source again.
    if args.origin is not None and hosts.share("the newest checkpoint", run.latest) is None:
        check(args.origin)
    with run.shared():
        for line in hosts.share("the run's config", lambda: run.compare(recipe, args.origin)):
            tell(f"changed since the run began: {line}")
        mesh = training.devices(recipe)  # before the corpus, which may take hours
        hosts.share("the newest checkpoint's model", lambda: training.check(recipe, run, mesh))
        start, vocabulary = begin(run, recipe, args.origin, tell)

        @functools.cache
        def opened() -> "Corpus":
            with tokenising() as progress:
                return open_corpus(
                    recipe.data,
                    run.corpus,
                    workers=args.workers,
                    progress=progress,
                    vocabulary=vocabulary,
                    tell=say,
                )

        expected = hosts.share("the corpus", lambda: opened().hash, timeout=24 * 3600)
        corpus = opened()
        hosts.barrier("the corpus", timeout=24 * 3600)  # each host copies one that is behind a URL
        if corpus.hash != expected:
            raise UserError(f"the corpus {corpus.address} is not the one that process 0 reads; give all the same")
        for split, part in corpus.manifest.splits.items():
            tell(f"corpus, {split}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")
        return training.train(
            recipe, Feed(recipe, corpus, run.plans, tell, workers=args.batch_workers), run, mesh, start
        )


def begin(
    run: "RunDirectory", recipe: "Pretrain", origin: Path | None, tell: Callable[[str], None]
) -> "tuple[Start | None, Tokenizer | None]":
    """What a run that has no checkpoint starts from, and the tokenizer of one that started or starts from something."""
    from bertzoo.start import read
    from bertzoo.train import hosts

    if hosts.share("the newest checkpoint", run.latest) is not None:
        return None, None if origin is None else run.open_corpus().tokenizer
    if origin is None:
        return None, None
    start, before = read(origin, recipe), run.origin()
    digest = start.record["parameters_sha256"]
    if digest != hosts.share("what the run starts from", lambda: digest):
        raise UserError(f"the parameters in {origin} are not those that process 0 finds there; give all the same")
    if before and before["path"] == start.record["path"] and before != start.record:
        tell(f"changed since the run began: the parameters in {origin}")
    for line in start.said:
        tell(line)
    return start, start.tokenizer
