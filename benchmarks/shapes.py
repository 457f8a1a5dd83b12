"""schuBERT's seven published shapes beside BERT with fewer layers, in LiteRT: parameters, file, latency.

    python benchmarks/shapes.py

One `bertzoo benchmark` of all of them: classifiers with random weights, one thread, rows of 128 tokens. The section of
docs/results.md and docs/shapes.png are then written anew. Needs the extra litert. Nothing else should run beside it.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import write_section

PICTURE = Path(__file__).parent.parent / "docs" / "shapes.png"
BASE = "bert_base"
SHAPES = tuple(f"schubert_{size}" for size in ("99m", "88m", "77m", "66m", "55m", "43m", "33m"))
FEWER = ("bert_9l", "bert_6l", "bert_4l", "bert_3l")
MODELS = (BASE, *SHAPES, *FEWER)


def section(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of what `bertzoo benchmark --json` has in its rows, the largest model first."""
    rows = {row["model"]: row for row in found}
    taken = {name: [statistics.median(each) for each in row["rounds_ms"]] for name, row in rows.items()}
    base = taken[BASE]
    lines = []
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["parameters"]):
        share = statistics.median(one / other for one, other in zip(taken[name], base, strict=True))
        cells = f"{row['parameters'] / 1e6:.1f} | {row['flops'] / 1e9:.2f} | {row['file_bytes'] / 1e6:.0f}"
        lines.append(f"| {name} | {cells} | {row['median_ms']:.1f} | {share:.3f} |")
    table = "\n".join(lines)
    return f"""## schuBERT's shapes on the phone's runtime

`python benchmarks/shapes.py`: the seven shapes of schuBERT's Table 14 and BERT-base with fewer layers, classifiers with
random weights in float32, LiteRT {found[0]["version"]}, one thread, one row of {found[0]["length"]} tokens, in turns;
the last column is the median of the rounds' ratios.

| model | parameters, M | GFLOPs | file, MB | median, ms | of BERT-base |
|---|---|---|---|---|---|
{table}

![latency]({PICTURE.name})"""


def main() -> None:
    """Measure, write the section and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40, help="how many of each model are counted")
    parser.add_argument("--rounds", type=int, default=8, help="turns that they are spread over")
    args = parser.parse_args()
    words = [*MODELS, f"--runs={args.runs}", f"--rounds={args.rounds}", f"--out={PICTURE}", "--json"]
    command = [sys.executable, "-m", "bertzoo", "benchmark", *words]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    write_section(Path(__file__).name, section(json.loads(said)["rows"]))


if __name__ == "__main__":
    main()
