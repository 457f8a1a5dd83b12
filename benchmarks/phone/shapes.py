"""Models side by side in LiteRT: parameters, size, latency; by default schuBERT's shapes, and BERT with fewer layers.

    python -m benchmarks phone.shapes
    python -m benchmarks phone.shapes --models=runs/hour/modern/modern,runs/hour/modern_both/modern_both --lengths=96

One `bertzoo benchmark` of all of them, one thread, a row of tokens; a name of a config has random weights. The ratios
are to the first model. Also draws a picture. Needs the extra litert. Nothing else should run at the same time.
"""

import json
import statistics
from pathlib import Path

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo

SHAPES = tuple(f"schubert_{size}" for size in ("99m", "88m", "77m", "66m", "55m", "43m", "33m"))
MODELS = ("bert_base", *SHAPES, "bert_9l", "bert_6l", "bert_4l", "bert_3l")


def main() -> None:
    """Measure, write the result and draw it."""
    parser = results.parser("shapes", __doc__)
    results.add_numbers(parser, runs=40, rounds=8, lengths=128)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    args = parser.parse_args()
    names = args.models.split(",")
    options = [f"--runs={args.runs}", f"--rounds={args.rounds}", f"--lengths={args.lengths}"]
    output = bertzoo("benchmark", *names, *options, f"--out={results.picture(args.out)}", "--json")
    rows = json.loads(output)["rows"]
    times = {row["model"]: [statistics.median(seconds) for seconds in row["rounds_ms"]] for row in rows}
    table = []
    for row in sorted(rows, key=lambda row: -row["parameters"]):
        ratios = [ours / base for ours, base in zip(times[row["model"]], times[names[0]], strict=True)]
        cells = {"model": Path(row["model"]).name, "parameters, M": round(row["parameters"] / 1e6, 1)}
        cells |= {"GFLOPs": round(row["flops"] / 1e9, 2), "file, MB": round(row["file_bytes"] / 1e6)}
        cells |= {"median, ms": round(row["median_ms"], 1 if row["median_ms"] > 10 else 2)}
        cells |= {f"of {Path(names[0]).name}": round(statistics.median(ratios), 3)}
        table.append(cells)
    context = [f"LiteRT {rows[0]['version']}, one thread, one row of {rows[0]['length']} tokens"]
    results.write(args.out, context, {"models": table})
