"""What int8-static costs a fine-tuned model, with and without a second training by `--quantise=int8`.

    python -m benchmarks phone.int8 --model=MODEL --data=glue --tasks=sst2,mrpc --epochs=3 --int8.epochs=1

Each seed's float32 model becomes an int8-static file. The model is then trained again with --quantise=int8, and becomes
another file. `bertzoo convert` scores both files on the whole development set. Options that are not known here go to
every run, --TASK.option to one task's, --int8.option to the runs with --quantise=int8. With --int8.alpha the float32
model is their teacher. Finished work is kept.
Fails if the files of trained int8 have a median more than half a point below the float32 runs'.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results, tables
from benchmarks.lib.program import bertzoo, finetune
from bertzoo.export.companions import companions
from bertzoo.tasks.glue import GLUE

FOLDERS = {"sst2": "SST-2", "mrpc": "MRPC", "cola": "CoLA", "stsb": "STS-B", "rte": "RTE", "qnli": "QNLI"}
TEXTS = 100  # training examples that set the scales
LOST = 0.5  # target: points, as in MobileBERT's Table 6


def options_of(task: str, data: Path, more: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of the task's runs, and those that its int8 runs have too."""
    of_task = [word.replace(f"--{task}.", "--", 1) for word in more if word.startswith(f"--{task}.")]
    shared = [word for word in more if not word.startswith(tuple(f"--{name}." for name in (*FOLDERS, "int8")))]
    int8 = [word.replace("--int8.", "--", 1) for word in more if word.startswith("--int8.")]
    common = [f"--task={task}", f"--data_dir={data / FOLDERS[task]}", *shared, *of_task]
    return common, ["--quantise=int8", *int8]


def texts(task: str, data: Path, file: Path) -> Path:
    """A file of the first training examples, as --calibration reads them."""
    examples = GLUE[task].read("train", str(data / FOLDERS[task])).examples[:TEXTS]
    pairs = [(" ".join(text.split()) for text in (one.text_a, one.text_b) if text) for one in examples]
    file.write_text("\n".join("\t".join(pair) for pair in pairs), encoding="utf-8")
    return file


def file_scores(model: Path, calibration: Path) -> dict[str, float]:
    """Mean scores in points of a seed's model ("model") and of its int8-static file ("file")."""
    file = model.with_name("static.tflite")
    if not file.exists():
        print(f"{file}: bertzoo converts and scores", flush=True)
        options = ["--to=litert", "--precision=int8-static", "--examples=0", f"--calibration={calibration}"]
        bertzoo("convert", str(model), str(file), *options)
    scores = json.loads(file.with_name(companions(file)[0]).read_text(encoding="utf-8"))["scores"]
    return {side: statistics.fmean(scores[side].values()) for side in ("model", "file")}


def row(task: str, data: Path, model: str, runs: Path, seeds: int, more: Sequence[str]) -> dict[str, Any]:
    """A task's row: median, least and greatest score over the seeds, and what the medians lose."""
    common, int8 = options_of(task, data, more)
    plain = runs / f"{task}-float32"
    finetune([*common, f"--from={model}", f"--seeds={seeds}"], plain)
    pairs = []
    for seed in range(seeds):
        trained, first = runs / f"{task}-int8" / str(seed), plain / f"seed-{seed}" / "model"
        teacher = [f"--teacher={first}"] if any(word.startswith("--alpha=") for word in int8) else []
        # Seed 0 draws the same training examples as for the float32 run.
        finetune([*common, *int8, *teacher, f"--from={first}", "--keep_head=true", "--seed=0", "--seeds=1"], trained)
        pairs.append((first, trained / "seed-0" / "model"))
    calibration = texts(task, data, runs / f"{task}.txt")
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
    parser = results.parser("int8", __doc__)
    parser.add_argument("--model", required=True, help="the model that is fine-tuned")
    parser.add_argument("--data", required=True, type=Path, help="the folder of GLUE's folders")
    parser.add_argument("--tasks", default="sst2,mrpc", help=f"of {', '.join(FOLDERS)} (default: %(default)s)")
    results.add_numbers(parser, seeds=5)
    parser.add_argument("--runs", type=Path, default=Path("runs/int8"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    rows = [row(task, args.data, args.model, args.runs, args.seeds, more) for task in args.tasks.split(",")]
    packages = results.packages("litert-converter", "ai-edge-litert", "litert-quantizer")
    results.write(args.out, [f"{args.seeds} seeds", packages], {"scores": rows})
