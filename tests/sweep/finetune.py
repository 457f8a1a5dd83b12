"""A fake of the command `bertzoo`: it writes a fine-tuning run's files without training.

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
    if not does.get("silent"):
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


if __name__ == "__main__":
    sys.exit(main())
