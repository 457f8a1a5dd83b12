"""A fake of the command `bertzoo`: it makes the outputs of commands without computing anything.

What a command does, the file `behaviour.json` of the working directory says, by a part of its command line: `exit`, the
code it ends with, or minus a signal; `say`: it prints a text; `wait`, until it is told to stop; `together`, until so
many commands are at work; `stubborn`: it does not hear SIGTERM; `silent`: it leaves no output; `damaged`: it leaves bad
results; `append`: it adds a line to a file. Every command is a line of `calls`.
"""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path


def main() -> int:
    words = sys.argv[1:]
    line = " ".join(words)
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
    if "append" in does:
        with open(does["append"], "a") as file:
            file.write("one more line.\n")
    if "say" in does:
        print(does["say"], file=sys.stderr)
    if does.get("exit", 0) < 0:
        os.kill(os.getpid(), -does["exit"])
    if "exit" not in does and not (does.get("silent") and words[0] != "prune"):
        make(words, does)
    return does.get("exit", 0)


def make(words: list[str], does: dict) -> None:
    options = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
    if words[0] == "sweep":
        shutil.copytree("model", f"{options['run_dir']}/best/{options['tasks']}", dirs_exist_ok=True)
    elif words[0] == "prune":
        write_pruned(Path(options["run_dir"]), float(options["weigh.gamma"]), "silent" in does)
    elif "model.feed_forward_size" in options and words[0] == "pretrain":
        write_trained(Path(options["run_dir"]), options)
    elif "run_dir" in options and Path("model").exists():
        shutil.copytree("model", options["run_dir"], dirs_exist_ok=True)
    elif words[0] == "finetune":
        write(Path(options["run_dir"]), options["task"], float(options.get("alpha", 0)), "damaged" in does)
    elif words[0] == "convert":
        Path(words[2]).parent.mkdir(parents=True, exist_ok=True)
        Path(words[2]).write_text(f"file of {words[1]}")
        Path(f"{words[2]}.files").mkdir()
        Path(f"{words[2]}.json").write_text(json.dumps({"precision": "fp32", "bytes": 2_500_000, "scores": None}))
    elif words[0] == "phone":
        Path(words[3]).mkdir(parents=True)  # fails if it is there
        Path(words[3], "rows.bin").write_text("rows")
    elif words[0] == "evaluate":
        print(json.dumps({"scores": {"dev": {"accuracy": 81.5}}}))
    else:
        times = {"model": words[1], "median_ms": float(options.get("model.feed_forward_size", 125)) / 100}
        print(json.dumps({"rows": [times]}))


def write(run: Path, task: str, alpha: float, damaged: bool) -> None:
    """Two seeds, whose scores are known from alpha; 0.9 is the best."""
    run.mkdir(parents=True, exist_ok=True)
    score = 60 - 100 * abs(alpha - 0.9)
    split = {"dev": {"matthews" if task == "cola" else "accuracy": score}}
    seed = {"step": 1, "collapsed": False, "scores": split, "history": []}
    results = {
        **{"version": 1, "task": task, "model": {"kind": "bert", "parameters": 4_000_000}, "from": "runs/first"},
        **{"config": {"task": task}, "median": split, "min": split, "max": split},
        "seeds": [{**seed, "seed": i, "epoch": i + 1, "score": score + i} for i in range(2)],
    }
    (run / "results.json").write_text("{" if damaged else json.dumps(results))


def write_trained(run: Path, options: dict[str, str]) -> None:
    """Add a held-out line, whose loss is best for 40 units and falls with the steps."""
    run.mkdir(parents=True, exist_ok=True)
    steps = int(options.get("stages.0.steps", 64))
    loss = 2 + abs(int(options["model.feed_forward_size"]) - 40) / 100 + 1 / steps
    with open(run / "metrics.jsonl", "a") as file:
        for split in ("train", "heldout"):
            file.write(json.dumps({"split": split, "step": steps, "loss": loss}) + "\n")


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
