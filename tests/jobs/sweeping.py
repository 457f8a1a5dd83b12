"""A sweep of six points in a working directory, with a fake `bertzoo finetune` for its runs."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bertzoo.cli import main as cli
from bertzoo.core.errors import UserError

RUN = Path(__file__).with_name("finetune.py")
SWEEP = """
[sweep]
base = "base.toml"
tasks = ["cola", "rte"]

[grid]
alpha = [0.8, 0.9, 1.0]
optimizer.learning_rate = [1e-5]
"""

HERE = Path(__file__).parent
# Runs a sweep as the command line does, with the stand-in for its runs.
PROGRAM = f"""
import sys
sys.path.append({str(HERE)!r})
import sweeping
from bertzoo.cli import main as cli
from bertzoo.jobs import local
sys.modules["bertzoo.cli.finetune"] = sweeping.verb()
cli.VERBS["finetune"] = ""
local.COMMAND = (str(sweeping.RUN),)
local.count_devices = lambda: ("cpu", 1)
cli.entry()
"""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    learning_rate: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Squad:
    heldout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Config:
    task: str
    alpha: float = 1.0
    seeds: int = 5
    data_dir: str = ""
    own: str = ""
    squad: Squad = Squad()
    optimizer: Optimizer = Optimizer()


def verb() -> Any:
    """A module with the checks of `bertzoo finetune` before a run."""
    module: Any = types.ModuleType("bertzoo.cli.finetune", "Fine-tune.")

    def arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+")
        parser.add_argument("--run_dir", required=True)
        parser.add_argument("--from", dest="origin")
        parser.add_argument("--teacher")

    def task_of(args: argparse.Namespace, recipe: Config) -> Any:
        return types.SimpleNamespace(name=recipe.task, train=(), read_files=dict, check_test_file=lambda: None)

    def check_models(args: argparse.Namespace, recipe: Config, seen: set[Any]) -> None:
        if args.origin and "nowhere" in args.origin:
            raise UserError(f"{args.origin} is not a directory")

    module.arguments, module.config, module.task_of = arguments, lambda: Config, task_of
    module.check_models = check_models
    return module


class SweepPlace:
    """The working directory, the output of `bertzoo sweep` in it, and the runs that it started."""

    def __init__(self, capsys: pytest.CaptureFixture):
        self._capsys = capsys
        Path("base.toml").write_text("seeds = 1\n")
        Path("sweep.toml").write_text(SWEEP)
        self.behave({})

    def behave(self, behaviour: dict[str, Any]) -> None:
        """Set the behaviour of later runs whose command line contains a part."""
        Path("behaviour.json").write_text(json.dumps(behaviour))

    def sweep(self, *options: str, code: int = 0, config: str = "sweep.toml") -> tuple[str, str]:
        """Standard output and error of a sweep that ends with a code."""
        found = cli.main(["sweep", config, "--run_dir=runs/s", *options])
        captured = self._capsys.readouterr()
        assert found == code, captured.err
        return captured.out, captured.err

    def calls(self) -> list[dict[str, Any]]:
        """The runs started since the last call."""
        file = Path("calls")
        found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return found


def wait_for_runs(count: int) -> list[int]:
    """The process ids of the runs, once so many are at work."""
    for _ in range(600):
        if Path("calls").exists() and len(lines := Path("calls").read_text().splitlines()) >= count:
            return [json.loads(line)["pid"] for line in lines]
        time.sleep(0.05)
    raise AssertionError("the runs did not start")


@contextmanager
def started_sweep(*options: str) -> Iterator[subprocess.Popen]:
    """A sweep in its own process, which is always killed at the end."""
    command = [sys.executable, "-c", PROGRAM, "sweep", "sweep.toml", "--run_dir=runs/s", "--from=m", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            for line in Path("calls").read_text().splitlines() if Path("calls").exists() else []:
                with suppress(ProcessLookupError):
                    os.kill(json.loads(line)["pid"], signal.SIGKILL)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
