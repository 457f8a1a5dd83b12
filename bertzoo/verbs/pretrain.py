"""Pretrain a model from config files; run the same command again to resume.

Everything of the run goes to --run_dir: resolved config, tokenised corpus, checkpoints, metrics.jsonl, TensorBoard.
SIGTERM or Ctrl-C saves and stops with exit code 3.

examples:
  bertzoo pretrain demo --run_dir=runs/demo
  bertzoo pretrain squeezebert --data.source='text/*.txt.xz' --run_dir=runs/first --optimizer.learning_rate=2e-3
"""

import argparse
from collections.abc import Sequence

from bertzoo.verbs.shared import say, tokenising, workers_option


def config() -> type:
    """The class of the config."""
    from bertzoo.recipe import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the run goes")
    workers_option(parser)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train to the end."""
    from bertzoo import config as loader
    from bertzoo.data.pipeline import open_corpus
    from bertzoo.feed import Feed
    from bertzoo.rundir import RunDirectory
    from bertzoo.training import devices, train

    recipe = loader.load(config(), args.files, overrides)
    run = RunDirectory(args.run_dir)
    with run.locked():
        for line in run.compare(recipe):
            say(f"changed since the run began: {line}")
        mesh = devices(recipe)  # before the corpus, which may take hours
        with tokenising() as progress:
            corpus = open_corpus(recipe.data, run.corpus, workers=args.workers, progress=progress)
        for split, part in corpus.manifest.splits.items():
            say(f"corpus, {split}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")
        step = train(recipe, Feed(recipe, corpus, run.plans, say), run, mesh)
    say(f"finished after {step} steps; next: bertzoo report {args.run_dir}, bertzoo evaluate {args.run_dir}")
    return 0
