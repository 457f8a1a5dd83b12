"""What quantisation costs a fine-tuned model in points of its task, for converters.py."""

import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.lib.program import bertzoo
from bertzoo.export.companions import companions
from bertzoo.finetuning.evaluate import load_task_model

PRECISIONS = ("fp32", "int8-dynamic", "int8-static")
TEXTS = 100  # training examples that set the scales of int8-static
LOST = 0.5  # target: points that int8-dynamic may be below the model


def score_row(run: Path, folder: Path) -> dict[str, Any]:
    """Mean scores on the development set of a run's model and of its file of every precision, in points.

    Files and what `bertzoo convert` found of them are kept under the folder.
    """
    folder = folder / hashlib.sha256(str(run).encode()).hexdigest()[:12]
    model = load_task_model(run)
    task = model.task().task
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.txt"
    if not texts.exists():
        examples = task.read("train", model.recipe.data_dir).examples[:TEXTS]
        pairs = [(" ".join(text.split()) for text in (example.text_a, example.text_b) if text) for example in examples]
        texts.write_text("\n".join("\t".join(pair) for pair in pairs))
    shape, size = model.pretrained.model, model.pretrained.parameter_count
    title = f"{shape.kind}, {shape.layers} layers, {size / 1e6:.1f} M"
    points: dict[str, float] = {}
    count = 0
    for precision in PRECISIONS:
        file = folder / f"{precision}.tflite"
        if not file.exists():
            print(f"{file}: bertzoo converts and scores", flush=True)
            more = [f"--calibration={texts}"] if precision == "int8-static" else []
            options = ["--to=litert", f"--precision={precision}", "--examples=0", *more]
            bertzoo("convert", str(run), str(file), *options)
        scores = json.loads(file.with_name(companions(file)[0]).read_text())["scores"]
        for name, kind in ((precision, "file"), ("points", "model")):
            points[name] = statistics.fmean(scores[kind][metric] for metric in task.metrics)
        count = scores["examples"]
    row: dict[str, Any] = {"model": title, "task": task.name, "examples": count, "metrics": ", ".join(task.metrics)}
    row |= {name: round(points[name], 2) for name in ("points", *PRECISIONS)}
    return row | {"met": points["points"] - points["int8-dynamic"] <= LOST}
