"""What α does in fine-tuning with a teacher: SqueezeBERT's distillation on a task of GLUE, in several shares.

    python benchmarks/distillation.py --task=mrpc --data=glue/MRPC --teacher=TEACHER --student=STUDENT --epochs=3
    python benchmarks/distillation.py --task=mrpc --data=glue/MRPC --teacher=TEACHER --student_layers=1,3,5 --epochs=3

A teacher is fine-tuned from the one model; students, from the other or from some layers of the first as DistilBERT is
begun (Sanh et al. 2019 §3), learn with several seeds each α of the labels and 1 - α of what the teacher says of the
same examples. Options that are not known here are those of every run, --teacher.option those of the teacher's. Each run
is resumed if need be; the section in docs/results.md is then written anew.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import write_section

from bertzoo.runs import any_model

ALPHAS = (1.0, 0.8, 0.5, 0.0)


def finetuned(words: Sequence[str], run: Path) -> dict[str, Any]:
    """What a run came to."""
    command = [sys.executable, "-m", "bertzoo", "finetune", "finetune", *words, f"--run_dir={run}"]
    subprocess.run(command, check=True)
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


def commands(args: argparse.Namespace, more: Sequence[str]) -> dict[str, list[str]]:
    """The options of every run by its name; the teacher's, of one seed, comes first."""
    own = [word.replace("--teacher.", "--", 1) for word in more if word.startswith("--teacher.")]
    shared = [f"--task={args.task}", f"--data_dir={args.data}"]
    shared += [word for word in more if not word.startswith("--teacher.")]
    made = {"teacher": [*shared, *own, f"--from={args.teacher}", "--seeds=1"]}
    for alpha in ALPHAS:
        taught = [] if alpha == 1 else [f"--alpha={alpha}", f"--teacher={args.runs / 'teacher'}"]
        made[f"alpha_{alpha}"] = [*shared, f"--from={args.student}", f"--seeds={args.seeds}", *taught]
    return made


def shallower(path: str, layers: Sequence[int], made: Path) -> Path:
    """A directory with a model of some layers of another, counted from 1, and of all else that it has."""
    whole = any_model.read_model(path)
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
    if not made.is_dir():
        made.mkdir(parents=True)
        any_model.write_model(dataclasses.replace(whole, model=model, params=params), made)
    return made


def section(found: dict[str, dict[str, Any]], args: argparse.Namespace, more: Sequence[str]) -> str:
    """Markdown."""
    kinds = [
        f"{one['model']['kind']} of {one['model']['parameters'] / 1e6:.1f} M parameters"
        for one in (found["teacher"], list(found.values())[1])
    ]
    begun, student = "", f"--student={Path(args.student).name}"
    if args.student_layers:
        begun = f" begun as its layers {', '.join(map(str, args.student_layers))},"
        student = f"--student_layers={','.join(map(str, args.student_layers))}"
    given = ["--task=" + args.task, f"--data={Path(args.data).name}", f"--teacher={Path(args.teacher).name}"]
    return f"""## What a teacher adds in fine-tuning

{args.task}. The teacher is a {kinds[0]}; its students, a {kinds[1]},{begun}
learn α of the labels and 1 - α of what it says. Of several seeds the median, with the least and the greatest, on the
development set.

{table(found)}

```bash
python benchmarks/distillation.py {" ".join([*given, student, f"--seeds={args.seeds}", *more])}
```"""


def table(found: dict[str, dict[str, Any]]) -> str:
    """A row for every run, the teacher's first."""
    splits = found["teacher"]["median"]
    names = [(split, name) for split, scores in splits.items() for name in scores]
    head = ["run", "examples", "seeds", *(f"{split} {name}" if len(splits) > 1 else name for split, name in names)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for called, one in zip(["teacher", *(f"student, α = {alpha:g}" for alpha in ALPHAS)], found.values(), strict=True):
        collapsed = sum(seed["collapsed"] for seed in one["seeds"])
        cells = [f"{called}; {collapsed} collapsed to one class" if collapsed else called]
        cells += [f"{one['examples']['train']:,}", str(len(one["seeds"])), *(scored(one, *name) for name in names)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scored(found: dict[str, Any], split: str, name: str) -> str:
    """A score with its range over the seeds."""
    least, median, most = (found[what][split][name] for what in ("min", "median", "max"))
    return f"{median:.2f}" if len(found["seeds"]) == 1 else f"{median:.2f} ({least:.2f} to {most:.2f})"


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    """Run the teacher and its students, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, help="a task of GLUE")
    parser.add_argument("--data", required=True, help="where its files are")
    parser.add_argument("--teacher", required=True, help="the model that the teacher is fine-tuned from")
    student = parser.add_mutually_exclusive_group(required=True)
    student.add_argument("--student", help="the model that students are fine-tuned from")
    student.add_argument("--student_layers", type=_numbers, help="or the layers of the teacher's, counted from 1")
    parser.add_argument("--seeds", type=int, default=5, help="of every α (default: 5)")
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    if args.student_layers:
        args.student = shallower(args.teacher, args.student_layers, args.runs / "student")
    found = {name: finetuned(words, args.runs / name) for name, words in commands(args, more).items()}
    write_section(Path(__file__).name, section(found, args, more))


if __name__ == "__main__":
    main()
