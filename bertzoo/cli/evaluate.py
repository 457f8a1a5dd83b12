"""Losses and accuracies of a run on all of its held-out text, beside what counting single tokens would give; or the
scores of a fine-tuned model on a split of its task.

A fine-tuned model is a fine-tuning run (its best seed), RUN/seed-N, a model directory or a Hugging Face directory with
a head of classes or of answers; where it is not of a run, --task names the task.

examples:
  bertzoo evaluate runs/demo
  bertzoo evaluate runs/first --corpus=gs://bucket/corpus
  bertzoo evaluate runs/demo --checkpoint=best --below_unigram=0.3 --json
  bertzoo evaluate runs/cola --seed=3
  bertzoo evaluate runs/own --split=test --data_dir=new
  bertzoo evaluate runs/squad2 --output=answers
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence

from bertzoo.cli.support import finetuned
from bertzoo.cli.support.options import checkpoint_option, corpus_option

MLM = ("mlm_loss", "mlm_hidden_loss")  # what word frequencies are held against


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    checkpoint_option(parser, None)
    corpus_option(parser, "the run's corpus")
    parser.add_argument("--stage", type=int, help="the stage whose row length is used (default: the last)")
    parser.add_argument(
        "--below_unigram",
        type=float,
        metavar="NATS",
        help="fail (exit code 1) unless the MLM loss is this far below the held-out unigram entropy",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    group = finetuned.flags(parser)
    group.add_argument("--split", choices=("train", "dev", "test"), help="the examples that are scored (default: dev)")
    group.add_argument(
        "--output", metavar="DIR", help="where answers to questions go, as the official scripts read them"
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Evaluate and print."""
    from bertzoo.finetuning.saved_model import is_finetuned

    if is_finetuned(args.run):
        finetuned.refuse(args, ("checkpoint", "corpus", "stage", "below_unigram"), "a fine-tuned model")
        return finetuned.evaluate(args)
    finetuned.refuse(args, ("task", "data_dir", "seed", "batch_size", "split", "output"), "a pretraining run")
    return _pretrained(args)


def _pretrained(args: argparse.Namespace) -> int:
    from bertzoo.runs.load_run import evaluate_run, load_run

    figures = evaluate_run(load_run(args.run, args.checkpoint or "latest"), args.corpus, args.stage)
    if args.json:
        print(json.dumps(figures))
    else:
        show(figures)
    gain, hidden = (figures["unigram_entropy"] - figures.get(name, math.nan) for name in MLM)
    if args.below_unigram is not None and not gain >= args.below_unigram:
        print(
            f"bertzoo: the MLM loss {figures['mlm_loss']:.3f} is {gain:.3f} nats below the held-out unigram entropy "
            f"{figures['unigram_entropy']:.3f} (of hidden tokens alone {hidden:.3f}), not {args.below_unigram:.3f}: "
            "this model has learnt little but word frequencies",
            file=sys.stderr,
        )
        return 1
    return 0


def show(figures: dict) -> None:
    """Print the figures for a person."""
    from bertzoo.runs.report.page import ABSENT, QUALITY, title, why_absent

    print(f"step {figures['step']}, {figures['rows']:,} held-out rows of {figures['max_length']} tokens")
    unigram, cross = figures["unigram_entropy"], figures["unigram_cross_entropy"]
    kinds = {name: kind for name in [*figures, *ABSENT] for kind in QUALITY if name.endswith(kind)}
    measured = [name for kind in QUALITY for name in kinds if kinds[name] == kind]
    rows = [(title(name, figures), value(name, figures[name])) for name in measured if name in figures]
    rows += [(title(name, figures), f"       –  {why}") for name in measured if (why := why_absent(name, figures))]
    rows += [
        ("unigram entropy", f"{unigram:8.3f}  nats; how far word frequencies alone can get"),
        ("unigram cross entropy", f"{cross:8.3f}  nats; the training text's word frequencies on the held-out text"),
    ]
    notes = "", "; the others stand in the input, to be copied"
    rows += [
        (f"{title(name, figures)} below the entropy", f"{unigram - figures[name]:8.3f}  nats{note}")
        for name, note in zip(MLM, notes, strict=True)
        if name in figures
    ]
    width = 1 + max(len(name) for name, _ in rows)
    for name, said in rows:
        print(f"  {name:{width}}{said}")


def value(name: str, number: float) -> str:
    """A metric with its unit."""
    from bertzoo.runs.report.page import SHARES

    if name.endswith(SHARES):
        return f"{100 * number:8.1f}  %"
    return f"{number:8.3f}" + ("" if name.endswith("auc") else "  nats")
