"""A sweep of six points in a working directory, with a fake `bertzoo finetune` for its runs."""

import argparse
import json
import types
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
