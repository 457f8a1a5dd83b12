"""Models side by side in LiteRT: parameters, size, latency; by default schuBERT's shapes, and BERT with fewer layers.

    python -m benchmarks phone.shapes
    python -m benchmarks phone.shapes --models=runs/hour/modern/modern,runs/hour/modern_both/modern_both --lengths=96

One `bertzoo benchmark` of all of them, one thread, one sequence; a config has random weights. The ratios are to the
first model. Also draws milliseconds over parameters. Needs the extra litert. Nothing else should run at the same time.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lib import results, tables
from benchmarks.lib.program import bertzoo

SHAPES = tuple(f"schubert_{size}" for size in ("99m", "88m", "77m", "66m", "55m", "43m", "33m"))
MILLIONS, TIME = "parameters, M", "median, ms"
MODELS = ("bert_base", *SHAPES, "bert_9l", "bert_6l", "bert_4l", "bert_3l")


def draw(rows: Sequence[tables.Row], path: Path) -> None:
    """Milliseconds over parameters, a line for each family of names."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, family in enumerate(dict.fromkeys(row["model"].partition("_")[0] for row in rows)):
        points = [row for row in rows if row["model"].partition("_")[0] == family]
        axes.plot([row[MILLIONS] for row in points], [row[TIME] for row in points], "o-", alpha=0.8, label=family)
        side = {"ha": "right", "xytext": (-5, 5)} if number % 2 else {"ha": "left", "xytext": (5, -10)}
        for row in points:
            axes.annotate(row["model"], (row[MILLIONS], row[TIME]), textcoords="offset points", fontsize=8, **side)
    axes.set(xlabel="parameters, millions", ylabel="milliseconds, one thread")
    axes.margins(0.25, 0.1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, write the result and draw it."""
    parser = results.parser("shapes", __doc__)
    results.add_numbers(parser, runs=40, rounds=8, lengths=128)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    args = parser.parse_args()
    names = args.models.split(",")
    options = [f"--runs={args.runs}", f"--rounds={args.rounds}", f"--lengths={args.lengths}", "--json"]
    rows = json.loads(bertzoo("benchmark", *names, *options))["rows"]
    times = {row["model"]: [statistics.median(seconds) for seconds in row["rounds_ms"]] for row in rows}
    table = []
    for row in sorted(rows, key=lambda row: -row["parameters"]):
        ratios = [ours / base for ours, base in zip(times[row["model"]], times[names[0]], strict=True)]
        cells = {"model": Path(row["model"]).name, MILLIONS: round(row["parameters"] / 1e6, 1)}
        cells |= {"GFLOPs": round(row["flops"] / 1e9, 2), "file, MB": round(row["file_bytes"] / 1e6)}
        cells |= {TIME: round(row["median_ms"], 1 if row["median_ms"] > 10 else 2)}
        cells |= {f"of {Path(names[0]).name}": round(statistics.median(ratios), 3)}
        table.append(cells)
    draw(table, results.picture(args.out))
    context = [f"LiteRT {rows[0]['version']}, one thread, one sequence of {rows[0]['length']} tokens"]
    results.write(args.out, context, {"models": table})
