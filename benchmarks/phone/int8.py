"""What int8-static costs a fine-tuned model, with and without a second training by `--quantise=int8`.

    python -m benchmarks phone.int8 --model=MODEL --data=glue --tasks=sst2,mrpc --epochs=3 --int8.epochs=1

Each seed's float32 model becomes an int8-static file. The model is then trained again with --quantise=int8, and becomes
another file. `bertzoo convert` scores both files on the whole development set. Options that are not known here go to
every run, --TASK.option to one task's, --int8.option to the runs with --quantise=int8. With --int8.alpha the float32
model is their teacher. Finished work is kept.
Fails if the files of trained int8 have a median more than half a point below the float32 runs'.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results, tables
from benchmarks.lib.program import card, finetune, litert_file, options_of
from benchmarks.phone.task_scores import calibration_texts
from bertzoo.tasks.glue import GLUE

LOST = 0.5  # target: points, as in MobileBERT's Table 6


def file_scores(model: Path, calibration: Path) -> dict[str, float]:
    """Mean scores in points of a seed's model ("model") and of its int8-static file ("file")."""
    options = ["--precision=int8-static", "--examples=0", f"--calibration={calibration}"]
    scores = card(litert_file(model, model.with_name("static.tflite"), *options))["scores"]
    return {side: statistics.fmean(scores[side].values()) for side in ("model", "file")}


def row(task: str, data: Path, model: str, runs: Path, seeds: int, more: Sequence[str]) -> dict[str, Any]:
    """A task's row: median, least and greatest score over the seeds, and what the medians lose."""
    common = [f"--task={task}", f"--data_dir={data}", *options_of(task, (*GLUE, "int8"), more)]
    int8 = ["--quantise=int8", *(word.replace("--int8.", "--", 1) for word in more if word.startswith("--int8."))]
    plain = runs / f"{task}-float32"
    finetune([*common, f"--from={model}", f"--seeds={seeds}"], plain)
    pairs = []
    for seed in range(seeds):
        trained, first = runs / f"{task}-int8" / str(seed), plain / f"seed-{seed}" / "model"
        teacher = [f"--teacher={first}"] if any(word.startswith("--alpha=") for word in int8) else []
        # Seed 0 draws the same training examples as for the float32 run.
        finetune([*common, *int8, *teacher, f"--from={first}", "--keep_head=true", "--seed=0", "--seeds=1"], trained)
        pairs.append((first, trained / "seed-0" / "model"))
    calibration = calibration_texts(GLUE[task], str(data), runs / f"{task}.txt")
    before, after = ([file_scores(model, calibration) for model in models] for models in zip(*pairs, strict=True))
    points = {
        "float32": [scores["model"] for scores in before],
        "its int8-static": [scores["file"] for scores in before],
        "trained for int8": [scores["model"] for scores in after],
        "its int8-static file": [scores["file"] for scores in after],
    }
    float32, static, _, last = (statistics.median(values) for values in points.values())
    return {
        "task": task,
        "metrics": ", ".join(GLUE[task].metrics),
        **{name: tables.spread(values, 2) for name, values in points.items()},
        "lost": round(float32 - static, 2),
        "lost, trained": round(float32 - last, 2),
        "met": float32 - last <= LOST,
    }


def main() -> None:
    """Train, convert and score, and write the result."""
    parser = results.parser("int8", __doc__, "runs/int8")
    parser.add_argument("--model", required=True, help="the model that is fine-tuned")
    parser.add_argument("--data", required=True, type=Path, help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="sst2,mrpc", help="(default: %(default)s)")
    results.add_numbers(parser, seeds=5)
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    rows = [row(task, args.data, args.model, args.runs, args.seeds, more) for task in args.tasks.split(",")]
    packages = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer")
    results.write(args.out, [f"{args.seeds} seeds", packages], {"scores": rows})
