"""SQuAD 1.1 from a small model on a small part of its training set: F1 on articles that are held out of it.

    python benchmarks/squad.py --model=MODEL --data=train-v1.1.json --runs=runs/squad

One run learns nothing (its rate is 0) and says what the fresh head scores; the other learns for one epoch. Both are
resumed if need be; the section in docs/results.md is then written anew. Fails where the first has an F1 of 10 or more,
or the second less than 40.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pages import write_section

SHARED = [
    *("--task=squad1", "--squad.heldout=0.06", "--max_length=256", "--batch_size=16", "--seeds=1", "--epochs=1"),
    "--encoder_dropout=0",
]
RUNS = {
    "untrained": ["--train_rows=16", "--optimizer.learning_rate=0"],
    "trained": ["--train_rows=6000", "--optimizer.learning_rate=2e-4"],
}
MOST, LEAST = 10, 40  # F1 of the first, of the second


def results(name: str, model: str, data: str, runs: Path) -> dict[str, Any]:
    """What a run came to."""
    words = ["finetune", "finetune_squad", *SHARED, *RUNS[name], f"--from={model}", f"--data_dir={data}"]
    subprocess.run([sys.executable, "-m", "bertzoo", *words, f"--run_dir={runs / name}"], check=True)
    return json.loads((runs / name / "results.json").read_text(encoding="utf-8"))


def section(found: dict[str, dict[str, Any]], model: str, data: str) -> str:
    """Markdown."""
    rows = "\n".join(
        f"| {name} | {one['examples']['train']:,} | {one['median']['dev']['exact_match']:.2f}"
        f" | {one['median']['dev']['f1']:.2f} |"
        for name, one in found.items()
    )
    commands = "\n".join(
        " ".join(["bertzoo finetune finetune_squad", *SHARED, *options, f"--run_dir=runs/squad/{name}", "\\\n ",
                  f"--from={Path(model).name} --data_dir={Path(data).name}"])
        for name, options in RUNS.items()
    )  # fmt: skip
    trained = found["trained"]
    return f"""## SQuAD 1.1 on articles held out

`python benchmarks/squad.py`: {trained["model"]["kind"]}, {trained["model"]["parameters"] / 1e6:.1f} M parameters, one
seed and one epoch of rows of at most 256 tokens. {trained["examples"]["dev"]:,} questions are asked, on the articles
whose titles' hashes are in a share of 0.06; those that are learnt are drawn from the others. The untrained run has a
rate of 0.

| run | questions learnt | exact match | F1 |
|---|---|---|---|
{rows}

```bash
{commands}
```"""


def main() -> None:
    """Run both, write the section, and fail where the figures are not those that they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="what bertzoo finetune --from takes")
    parser.add_argument("--data", required=True, help="SQuAD's training file")
    parser.add_argument("--runs", type=Path, default=Path("runs/squad"), help="where the runs are kept")
    args = parser.parse_args()
    found = {name: results(name, args.model, args.data, args.runs) for name in RUNS}
    write_section(Path(__file__).name, section(found, args.model, args.data))
    before, after = (found[name]["median"]["dev"]["f1"] for name in RUNS)
    if before >= MOST or after < LEAST:
        sys.exit(f"F1 is {before:.2f} untrained and {after:.2f} trained, where it should be below {MOST} and {LEAST}")


if __name__ == "__main__":
    main()
