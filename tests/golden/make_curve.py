"""Write the golden curve of a shipped config: held-out losses that golden_curve.py compares a run with.

    bertzoo pretrain demo --run_dir=runs/curve/a        # and b, c, … under other threads, other instructions
    python tests/golden/make_curve.py demo runs/curve/*

Writes curves/NAME.toml: the medians of the runs at every step that they evaluate, and the tolerance. Fails if a run has
another config or corpus, or is further from the medians than half the tolerance.
"""

import argparse
import statistics
import sys
from pathlib import Path

import golden_curve
import tomli_w

from bertzoo.runs import report

FOLDER = golden_curve.FOLDER


def main() -> None:
    """Write the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a shipped config")
    parser.add_argument("runs", nargs="+", type=Path, help="finished runs of it")
    parser.add_argument("--tolerance", type=float, default=0.02, help="nats (default: 0.02)")
    args = parser.parse_args()
    runs = [report.read_run(path) for path in args.runs]
    shipped = golden_curve.shipped(args.name)
    for run in runs:
        if different := golden_curve.differences(shipped, run.config):
            sys.exit(f"{run.directory} is not a run of {args.name}: {'; '.join(different)}")
        if run.config["data"]["source"] != shipped["data"]["source"]:
            sys.exit(f"{run.directory} has the text of {run.config['data']['source']}, not {args.name}'s own")
        if run.provenance["corpus_sha256"] != runs[0].provenance["corpus_sha256"]:
            sys.exit(f"{run.directory} was trained on another corpus than {runs[0].directory}")
    names = [key for key in report.keys(runs[0].history, "loss") if key != "loss" and not key.endswith(report.HIDDEN)]
    tables = [{line["step"]: line for line in run.history.heldout} for run in runs]
    points, furthest = [], 0.0
    for step in tables[0]:
        medians = {name: statistics.median(table[step][name] for table in tables) for name in names}
        furthest = max(furthest, *(abs(table[step][name] - medians[name]) for table in tables for name in names))
        points.append({"step": step, **{name: round(value, 4) for name, value in medians.items()}})
    print(f"{len(runs)} runs, {len(points)} steps: none is further than {furthest:.4f} nats from the medians")
    if furthest > args.tolerance / 2:
        sys.exit(f"that is more than half of --tolerance={args.tolerance:g}: give a greater one")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{args.name}.toml"
    record = {
        "corpus": f"{runs[0].config['data']['source']}, Python {runs[0].provenance['python']}",
        "corpus_sha256": runs[0].provenance["corpus_sha256"],
        "tolerance": args.tolerance,
        "points": points,
    }
    command = f"python tests/golden/make_curve.py {args.name} RUNS --tolerance={args.tolerance:g}"
    path.write_text(f"# The golden curve of {args.name}: {command}, of {len(runs)} runs.\n{tomli_w.dumps(record)}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
