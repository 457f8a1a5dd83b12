"""What quantisation costs a fine-tuned model in points of its task, for converters.py."""

import hashlib
import statistics
from pathlib import Path
from typing import Any

from benchmarks.lib.program import card, litert_file
from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.tasks.task import Task

PRECISIONS = ("fp32", "int8-dynamic", "int8-static")
TEXTS = 100  # training examples that set the scales of int8-static
LOST = 0.5  # target: points that int8-dynamic may be below the model


def calibration_texts(task: Task, data_dir: str, file: Path) -> Path:
    """A file of a task's first training examples, as --calibration reads them, written if it is missing."""
    if not file.exists():
        examples = task.read("train", data_dir).examples[:TEXTS]
        pairs = [(" ".join(text.split()) for text in (example.text_a, example.text_b) if text) for example in examples]
        file.write_text("\n".join("\t".join(pair) for pair in pairs), encoding="utf-8")
    return file


def score_row(run: Path, folder: Path) -> dict[str, Any]:
    """Mean scores on the development set of a run's model and of its file of every precision, in points.

    Files and what `bertzoo convert` found of them are kept under the folder.
    """
    folder = folder / hashlib.sha256(str(run).encode()).hexdigest()[:12]
    model = load_task_model(run)
    task = model.task().task
    folder.mkdir(parents=True, exist_ok=True)
    texts = calibration_texts(task, model.recipe.data_dir, folder / "texts.txt")
    shape, size = model.pretrained.model, model.pretrained.parameter_count
    title = f"{shape.kind}, {shape.layers} layers, {size / 1e6:.1f} M"
    points: dict[str, float] = {}
    count = 0
    for precision in PRECISIONS:
        more = [f"--calibration={texts}"] if precision == "int8-static" else []
        options = [f"--precision={precision}", "--examples=0", *more]
        scores = card(litert_file(run, folder / f"{precision}.tflite", *options))["scores"]
        for name, kind in ((precision, "file"), ("points", "model")):
            points[name] = statistics.fmean(scores[kind][metric] for metric in task.metrics)
        count = scores["examples"]
    row: dict[str, Any] = {"model": title, "task": task.name, "examples": count, "metrics": ", ".join(task.metrics)}
    row |= {name: round(points[name], 2) for name in ("points", *PRECISIONS)}
    return row | {"met": points["points"] - points["int8-dynamic"] <= LOST}
