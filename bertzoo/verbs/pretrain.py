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
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.errors import UserError
from bertzoo.verbs.shared import say, tokenising, workers_option

if TYPE_CHECKING:
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
        help="start from a run, one of its checkpoints, a model directory or a Hugging Face directory; a run that is "
        "resumed has all it needs and does not read it again",
    )
    workers_option(parser)


def _origin(text: str) -> Path:
    if text:
        return Path(text)
    raise UserError("--from is empty; name a model")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train to the end."""
    from bertzoo import config as loader
    from bertzoo.data.pipeline import open_corpus
    from bertzoo.feed import Feed
    from bertzoo.rundir import RunDirectory
    from bertzoo.training import devices, train

    recipe = loader.load(config(), args.files, overrides)
    run = RunDirectory(args.run_dir)
    if args.origin is not None and args.origin.resolve() == run.path.resolve():
        raise UserError(f"--from and --run_dir are both {run.path}; a run resumes by itself, without --from")
    with run.locked():
        for line in run.compare(recipe, args.origin):
            say(f"changed since the run began: {line}")
        mesh = devices(recipe)  # before the corpus, which may take hours
        start, vocabulary = begin(run, recipe, args.origin)
        with tokenising() as progress:
            corpus = open_corpus(
                recipe.data, run.corpus, workers=args.workers, progress=progress, vocabulary=vocabulary
            )
        for split, part in corpus.manifest.splits.items():
            say(f"corpus, {split}: {part.documents:,} documents, {part.sentences:,} sentences, {part.tokens:,} tokens")
        step = train(recipe, Feed(recipe, corpus, run.plans, say), run, mesh, start)
    say(f"finished after {step} steps; next: bertzoo report {args.run_dir}, bertzoo evaluate {args.run_dir}")
    return 0


def begin(run: "RunDirectory", recipe: "Pretrain", origin: Path | None) -> "tuple[Start | None, Tokenizer | None]":
    """What a run that has no checkpoint starts from, and the tokenizer of one that started or starts from something."""
    from bertzoo.start import read

    if run.latest() is not None:
        return None, None if origin is None else run.open_corpus().tokenizer
    if origin is None:
        return None, None
    start, before = read(origin, recipe), run.origin()
    if before and before["path"] == start.record["path"] and before != start.record:
        say(f"changed since the run began: the parameters in {origin}")
    for line in start.said:
        say(line)
    return start, start.tokenizer
