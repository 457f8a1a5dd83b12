"""A pipeline of one task, or a sweep of six points, in a working directory, with a fake `bertzoo` for its jobs."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bertzoo.api.options import FinetuneOptions
from bertzoo.cli import main as cli
from bertzoo.core import kinds
from bertzoo.core.errors import UserError

STAND_IN = Path(__file__).with_name("stand_in.py")
PIPELINE = """
[inputs]
text = "text.txt"
labels = ""

[stages.base]
verb = "pretrain"
config = "tiny.toml"
options.data.source = "{text}"

[stages.tuned]
verb = "finetune"
config = "tune.toml"
from = "base"
tasks = ["own"]
options.data_dir = "{labels}"

[stages.file]
verb = "convert"
from = "tuned"
tasks = ["own"]
options = { to = "litert", lengths = 16 }

[stages.score]
verb = "evaluate"
from = "file"
tasks = ["own"]
options.input = "later.csv"

[stages.packed]
verb = "phone"
from = "file"
tasks = ["own"]

[stages.speed]
verb = "benchmark"
models = ["file", "base"]
"""
TUNE = 'task = "own"\nown = { train = "train.csv", dev = "dev.csv" }\nmax_length = 16\nepochs = 1\n'
STEPS = ["base", "tuned/own", "file/own", "score/own", "packed/own", "speed"]
SWEEP = """
[sweep]
base = "base.toml"
tasks = ["cola", "rte"]

[grid]
alpha = [0.8, 0.9, 1.0]
optimizer.learning_rate = [1e-5]
"""
SEARCH = """
[sweep]
base = "base.toml"
[grid]
model.feed_forward_size = [8, 16, 32, 48, 64, 96]
"""
WORDS = ("pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels")
# Runs a command as the command line does, with the stand-in for its jobs; a sweep also with the checks of `verb`.
PROGRAM = f"""
import sys
sys.path.append({str(STAND_IN.parent)!r})
import place
from bertzoo.cli import main as cli
from bertzoo.core import kinds
from bertzoo.jobs import local
if "sweep" in sys.argv:
    sys.modules["bertzoo.cli.finetune"] = place.verb()
    kinds.KINDS["finetune"] = place.kind()
local.COMMAND = ({str(STAND_IN)!r},)
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
    notes: str = ""
    squad: Squad = Squad()
    optimizer: Optimizer = Optimizer()


def kind() -> kinds.Kind:
    """The kind of fine-tunings, whose config is `Config`."""
    return replace(kinds.KINDS["finetune"], config_at="place:Config")


def verb() -> Any:
    """A module with the checks of `bertzoo finetune` before a run."""
    module: Any = types.ModuleType("bertzoo.cli.finetune", "Fine-tune.")

    def main(options: FinetuneOptions) -> int:
        raise NotImplementedError

    def task_of(options: FinetuneOptions, recipe: Config) -> Any:
        return types.SimpleNamespace(name=recipe.task, train=(), read_files=dict, check_test_file=lambda: None)

    def check_models(options: FinetuneOptions, recipe: Config, seen: set[Any]) -> None:
        if "nowhere" in str(options.from_model):
            raise UserError(f"{options.from_model} is not a directory")

    module.main, module.config, module.task_of = main, lambda: Config, task_of
    module.check_models = check_models
    return module


def write_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a sweep of six feed-forward sizes under a budget, its base and its text; LiteRT need not be installed."""
    import tiny  # a subprocess imports this module without it

    base = tiny.write_config(Path(), "text.txt", stages=1)
    Path("base.toml").write_text(base.read_text().replace("steps = 6", "steps = 64"))
    Path("sweep.toml").write_text(SEARCH)
    tiny.write_text(Path("text.txt"), documents=8)
    monkeypatch.setattr("bertzoo.export.litert.write.check_packages", dict)


class Place:
    """The working directory, the output of `bertzoo` in it, and the commands that it started."""

    def __init__(self, capsys: pytest.CaptureFixture):
        self._capsys = capsys

    def behave(self, behaviour: dict[str, Any]) -> None:
        """Set the behaviour of later commands whose command line contains a part."""
        Path("behaviour.json").write_text(json.dumps(behaviour))

    def run(self, *options: str, code: int = 0, words: tuple[str, ...] = WORDS) -> tuple[str, str]:
        """Standard output and error of a pipeline that ends with a code."""
        ended = cli.main([*words, *options])
        captured = self._capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    def sweep(self, *options: str, code: int = 0, config: str = "sweep.toml") -> tuple[str, str]:
        """Standard output and error of a sweep that ends with a code."""
        return self.run(*options, code=code, words=("sweep", config, "--run_dir=runs/s"))

    def started(self) -> list[dict[str, Any]]:
        """The commands started since the last call."""
        started = [json.loads(line) for line in calls()]
        Path("calls").unlink(missing_ok=True)
        return started

    def calls(self) -> list[str]:
        """The commands started since the last call, as the step of the pipeline that each is of."""
        verbs = {"pretrain": 0, "finetune": 1, "convert": 2, "evaluate": 3, "phone": 4, "benchmark": 5}
        return [STEPS[verbs[call["line"].split()[0]]] for call in self.started()]

    def start(self, *options: str, platform: str = "cpu") -> subprocess.Popen[bytes]:
        """Start a pipeline in a process of its own; platform: JAX's."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *WORDS, *options],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": platform},
        )


def until(happened: Callable[[], Any]) -> Any:
    """Wait a minute for a true result, and return it."""
    for _ in range(1200):
        if result := happened():
            return result
        time.sleep(0.05)
    raise AssertionError("it has not happened in a minute")


def wait_for_runs(count: int) -> list[int]:
    """The process ids of the runs, once so many are at work."""
    lines = until(lambda: len(lines := calls()) >= count and lines)
    return [json.loads(line)["pid"] for line in lines]


def table(name: str = "sweep") -> list[dict[str, str]]:
    """The rows of a table in the directory of the sweep."""
    with open(f"runs/s/{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def calls() -> list[str]:
    return Path("calls").read_text().splitlines() if Path("calls").exists() else []


@contextmanager
def started_sweep(*options: str) -> Iterator[subprocess.Popen]:
    """A sweep in its own process, which is always killed at the end."""
    command = [sys.executable, "-c", PROGRAM, "sweep", "sweep.toml", "--run_dir=runs/s", "--from=m", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            for line in calls():
                with suppress(ProcessLookupError):
                    os.kill(json.loads(line)["pid"], signal.SIGKILL)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
