"""A run killed at random moments, and damaged files: the figures of docs/reliability.md.

    python -m benchmarks reliability.kills

The demo runs once undisturbed, and once with SIGKILL to all its processes at 20 moments, after none to three more of
its checkpoints, every other one while another is being written; the same command resumes it each time. Both must end
with the same parameters and the same held-out losses, bit for bit. Then tests/test_fuzz.py gives each reader 10,000
damaged files. Runs are kept under --runs. Fails if the ends differ, a process ends by itself too early, or a reader
fails. Needs the extra test.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.lib import results
from bertzoo.runs import any_model, provenance

ROOT = Path(__file__).parents[2]
OPTIONS = ["--run.save_every=20", "--run.evaluate_every=100"]  # so that a save is never far
MORE = 3  # checkpoints at most from one kill to the next
WAIT, WAIT_SAVING = (0.0, 10.0), (0.0, 0.1)  # seconds to the kill, after a checkpoint or the first file of another
POLL = 0.005  # seconds
FUZZED = re.compile(r"fuzzed (.*?): (\d+) files, (\d+) refused, (\d+) MB$", re.MULTILINE)


class Kill(NamedTuple):
    """seconds: since the start; step: of the newest checkpoint then; saving: whether one was being written."""

    seconds: float
    step: int
    saving: bool


def complete(run: Path) -> set[str]:
    """The steps of a run's complete checkpoints."""
    names = {path.name for path in (run / "checkpoints").glob("*")}
    return {name for name in names if name.isdecimal() and f"{name}.sha256.json" in names}


class SaveWatch:
    """Tells whether a process is writing a checkpoint; what an earlier process left unfinished does not count."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.left = self._unfinished()

    def _unfinished(self) -> set[str]:
        names, whole = {path.name for path in (self.run / "checkpoints").glob("*")}, complete(self.run)
        return {name for name in names if name not in whole and not name.endswith(".sha256.json")}

    def saving(self) -> bool:
        """Whether a checkpoint is unfinished; a name that was left over counts again once it has been removed."""
        unfinished = self._unfinished()
        self.left &= unfinished
        return bool(unfinished - self.left)


def start(run: Path, config: str) -> subprocess.Popen:
    """Start or resume the run."""
    command = [sys.executable, "-m", "bertzoo", "pretrain", config, *OPTIONS, f"--run_dir={run}"]
    with (run.parent / f"{run.name}.log").open("a") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def kill_once(run: Path, begin: Callable[[], subprocess.Popen], draw: random.Random, saving: bool) -> Kill | None:
    """Kill after some more checkpoints, at a random moment or during the next save; None if the run ended before."""
    watch, before, more = SaveWatch(run), complete(run), draw.randint(0, MORE)
    started, process = time.monotonic(), begin()
    while process.poll() is None and len(complete(run) - before) < more:
        watch.saving()  # notices when a leftover is removed
        time.sleep(POLL)
    while process.poll() is None and not watch.saving() and saving:
        time.sleep(POLL)
    until = time.monotonic() + draw.uniform(*(WAIT_SAVING if saving else WAIT))
    while time.monotonic() < until:
        watch.saving()
        time.sleep(POLL)
    if process.poll() is not None:
        return None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return Kill(time.monotonic() - started, max(map(int, complete(run)), default=0), watch.saving())


def run_killed(run: Path, config: str, times: int, seed: int) -> list[Kill]:
    """Run to the end with so many kills; the kills of an earlier call are read."""
    file, draw = run.with_suffix(".kills.json"), random.Random(seed)
    settings = {"config": config, "options": OPTIONS, "times": times, "seed": seed}
    if file.exists():
        record = json.loads(file.read_text())
        if record["settings"] != settings:
            sys.exit(f"{run} was killed under {record['settings']}, not {settings}: give another --runs")
        return [Kill(*kill) for kill in record["kills"]]
    kills: list[Kill] = []
    for index in range(times):
        kill = kill_once(run, lambda: start(run, config), draw, saving=index % 2 == 1)
        if kill is None:
            sys.exit(f"{run} ended by itself after {len(kills)} kills: see {run}.log")
        kills.append(kill)
        print(f"kill {index + 1} of {times}: {kill}", flush=True)
    if start(run, config).wait():
        sys.exit(f"{run} does not end: see {run}.log")
    file.write_text(json.dumps({"settings": settings, "kills": kills}))
    return kills


def outcome(run: Path) -> tuple[dict[str, np.ndarray], set[tuple[Any, ...]]]:
    """A run's parameters and its lines of held-out losses; equal lines of a repeated step count once."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    heldout = [line for line in lines if line.get("split") == "heldout"]
    shown = [[key for key in sorted(line) if key.endswith(("stage", "step", "loss", "accuracy"))] for line in heldout]
    losses = {tuple((key, line[key]) for key in keys) for line, keys in zip(heldout, shown, strict=True)}
    return dict(any_model.read_model(run).params), losses


def differences(whole: Path, killed: Path) -> list[str]:
    """Names of parameters that differ in a bit, and "held-out losses" if they differ."""
    (params, losses), (others, other_losses) = outcome(whole), outcome(killed)
    names = [name for name in params.keys() | others.keys() if not _same(params.get(name), others.get(name))]
    return names + (["held-out losses"] if losses != other_losses or not losses else [])


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def fuzz(count: int) -> list[dict[str, Any]]:
    """By reader the damaged files, those that it rejected, and the MB that its process grew by."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "slow", "-rP", "tests/test_fuzz.py"]
    environment = os.environ | {"BERTZOO_FUZZ": str(count)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} fails:\n{done.stdout[-4000:]}")
    return [
        {
            "reader": name,
            "damaged files": int(files),
            "rejected": int(rejected),
            "MB that the process grew by": int(grown),
        }
        for name, files, rejected, grown in FUZZED.findall(done.stdout)
    ]


def kill_rows(kills: Sequence[Kill]) -> list[dict[str, Any]]:
    """The table of the kills."""
    headings = ("seconds after the start", "step of the newest complete checkpoint", "during a save")
    moments = [(round(kill.seconds, 1), kill.step, kill.saving) for kill in kills]
    return [{"kill": index + 1, **dict(zip(headings, row, strict=True))} for index, row in enumerate(moments)]


def main() -> None:
    """Run what has not been run, compare, and write the result."""
    parser = results.parser("reliability", __doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/reliability"), help="where the runs are kept")
    parser.add_argument("--config", default="demo")
    results.add_numbers(parser, kills=20, seed=0, files=10_000)
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    whole, killed = args.runs / "whole", args.runs / "killed"
    if start(whole, args.config).wait():  # returns at once if it has ended
        sys.exit(f"{whole} does not end: see {whole}.log")
    kills = run_killed(killed, args.config, args.kills, args.seed)
    if different := differences(whole, killed):
        sys.exit(f"{killed} and {whole} differ in {', '.join(different[:5])}")
    commits = ", ".join(sorted({results.revision(provenance.read_run_json(run, run.name)) for run in (whole, killed)}))
    tables = {"kills": kill_rows(kills), "readers": fuzz(args.files)}
    results.write(args.out, [f"commit {commits}"], tables)
