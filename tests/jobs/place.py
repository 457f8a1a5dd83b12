"""A pipeline of one task in a working directory, with a fake `bertzoo` for its steps."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertzoo.cli import main as cli

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
# Runs a pipeline as the command line does, with the stand-in for its steps.
PROGRAM = f"""
from bertzoo.cli import main as cli
from bertzoo.jobs import local
local.COMMAND = ({str(STAND_IN)!r},)
local.count_devices = lambda: ("cpu", 1)
cli.entry()
"""


WORDS = ("pipeline", "pipeline.toml", "--run_dir=run", "--inputs.labels=labels")


class Place:
    """The working directory, the output of `bertzoo pipeline` in it, and the commands that it started."""

    def __init__(self, capsys: pytest.CaptureFixture):
        self._capsys = capsys

    def behave(self, behaviour: dict[str, Any]) -> None:
        """Set the behaviour of later commands whose command line contains a part."""
        Path("behaviour.json").write_text(json.dumps(behaviour))

    def run(self, *options: str, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a pipeline that ends with a code."""
        ended = cli.main([*WORDS, *options])
        captured = self._capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    def calls(self) -> list[str]:
        """The commands started since the last call, as the step that each is of."""
        file = Path("calls")
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        verbs = {"pretrain": 0, "finetune": 1, "convert": 2, "evaluate": 3, "phone": 4, "benchmark": 5}
        return [STEPS[verbs[line.split()[0]]] for line in lines]

    def start(self, *options: str, platform: str = "cpu") -> subprocess.Popen[bytes]:
        """Start a pipeline in a process of its own; platform: JAX's."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *WORDS, *options],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "JAX_PLATFORMS": platform},
        )
