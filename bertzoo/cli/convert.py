"""Convert a model to Hugging Face's format, or to a file for phones.

SRC is a run, RUN/checkpoints/STEP, RUN/seed-N, a model or Hugging Face directory, a TensorFlow 1 checkpoint, or a URL
of one of these. DST must be new or empty.

Files for phones are litert and mediapipe (.tflite), onnx and onnx-text (.onnx) and executorch (.pte); those of
mediapipe and onnx-text take a string. FILE.json describes FILE; FILE.files/ has the
card, the tokenizer and test data for apps. A file whose outputs differ from the model's is not written.

examples:
  bertzoo convert runs/demo exported --to=huggingface --head=masked
  bertzoo convert bert-base-uncased bert --to=bertzoo
  bertzoo convert runs/sst2 sst2.tflite --to=litert --lengths=32,64,128 --precision=int8-dynamic
"""

from collections.abc import Iterator
from typing import Any

from bertzoo.api.options import ConvertOptions


def main(options: ConvertOptions) -> int:
    from bertzoo.api.models import run_conversion

    model, description, written = run_conversion(options)
    verb = "Wrote" if written else "Kept"
    summary = f"{verb} {options.destination}: {model.model.kind}, head {model.head.kind}, "
    summary += f"{model.parameter_count:,} parameters."
    if description is not None:
        print("\n".join(_measurements(description)))
        size, memory = (f"{description[key] / 1e6:,.1f} MB" for key in ("bytes", "memory"))
        summary += f" {description['precision']}, {size}, {memory} of memory when it runs."
    print(summary)
    return 0


def _measurements(description: dict[str, Any]) -> Iterator[str]:
    """Yield lines with the file's errors, the scores of file and model, and the number of nodes that XNNPACK runs."""
    from bertzoo.tasks.metrics import is_threshold

    for name, signature in description["signatures"].items():
        for output, errors in signature["outputs"].items():
            yield (
                f"{name}: {output} of {signature['rows']} rows: largest error {errors['max_error']:.2g} of values up "
                f"to {errors['largest']:.3g}, cosine {errors['cosine']:.6f}"
            )
    if scores := description["scores"]:
        for name, points in scores["file"].items():
            if not is_threshold(name):
                model = scores["model"][name]
                yield f"{scores['task']}, {scores['split']}: {name} {points:.2f}, the model's {model:.2f}"
    if comparison := description.get("mediapipe") or description.get("text"):
        differ, prepared = (len(comparison[key]) for key in ("differences", "prepared_differences"))
        tokenizer = f"MediaPipe's {comparison['task']}" if "task" in comparison else "onnxruntime-extensions"
        yield (
            f"{tokenizer}: {comparison['texts']} texts, largest difference {comparison['largest_difference']:.2g}. Of "
            f"{comparison['tricky']} texts with unusual characters, {differ} are tokenised differently, and {prepared} "
            "if the app prepares them (see the card)."
        )
    if "delegated" in description:
        runs, nodes, partitions = (description[name] for name in ("delegated", "nodes", "delegates"))
        yield f"XNNPACK runs {runs} of the graph's {nodes} nodes, in {partitions} partitions"
