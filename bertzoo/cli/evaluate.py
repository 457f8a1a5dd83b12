"""Measure a run on its held-out text, or a fine-tuned model on its task.

MODEL is a pretraining run, a fine-tuning run (its best seed), RUN/seed-N, a model or Hugging Face directory with a head
for labels, questions or vectors of texts, or a file that `bertzoo convert` wrote, which runs in the runtime of its
format. A model that embeds texts is scored on stsb, on its own pairs, or on --task=sts, pair_classification or
clustering with --input=FILE (columns sentence1, sentence2, score; or text, label), or --task=retrieval with
--data_dir=DIR (corpus.jsonl, queries.jsonl, qrels/test.tsv), or, where the package mteb is installed, --task=mteb:NAME.

examples:
  bertzoo evaluate runs/demo
  bertzoo evaluate runs/own --input=later.csv
  bertzoo evaluate minilm.tflite --task=retrieval --data_dir=help
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence

from bertzoo.cli.support import finetuned
from bertzoo.cli.support.options import Parser, checkpoint_option, corpus_option, json_option

MLM = ("mlm_loss", "mlm_hidden_loss")  # compared with the unigram entropy
GATES = ("below_unigram", "hidden_below_unigram")  # the flag for each loss of MLM


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument("run", metavar="MODEL", help="a run, a model directory or an exported file")
    pretrained = "for a pretraining run"
    checkpoint_option(parser, pretrained)
    corpus_option(parser, pretrained, "the run's corpus")
    parser.group(pretrained).add_argument(
        "--stage", type=int, metavar="N", help="the stage whose row length applies (default: the last)"
    )
    parser.group(pretrained).add_argument(
        "--below_unigram",
        type=float,
        metavar="NATS",
        help="exit with 1 unless the MLM loss is this far below the unigram entropy of the text (default: no check)",
    )
    parser.group(pretrained).add_argument(
        "--hidden_below_unigram",
        type=float,
        metavar="NATS",
        help="like --below_unigram, but without the selected tokens that masking leaves unchanged, because a model can "
        "copy them (default: no check)",
    )
    group = finetuned.flags(parser)
    group.add_argument("--split", choices=("train", "dev", "test"), help="the examples to score (default: dev)")
    group.add_argument(
        "--input",
        metavar="FILE",
        help="a file of rows to score, for a model of the task `own` (default: the examples of --split)",
    )
    group.add_argument(
        "--output",
        metavar="DIR",
        help="for question answering: a folder for the answers, as JSON that SQuAD's scripts read (default: none)",
    )
    json_option(parser)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Evaluate the model and print its metrics."""
    from bertzoo.export.file_model import is_pretraining
    from bertzoo.train.step import keep_programs

    keep_programs()
    if is_pretraining(args.run):
        names = ("task", "data_dir", "seed", "batch_size", "python", "split", "input", "output")
        finetuned.reject_flags(args, names, "a pretraining run")
        return _pretrained(args)
    finetuned.reject_flags(args, ("checkpoint", "corpus", "stage", *GATES), "a fine-tuned model")
    return finetuned.evaluate_model(args)


def _pretrained(args: argparse.Namespace) -> int:
    from bertzoo.runs.load_model import evaluate_run, load_run

    metrics = evaluate_run(
        load_run(args.run, "latest" if args.checkpoint is None else args.checkpoint), args.corpus, args.stage
    )
    if args.json:
        print(json.dumps(metrics))
    else:
        show_metrics(metrics)
    gains = [metrics["unigram_entropy"] - metrics.get(name, math.nan) for name in MLM]
    code = 0
    for flag, loss, gain in zip(GATES, ("MLM loss", "MLM loss of hidden tokens"), gains, strict=True):
        gate = getattr(args, flag)
        if gate is not None and not gain >= gate:
            code = 1
            print(
                f"bertzoo: the {loss} is {gain:.3f} nats below the held-out unigram entropy of "
                f"{metrics['unigram_entropy']:.3f} nats, less than --{flag}={gate}. The model has learnt little but "
                "word frequencies. Train it longer.",
                file=sys.stderr,
            )
    return code


def show_metrics(metrics: dict) -> None:
    """Print a run's metrics, from `runs.load_model.evaluate_run`, as a table."""
    from bertzoo.runs.report import QUALITY, title

    print(f"step {metrics['step']}, {metrics['rows']:,} held-out rows of {metrics['max_length']} tokens")
    kinds = {name: kind for name in metrics for kind in QUALITY if name.endswith(kind)}
    names = [name for kind in QUALITY for name in kinds if kinds[name] == kind]
    rows = [(title(name, metrics), with_unit(name, metrics[name])) for name in names]
    unigram, cross = metrics["unigram_entropy"], metrics["unigram_cross_entropy"]
    rows.append(("unigram entropy", f"{unigram:8.3f}  nats; what word frequencies alone can reach"))
    rows.append(("unigram cross entropy", f"{cross:8.3f}  nats; training word frequencies on the held-out text"))
    for name, note in zip(MLM, ("", "; the other tokens are visible in the input"), strict=True):
        if name in metrics:
            rows.append((f"{title(name, metrics)} below the entropy", f"{unigram - metrics[name]:8.3f}  nats{note}"))
    width = 1 + max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"  {name:{width}}{text}")


def with_unit(name: str, number: float) -> str:
    """Format the value of the metric `name` with its unit."""
    from bertzoo.runs.report import SHARES

    if name.endswith(SHARES):
        return f"{100 * number:8.1f}  %"
    return f"{number:8.3f}" + ("" if name.endswith("auc") else "  nats")
