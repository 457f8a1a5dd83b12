"""The demo killed at random moments, and damaged files: what docs/reliability.md says.

    python benchmarks/reliability.py

The demo is run once as it is, and once with SIGKILL to all its processes at 20 moments, after none to three more of its
checkpoints, every other one while another is being written; the same command begins it again each time. Both must end
with the same parameters and the same held-out losses, bit for bit. Then tests/test_fuzz.py gives each reader 10,000
damaged files. The page is written anew; runs are kept under --runs, and one that has ended is not run again. Fails
where the ends differ, a process ends by itself without being done, or a reader fails. Needs the extra test.
"""

import argparse
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

import machine
import numpy as np
from pages import write_section

from bertzoo.runs import any_model, provenance

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "reliability.md"
SAVES = 20  # steps from one checkpoint to the next, so that a save is never far
OFTEN = [f"--run.save_every={SAVES}", "--run.evaluate_every=100"]
MORE = 3  # checkpoints at the most, from one kill to the next
WAIT, WITHIN = (0.0, 10.0), (0.0, 0.1)  # seconds after them, or after the first file of another, to the kill
FUZZED = re.compile(r"fuzzed (.*?): (\d+) files, (\d+) refused, (\d+) MB$", re.MULTILINE)


class Kill(NamedTuple):
    """seconds: since its start; step: of the newest checkpoint then; saving: whether one was being written."""

    seconds: float
    step: int
    saving: bool


def saved(run: Path) -> set[str]:
    """The steps of a run's whole checkpoints."""
    names = {path.name for path in (run / "checkpoints").glob("*")}
    return {name for name in names if name.isdecimal() and f"{name}.sha256.json" in names}


class Begun:
    """What a process begins to write of a run's checkpoints; what one before it left does not count."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.left = self._unfinished()

    def _unfinished(self) -> set[str]:
        names, whole = {path.name for path in (self.run / "checkpoints").glob("*")}, saved(self.run)
        return {name for name in names if name not in whole and not name.endswith(".sha256.json")}

    def saving(self) -> bool:
        """Whether one has been begun and is not whole; one of a name that was left counts once that is gone."""
        now = self._unfinished()
        self.left &= now
        return bool(now - self.left)


def start(run: Path, config: str, options: Sequence[str]) -> subprocess.Popen:
    """The run, at its beginning or where it was."""
    words = [sys.executable, "-m", "bertzoo", "pretrain", config, *options, f"--run_dir={run}"]
    with (run.parent / f"{run.name}.log").open("a") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)


def killed_once(run: Path, begin: Callable[[], subprocess.Popen], draw: random.Random, saving: bool) -> Kill | None:
    """Kill after more checkpoints, at a random moment or at one of the next save; None where it had ended before."""
    begun, before, more = Begun(run), saved(run), draw.randint(0, MORE)
    began, process = time.monotonic(), begin()
    while process.poll() is None and len(saved(run) - before) < more:
        begun.saving()  # sees what was left go
        time.sleep(0.005)
    while process.poll() is None and not begun.saving() and saving:
        time.sleep(0.005)
    until = time.monotonic() + draw.uniform(*(WITHIN if saving else WAIT))
    while time.monotonic() < until:
        begun.saving()
        time.sleep(0.005)
    if process.poll() is not None:
        return None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return Kill(time.monotonic() - began, max(map(int, saved(run)), default=0), begun.saving())


def soak(run: Path, config: str, options: Sequence[str], times: int, seed: int) -> list[Kill]:
    """Run, killed so many times, to the end; what was done before is read."""
    kept, draw = run.with_suffix(".kills.json"), random.Random(seed)
    asked = {"config": config, "options": [*options], "times": times, "seed": seed}
    if kept.exists():
        found = json.loads(kept.read_text())
        if found["asked"] != asked:
            sys.exit(f"{run} was killed under {found['asked']}, not {asked}: give another --runs")
        return [Kill(*each) for each in found["kills"]]
    kills: list[Kill] = []
    for index in range(times):
        kill = killed_once(run, lambda: start(run, config, options), draw, saving=index % 2 == 1)
        if kill is None:
            sys.exit(f"{run} ended by itself after {len(kills)} kills: see {run}.log")
        kills.append(kill)
        print(f"kill {index + 1} of {times}: {kill}", flush=True)
    if start(run, config, options).wait():
        sys.exit(f"{run} does not end: see {run}.log")
    kept.write_text(json.dumps({"asked": asked, "kills": kills}))
    return kills


def outcome(run: Path) -> tuple[dict[str, np.ndarray], set[tuple[Any, ...]]]:
    """The parameters of a run, and every line of held-out losses; a step that was repeated has one if all are alike."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {
        tuple(
            (key, line[key]) for key in sorted(line) if key in ("stage", "step") or key.endswith(("loss", "accuracy"))
        )
        for line in lines
        if line.get("split") == "heldout"
    }
    return dict(any_model.read_model(run).params), losses


def differences(whole: Path, killed: Path) -> list[str]:
    """Parameters that differ in a bit, and held-out losses, by name."""
    (params, losses), (others, other_losses) = outcome(whole), outcome(killed)
    found = [name for name in params.keys() | others.keys() if not _same(params.get(name), others.get(name))]
    return found + (["held-out losses"] if losses != other_losses or not losses else [])


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def fuzzed(count: int) -> list[tuple[str, int, int, int]]:
    """Of every reader: its name, damaged files, those that it refused in a sentence, MB that its process grew by."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "slow", "-rP", "tests/test_fuzz.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"BERTZOO_FUZZ": str(count)}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} fails:\n{done.stdout[-4000:]}")
    return [(name, int(files), int(refused), int(grown)) for name, files, refused, grown in FUZZED.findall(done.stdout)]


def page(config: str, kills: Sequence[Kill], found: Sequence[tuple[str, int, int, int]], commits: str) -> str:
    """Markdown; `commits`: of both runs."""
    saving = sum(kill.saving for kill in kills)
    moments = "\n".join(
        f"| {index + 1} | {kill.seconds:.1f} | {kill.step} | {'yes' if kill.saving else 'no'} |"
        for index, kill in enumerate(kills)
    )
    readers = "\n".join(f"| {name} | {files:,} | {refused:,} | {grown} |" for name, files, refused, grown in found)
    return f"""## Killed and begun again

`python benchmarks/reliability.py`: `{config}`, with a checkpoint every {SAVES} steps, ended by SIGKILL
{len(kills)} times, {saving} of them while a checkpoint was being written, and begun again by the same command. Its
parameters and held-out losses are those of a run that nothing happened to, bit for bit.
Commit {commits}; {machine.processor()}, {os.cpu_count()} cores.

| kill | seconds after the start | step of the newest whole checkpoint | a save was under way |
|---|---|---|---|
{moments}

## Damaged files

Bits turned, bytes taken out, put in, repeated and exchanged, files cut short, words and numbers replaced, at random.
Every reader either reads what is left or refuses it in one sentence; none may raise anything else, and its process may
not grow by 512 MB.

| reader | damaged files | refused | MB that the process grew by |
|---|---|---|---|
{readers}"""


def main() -> None:
    """Run what has not been run, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/reliability"), help="where the runs are kept")
    parser.add_argument("--config", default="demo")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--files", type=int, default=10_000, help="damaged files for every reader")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    whole, killed = args.runs / "whole", args.runs / "killed"
    if start(whole, args.config, OFTEN).wait():  # at once where it has ended
        sys.exit(f"{whole} does not end: see {whole}.log")
    kills = soak(killed, args.config, OFTEN, args.kills, args.seed)
    if found := differences(whole, killed):
        sys.exit(f"{killed} ended otherwise than {whole}: {', '.join(found[:5])}")
    commits = ", ".join(sorted({machine.revision(provenance.read_run_json(run, run.name)) for run in (whole, killed)}))
    section = page(args.config, kills, fuzzed(args.files), commits)
    if not PAGE.exists():
        PAGE.write_text("# Reliability\n", encoding="utf-8")
    write_section(Path(__file__).name, section, PAGE)


if __name__ == "__main__":
    main()
