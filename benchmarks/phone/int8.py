"""What int8-static costs a fine-tuned model.

    python -m benchmarks phone.int8 --model=MODEL --data=glue --tasks=sst2,mrpc --epochs=3

Each seed's float32 model becomes an int8-static file, which `bertzoo convert` scores on the whole development set.
Options that are not known here go to every run, --TASK.option to one task's. Finished work is kept.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results, tables
from benchmarks.lib.program import card, check_litert, finetune, litert_file, options_of
from benchmarks.phone.task_scores import calibration_texts
from bertzoo.tasks.glue import GLUE


def file_scores(model: Path, calibration: Path) -> dict[str, float]:
    """Mean scores in points of a seed's model ("model") and of its int8-static file ("file")."""
    options = ["--precision=int8-static", "--examples=0", f"--calibration={calibration}"]
    scores = card(litert_file(model, model.with_name("static.tflite"), *options))["scores"]
    return {side: statistics.fmean(scores[side].values()) for side in ("model", "file")}


def row(task: str, data: Path, model: str, runs: Path, seeds: int, more: Sequence[str]) -> dict[str, Any]:
    """A task's row: median, least and greatest score over the seeds, and what the median loses."""
    run = runs / f"{task}-float32"
    words = [f"--task={task}", f"--data_dir={data}", *options_of(task, GLUE, more)]
    finetune([*words, f"--from={model}", f"--seeds={seeds}"], run)
    calibration = calibration_texts(GLUE[task], str(data), runs / f"{task}.txt")
    scores = [file_scores(run / f"seed-{seed}" / "model", calibration) for seed in range(seeds)]
    points = {name: [each[side] for each in scores] for name, side in (("float32", "model"), ("int8-static", "file"))}
    float32, static = (statistics.median(values) for values in points.values())
    return {
        "task": task,
        "metrics": ", ".join(GLUE[task].metrics),
        **{name: tables.spread(values, 2) for name, values in points.items()},
        "lost": round(float32 - static, 2),
    }


def main() -> None:
    """Train, convert and score, and write the result."""
    parser = results.parser("int8", __doc__, "runs/int8")
    parser.add_argument("--model", required=True, help="the model that is fine-tuned")
    parser.add_argument("--data", required=True, type=Path, help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="sst2,mrpc", help="(default: %(default)s)")
    results.add_numbers(parser, seeds=5)
    args, more = parser.parse_known_args()
    check_litert()
    args.runs.mkdir(parents=True, exist_ok=True)
    rows = [row(task, args.data, args.model, args.runs, args.seeds, more) for task in args.tasks.split(",")]
    packages = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer")
    results.write(args.out, [f"{args.seeds} seeds", packages], {"scores": rows})
