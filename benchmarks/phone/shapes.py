"""schuBERT's seven published shapes beside BERT with fewer layers, in LiteRT: parameters, file size, latency.

    python -m benchmarks phone.shapes

One `bertzoo benchmark` of all of them: classifiers with random weights, one thread, rows of 128 tokens. Also draws
docs/shapes.png. Needs the extra litert. Nothing else should run at the same time.
"""

import json
import statistics

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo

BASE = "bert_base"
SHAPES = tuple(f"schubert_{size}" for size in ("99m", "88m", "77m", "66m", "55m", "43m", "33m"))
MODELS = (BASE, *SHAPES, "bert_9l", "bert_6l", "bert_4l", "bert_3l")


def main() -> None:
    """Measure, write the result and draw it."""
    parser = results.parser("shapes", __doc__)
    results.add_numbers(parser, runs=40, rounds=8)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    args = parser.parse_args()
    options = [f"--runs={args.runs}", f"--rounds={args.rounds}", f"--out={results.picture(args.out)}", "--json"]
    rows = json.loads(bertzoo("benchmark", *args.models.split(","), *options))["rows"]
    times = {row["model"]: [statistics.median(seconds) for seconds in row["rounds_ms"]] for row in rows}
    table = []
    for row in sorted(rows, key=lambda row: -row["parameters"]):
        ratios = [ours / base for ours, base in zip(times[row["model"]], times[BASE], strict=True)]
        cells = {"model": row["model"], "parameters, M": round(row["parameters"] / 1e6, 1)}
        cells |= {"GFLOPs": round(row["flops"] / 1e9, 2), "file, MB": round(row["file_bytes"] / 1e6)}
        cells |= {"median, ms": round(row["median_ms"], 1), "of BERT-base": round(statistics.median(ratios), 3)}
        table.append(cells)
    context = [f"LiteRT {rows[0]['version']}, one thread, one row of {rows[0]['length']} tokens"]
    results.write(args.out, context, {"models": table})
