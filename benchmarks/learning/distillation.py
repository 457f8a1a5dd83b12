"""Fine-tuning with a teacher: SqueezeBERT's distillation on a GLUE task, for several weights α of the labels.

    python -m benchmarks learning.distillation --task=mrpc --data=glue/MRPC --teacher=TEACHER --student=STUDENT
    python -m benchmarks learning.distillation --task=mrpc --data=glue/MRPC --teacher=TEACHER --student_layers=1,3,5

A teacher is fine-tuned from one model; students start from the other, or from some layers of the first as DistilBERT
does (Sanh et al. 2019 §3). They learn with several seeds α of the labels and 1 - α of the teacher's predictions.
Options that are not known here are passed to every run, --teacher.option to the teacher's. Runs resume.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib import results, tables
from benchmarks.lib.program import finetune
from bertzoo.runs import load_model

ALPHAS = (1.0, 0.8, 0.5, 0.0)


def options_of_runs(args: argparse.Namespace, more: Sequence[str]) -> dict[str, list[str]]:
    """Options by run; the teacher's, of one seed, comes first."""
    teacher = [word.replace("--teacher.", "--", 1) for word in more if word.startswith("--teacher.")]
    shared = [f"--task={args.task}", f"--data_dir={args.data}"]
    shared += [word for word in more if not word.startswith("--teacher.")]
    runs = {"teacher": [*shared, *teacher, f"--from={args.teacher}", "--seeds=1"]}
    for alpha in ALPHAS:
        source = [] if alpha == 1 else [f"--alpha={alpha}", f"--teacher={args.runs / 'teacher'}"]
        runs[f"alpha_{alpha}"] = [*shared, f"--from={args.student}", f"--seeds={args.seeds}", *source]
    return runs


def shallower(path: str, layers: Sequence[int], directory: Path) -> Path:
    """A model directory with some layers of another, counted from 1, and all its other parameters."""
    whole = load_model.read_model(path)
    if not layers or not set(layers) <= set(range(1, whole.model.layers + 1)):
        sys.exit(f"--student_layers={','.join(map(str, layers))}: {path} has the layers 1 to {whole.model.layers}")
    new = {f"layers_{old - 1}": f"layers_{index}" for index, old in enumerate(layers)}
    params = {}
    for name, array in whole.params.items():
        trunk, layer, *rest = name.split("/", 2)
        if trunk != "encoder" or not layer.startswith("layers_"):
            params[name] = array
        elif layer in new:
            params["/".join([trunk, new[layer], *rest])] = array
    model = dataclasses.replace(whole.model, layers=len(layers))
    if not directory.is_dir():
        directory.mkdir(parents=True)
        load_model.write_model(dataclasses.replace(whole, model=model, params=params), directory)
    return directory


def rows_of(name: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A run's scores, one row for each metric of each split."""
    title = "teacher" if name == "teacher" else f"student, α = {float(name.removeprefix('alpha_')):g}"
    if collapsed := sum(seed["collapsed"] for seed in result["seeds"]):
        title += f"; {collapsed} collapsed to one class"
    for split, scores in result["median"].items():
        for metric in scores:
            points = [result[which][split][metric] for which in ("median", "min", "max")]
            row = {"run": title, "examples": result["examples"]["train"], "seeds": len(result["seeds"])}
            label = metric if len(result["median"]) == 1 else f"{split} {metric}"
            score = tables.spread(points, 2) if len(result["seeds"]) > 1 else round(points[0], 2)
            yield row | {"metric": label, "score": score}


def main() -> None:
    """Run the teacher and its students, and write the result."""
    parser = results.parser("distillation", __doc__)
    parser.add_argument("--task", required=True, help="a task of GLUE")
    parser.add_argument("--data", required=True, help="the folder of its files")
    parser.add_argument("--teacher", required=True, help="the model that the teacher is fine-tuned from")
    student = parser.add_mutually_exclusive_group(required=True)
    student.add_argument("--student", help="the model that students are fine-tuned from")
    student.add_argument(
        "--student_layers",
        type=lambda text: [int(word) for word in text.split(",")],
        help="or the teacher's layers that they start from, counted from 1",
    )
    results.add_numbers(parser, seeds=5)
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    if args.student_layers:
        args.student = shallower(args.teacher, args.student_layers, args.runs / "student")
    runs = {name: finetune(words, args.runs / name) for name, words in options_of_runs(args, more).items()}
    sizes = [runs[name]["model"] for name in ("teacher", f"alpha_{ALPHAS[0]}")]
    shown = [f"{size['kind']} of {size['parameters'] / 1e6:.1f} M parameters" for size in sizes]
    rows = [row for name, result in runs.items() for row in rows_of(name, result)]
    context = [f"the teacher is a {shown[0]}, its students a {shown[1]}"]
    results.write(args.out, context, {"runs": rows})
