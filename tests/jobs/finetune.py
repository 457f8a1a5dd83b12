"""A fake of the command `bertzoo`: it writes the files of a fine-tuning or pruning run without training.

What a run does, the file `behaviour.json` of the working directory says, by a part of its command line: `exit`, the
code it ends with after saying `say`; `wait`, until it is told to stop; `together`, until so many are at work;
`stubborn`: it does not hear SIGTERM; `silent`: it leaves no results; `damaged`: it leaves bad ones. Every run is a line
of `calls`.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    line = " ".join(sys.argv[1:])
    options = dict(word[2:].split("=", 1) for word in sys.argv[3:])
    devices = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "TPU_VISIBLE_CHIPS") if name in os.environ}
    does = {}
    for part, what in json.loads(Path("behaviour.json").read_text()).items():
        does |= what if part in line else {}
    if "wait" in does:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if does.get("stubborn") else lambda *_: sys.exit(3))
    with open("calls", "a") as calls:
        calls.write(json.dumps({"line": line, "devices": devices, "pid": os.getpid()}) + "\n")
    while "wait" in does or len(Path("calls").read_text().splitlines()) < does.get("together", 0):
        time.sleep(0.02)
    if "say" in does:
        print(does["say"], file=sys.stderr)
    if "exit" in does:
        if does["exit"] < 0:
            os.kill(os.getpid(), -does["exit"])
        return does["exit"]
    if sys.argv[1] == "prune":
        write_pruned(Path(options["run_dir"]), float(options["weigh.gamma"]), does.get("silent", False))
    elif not does.get("silent"):
        write(Path(options["run_dir"]), options["task"], float(options.get("alpha", 0)), does.get("damaged", False))
    return 0


def write(run: Path, task: str, alpha: float, damaged: bool) -> None:
    """Two seeds, whose scores are known from alpha; 0.9 is the best."""
    run.mkdir(parents=True, exist_ok=True)
    score = 60 - 100 * abs(alpha - 0.9)
    split = {"dev": {"matthews" if task == "cola" else "accuracy": score}}
    seed = {"step": 1, "collapsed": False, "scores": split, "history": []}
    results = {
        "version": 1,
        "task": task,
        "model": {"kind": "bert", "parameters": 4_000_000},
        "from": "runs/first",
        "config": {"task": task},
        "seeds": [{**seed, "seed": i, "epoch": i + 1, "score": score + i} for i in range(2)],
        "median": split,
        "min": split,
        "max": split,
    }
    (run / "results.json").write_text("{" if damaged else json.dumps(results))


def write_pruned(run: Path, gamma: float, silent: bool) -> None:
    """A pruning of one iteration, whose held-out loss is known from gamma; 0.1 is the best. silent: no evaluation."""
    (run / "model").mkdir(parents=True)
    for name, loss in (("1-weigh", 9.0), ("1-tune", 4 + abs(gamma - 0.1))):
        lines = [{"split": "train", "step": 1, "loss": loss}, {"split": "heldout", "step": 2, "loss": loss}]
        folder = run / "iterations" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[: 1 if silent else 2]))


if __name__ == "__main__":
    sys.exit(main())
