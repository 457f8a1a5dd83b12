"""Pretrain a model from config files; run the same command again to resume.

Everything of the run goes to --run_dir: resolved config, tokenised corpus, checkpoints, metrics.jsonl, TensorBoard.
SIGTERM, Ctrl-C or a closed terminal saves and stops with exit code 3.

--from continues another model's training, on other text or under another objective: with its embedding and encoder, the
heads that the objective has too, and its tokenizer, which the text is tokenised with. [model] must be that model's.

examples:
  bertzoo pretrain demo --run_dir=runs/demo
  bertzoo pretrain squeezebert --data.source='text/*.txt.xz' --run_dir=runs/first --optimizer.learning_rate=2e-3
  bertzoo pretrain bert_base --from=bert-base-uncased --data.source='law/*.txt' --run_dir=runs/law
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support import training as runs

if TYPE_CHECKING:
    from bertzoo.data.tokenizers.tokenizer import Tokenizer
    from bertzoo.runs.pretrain_config import Pretrain
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.runs.warm_start import Start


def config() -> type:
    """The class of the config."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    runs.arguments(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        type=runs.model_flag("--from"),
        metavar="MODEL",
        help="start from a run, one of its checkpoints, a model directory, a Hugging Face directory or a TensorFlow 1 "
        "checkpoint; a run that is resumed has all it needs and does not read it again",
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train to the end, as one process or as one of several."""
    return runs.main(args, overrides, config(), train)


def train(args: argparse.Namespace, recipe: "Pretrain") -> str:
    """Train to the end and return what there is to say; what one process can do for all, the first does."""
    from bertzoo.runs import job
    from bertzoo.runs.any_model import check
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.train import hosts

    tell = runs.telling()
    run = RunDirectory(args.run_dir)
    if args.origin is not None:
        runs.check_apart(args.origin, run, "--from", "a run resumes by itself, without --from")
        # Before there is a directory; a run that has a checkpoint does not read its source again.
        if hosts.share("the newest checkpoint", run.latest) is None:
            check(args.origin)
    with run.shared():
        mesh = runs.checked(recipe, run, tell, args.origin)
        start, vocabulary = begin(run, recipe, args.origin, tell)
        feed = runs.feed(args, recipe, run, vocabulary, tell)
        step = job.train(recipe, feed, run, mesh, start)
    return runs.finished(step, args.run_dir)


def begin(
    run: "RunDirectory", recipe: "Pretrain", origin: Path | None, tell: Callable[[str], None]
) -> "tuple[Start | None, Tokenizer | None]":
    """What a run that has no checkpoint starts from, and the tokenizer of one that started or starts from something."""
    from bertzoo.runs.warm_start import read
    from bertzoo.train import hosts

    if hosts.share("the newest checkpoint", run.latest) is not None:
        return None, None if origin is None else run.tokenizer()
    if origin is None:
        return None, None
    start, before = read(origin, recipe), run.origin()
    runs.same_everywhere(start.record, "what the run starts from", origin)
    if before and before["path"] == start.record["path"] and before != start.record:
        tell(f"changed since the run began: the parameters in {origin}")
    for line in start.said:
        tell(line)
    return start, start.tokenizer
