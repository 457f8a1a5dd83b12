"""Measure a run on its held-out text, or a fine-tuned model on its task.

MODEL is a pretraining run, a fine-tuning run (its best seed), RUN/seed-N, a model or Hugging Face directory with a head
for labels, questions or vectors of texts, or a file that `bertzoo convert` wrote, which runs in the runtime of its
format. A model that embeds texts is scored on stsb, on its own pairs, or on --task=sts, pair_classification or
clustering with --input=FILE (columns sentence1, sentence2, score; or text, label), or --task=retrieval with
--data_dir=DIR (corpus.jsonl, queries.jsonl, qrels/test.tsv).

examples:
  bertzoo evaluate runs/demo
  bertzoo evaluate runs/own --input=later.csv
  bertzoo evaluate minilm.tflite --task=retrieval --data_dir=help
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.api.options import PRETRAINED, EvaluateOptions
from bertzoo.cli.support import json_field
from bertzoo.core.options import option, reject

MLM = ("mlm_loss", "mlm_hidden_loss")  # compared with the unigram entropy
GATES = ("below_unigram", "hidden_below_unigram")  # the flag for each loss of MLM


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(EvaluateOptions):
    below_unigram: float | None = option(
        "exit with 1 unless the MLM loss is this far below the unigram entropy of the text (default: no check)",
        None,
        group=PRETRAINED,
        metavar="NATS",
    )
    hidden_below_unigram: float | None = option(
        "like --below_unigram, but without the selected tokens that masking leaves unchanged, because a model can "
        "copy them (default: no check)",
        None,
        group=PRETRAINED,
        metavar="NATS",
    )
    json: bool = json_field()


def main(options: EvaluateFlags) -> int:
    from bertzoo.api.models import measure
    from bertzoo.export.file_model import is_pretraining
    from bertzoo.train.step import keep_programs

    keep_programs()
    if not is_pretraining(options.path):
        reject(options, GATES, f"{options.path}, which is a fine-tuned model")
    results, unit = measure(options)
    if options.json:
        print(json.dumps(results))
    elif not unit:
        show_metrics(results)
    else:
        for split, scores in results["scores"].items():
            line = ", ".join(f"{name} {value:.2f}" for name, value in scores.items())
            examples = f"{results['examples'][split]:,} {unit}s"
            print(f"{results['task']}, {Path(options.input).name if options.input else split}, {examples}: {line}")
        if results.get("collapsed"):
            print(f"every {unit} got the same prediction")
    return 0 if unit else _check_gates(options, results)


def _check_gates(options: EvaluateFlags, metrics: dict[str, Any]) -> int:
    """Return the exit code: 1, with a message, if a loss is not far enough below the unigram entropy."""
    code = 0
    for flag, name, loss in zip(GATES, MLM, ("MLM loss", "MLM loss of hidden tokens"), strict=True):
        gain, gate = metrics["unigram_entropy"] - metrics.get(name, math.nan), getattr(options, flag)
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
    from bertzoo.runs.report import QUALITY, SHARES, title

    def with_unit(name: str) -> str:
        if name.endswith(SHARES):
            return f"{100 * metrics[name]:8.1f}  %"
        return f"{metrics[name]:8.3f}{'' if name.endswith('auc') else '  nats'}"

    print(f"step {metrics['step']}, {metrics['rows']:,} held-out rows of {metrics['max_length']} tokens")
    kinds = {name: kind for name in metrics for kind in QUALITY if name.endswith(kind)}
    rows = [(title(name, metrics), with_unit(name)) for kind in QUALITY for name in kinds if kinds[name] == kind]
    unigram, cross = metrics["unigram_entropy"], metrics["unigram_cross_entropy"]
    rows.append(("unigram entropy", f"{unigram:8.3f}  nats; what word frequencies alone can reach"))
    rows.append(("unigram cross entropy", f"{cross:8.3f}  nats; training word frequencies on the held-out text"))
    for name, note in zip(MLM, ("", "; the other tokens are visible in the input"), strict=True):
        if name in metrics:
            rows.append((f"{title(name, metrics)} below the entropy", f"{unigram - metrics[name]:8.3f}  nats{note}"))
    width = 1 + max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"  {name:{width}}{text}")
