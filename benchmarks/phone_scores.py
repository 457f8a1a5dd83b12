"""What quantisation costs a fine-tuned model in points of its task, for the section that phone.py writes."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.finetuning import predict_labels

PRECISIONS = ("fp32", "int8-dynamic", "int8-static")
TEXTS = 100  # of the task's training examples, that set the scales of int8-static
LOST = 0.5  # points that int8-dynamic may be below the model


def scores(run: Path, kept: Path) -> dict[str, Any]:
    """Of every precision what `bertzoo convert` finds on all of the development set; what lies under kept is read.

    Returns the task, the number of examples, and by precision and for the "model" itself the scores in points.
    """
    model = predict_labels.load(run)
    task = model.task()
    kept.mkdir(parents=True, exist_ok=True)
    texts = kept / "texts.txt"
    if not texts.exists():
        examples = task.read("train", model.recipe.data_dir).examples[:TEXTS]
        pairs = [(" ".join(text.split()) for text in (each.text_a, each.text_b) if text) for each in examples]
        texts.write_text("\n".join("\t".join(pair) for pair in pairs))
    shape, count = model.pretrained.model, model.pretrained.parameter_count
    kind = f"{shape.kind}, {shape.layers} layers, {count / 1e6:.1f} M"
    found: dict[str, Any] = {"kind": kind, "task": task.name, "metrics": list(task.metrics)}
    for precision in PRECISIONS:
        file = kept / f"{precision}.tflite"
        if not file.exists():
            print(f"{file}: bertzoo converts and scores", flush=True)
            more = [f"--calibration={texts}"] if precision == "int8-static" else []
            words = ["convert", str(run), str(file), "--to=litert", f"--precision={precision}", "--examples=0", *more]
            done = subprocess.run([sys.executable, "-m", "bertzoo", *words], capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"bertzoo {' '.join(words)} fails: {done.stderr[-2000:]}")
        said = json.loads(file.with_suffix(".json").read_text())["scores"]
        found |= {"examples": said["examples"], "model": said["model"], precision: said["file"]}
    return found


def lost(found: dict[str, Any], precision: str) -> float:
    """Points of a task's mean score that a precision is below the model; negative where it is above."""
    return average(found, "model") - average(found, precision)


def average(found: dict[str, Any], which: str) -> float:
    """The mean of a task's metrics, in points."""
    values: Sequence[float] = [found[which][metric] for metric in found["metrics"]]
    return sum(values) / len(values)
