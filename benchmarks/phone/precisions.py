"""Size and points of a fine-tuned model's files, by precision, for LiteRT and ExecuTorch.

    python -m benchmarks phone.precisions --model=MODEL --data=glue --executorch=PYTHON --sst2.train_rows=2000

PYTHON has ExecuTorch. Each task is one run of `bertzoo finetune`, whose files `bertzoo convert` scores on the whole
development set. Options that are not known here are passed to every run, --TASK.option to one task's. Finished work is
kept.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune
from benchmarks.phone.int8 import FOLDERS, options_of
from bertzoo.export.companions import companions
from bertzoo.export.options import SUFFIXES

FILES = (("litert", "fp32"), ("litert", "int8-dynamic"), ("litert", "int4-dynamic"), ("executorch", "int8-dynamic"))


def rows(task: str, args: Any, more: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each file of a task: its size in MB, its mean score and the points that it loses."""
    run, scored = args.runs / task, []
    common, _ = options_of(task, args.data, 1, more)
    finetune([*common, f"--from={args.model}"], run)
    for form, precision in FILES:
        file = run / f"{form}-{precision}{SUFFIXES[form]}"
        if not file.exists():
            print(f"{file}: bertzoo converts and scores", flush=True)
            python = [f"--python={args.executorch}"] if form == "executorch" else []
            bertzoo("convert", str(run), str(file), f"--to={form}", f"--precision={precision}", "--examples=0", *python)
        document = json.loads(file.with_name(companions(file)[0]).read_text(encoding="utf-8"))
        points = {side: statistics.fmean(document["scores"][side].values()) for side in ("file", "model")}
        row: dict[str, Any] = {"task": task, "--to": form, "--precision": precision}
        row |= {"MB": round(document["bytes"] / 1e6, 1), "points": round(points["file"], 2)}
        cosine = min(one["outputs"]["logits"]["cosine"] for one in document["signatures"].values())
        scored.append(row | {"lost": round(points["model"] - points["file"], 2), "cosine of logits": round(cosine, 4)})
    return scored


def main() -> None:
    """Train, convert and score, and write the result."""
    parser = results.parser("precisions", __doc__)
    parser.add_argument("--model", required=True, help="the model that is fine-tuned")
    parser.add_argument("--data", required=True, type=Path, help="the folder of GLUE's folders")
    parser.add_argument("--executorch", required=True, metavar="PYTHON", help="a Python with ExecuTorch")
    parser.add_argument("--tasks", default="sst2,mrpc", help=f"of {', '.join(FOLDERS)} (default: %(default)s)")
    parser.add_argument("--runs", type=Path, default=Path("runs/precisions"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    scores = [row for task in args.tasks.split(",") for row in rows(task, args, more)]
    packages = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer")
    results.write(args.out, ["one seed", packages], {"scores": scores})
