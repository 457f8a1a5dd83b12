"""What α does in fine-tuning with a teacher: SqueezeBERT's distillation on a task of GLUE, in several shares.

    python benchmarks/distillation.py --task=mrpc --data=glue/MRPC --teacher=TEACHER --student=STUDENT --epochs=3

A teacher is fine-tuned from the one model; students from the other, with several seeds each, learn α of the labels and
1 - α of what the teacher says of the same examples. Options that are not known here are those of every run. Each run is
resumed if need be; the section in docs/results.md is then written anew.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pages import write_section

ALPHAS = (1.0, 0.8, 0.5, 0.0)


def finetuned(words: Sequence[str], run: Path) -> dict[str, Any]:
    """What a run came to."""
    command = [sys.executable, "-m", "bertzoo", "finetune", "finetune", *words, f"--run_dir={run}"]
    subprocess.run(command, check=True)
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


def commands(args: argparse.Namespace, more: Sequence[str]) -> dict[str, list[str]]:
    """The options of every run by its name; the teacher's, of one seed, comes first."""
    shared = [f"--task={args.task}", f"--data_dir={args.data}", *more]
    made = {"teacher": [*shared, f"--from={args.teacher}", "--seeds=1"]}
    for alpha in ALPHAS:
        taught = [] if alpha == 1 else [f"--alpha={alpha}", f"--teacher={args.runs / 'teacher'}"]
        made[f"alpha_{alpha}"] = [*shared, f"--from={args.student}", f"--seeds={args.seeds}", *taught]
    return made


def section(found: dict[str, dict[str, Any]], args: argparse.Namespace, more: Sequence[str]) -> str:
    """Markdown."""
    teacher, *students = found.values()
    names = [(split, name) for split, scores in teacher["median"].items() for name in scores]
    head = [f"{split} {name}" if len(teacher["median"]) > 1 else name for split, name in names]
    rows = [
        ("teacher", teacher),
        *((f"student, α = {alpha:g}", one) for alpha, one in zip(ALPHAS, students, strict=True)),
    ]
    for index, (called, one) in enumerate(rows):
        if collapsed := sum(seed["collapsed"] for seed in one["seeds"]):
            rows[index] = f"{called}; {collapsed} collapsed to one class", one
    lines = [
        " | ".join([f"| {called}", str(len(one["seeds"])), *(scored(one, *name) for name in names)]) + " |"
        for called, one in rows
    ]
    kinds = [
        f"{one['model']['kind']} of {one['model']['parameters'] / 1e6:.1f} M parameters"
        for one in (teacher, students[0])
    ]
    given = ["--task=" + args.task, f"--data={Path(args.data).name}", f"--teacher={Path(args.teacher).name}"]
    given += [f"--student={Path(args.student).name}", f"--seeds={args.seeds}", *more]
    table = "\n".join([f"| run | seeds | {' | '.join(head)} |", "|---|---|" + "---|" * len(head), *lines])
    return f"""## What a teacher adds in fine-tuning

{args.task}, {teacher["examples"]["train"]:,} examples. The teacher is a {kinds[0]};
its students, a {kinds[1]}, learn α of the labels and 1 - α of what it says.
Of several seeds the median, with the least and the greatest, on the development set.

{table}

```bash
python benchmarks/distillation.py {" ".join(given)}
```"""


def scored(found: dict[str, Any], split: str, name: str) -> str:
    """A score with its range over the seeds."""
    least, median, most = (found[what][split][name] for what in ("min", "median", "max"))
    return f"{median:.2f}" if len(found["seeds"]) == 1 else f"{median:.2f} ({least:.2f} to {most:.2f})"


def main() -> None:
    """Run the teacher and its students, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True, help="a task of GLUE")
    parser.add_argument("--data", required=True, help="where its files are")
    parser.add_argument("--teacher", required=True, help="the model that the teacher is fine-tuned from")
    parser.add_argument("--student", required=True, help="the model that students are fine-tuned from")
    parser.add_argument("--seeds", type=int, default=5, help="of every α (default: 5)")
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"), help="where the runs are kept")
    args, more = parser.parse_known_args()
    found = {name: finetuned(words, args.runs / name) for name, words in commands(args, more).items()}
    write_section(Path(__file__).name, section(found, args, more))


if __name__ == "__main__":
    main()
