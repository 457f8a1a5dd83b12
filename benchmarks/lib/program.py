"""Other processes that a benchmark starts: bertzoo's command line, and functions of its own."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from bertzoo.core import atomic


def bertzoo(*words: str) -> str:
    """Run `bertzoo WORDS`, pass its messages on, and return its output."""
    command = [sys.executable, "-m", "bertzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def finetune(words: Sequence[str], run: Path, config: str = "finetune") -> dict[str, Any]:
    """Run or resume `bertzoo finetune CONFIG WORDS`, which rejects a run of other settings; return its results.json."""
    bertzoo("finetune", config, *words, f"--run_dir={run}")
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


def heldout(run: Path, *options: str) -> dict[str, Any]:
    """A run's figures on all held-out text, by `bertzoo evaluate`; heldout.json in the run keeps them."""
    file = run / "heldout.json"
    if not file.exists():
        atomic.write_json(file, json.loads(bertzoo("evaluate", str(run), *options, "--json")))
    return json.loads(file.read_text(encoding="utf-8"))


def in_new_process(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """Call a function of a module in a fresh Python process with more environment variables, and return its result."""
    with (
        mock.patch.dict(os.environ, variables),
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool,
    ):
        return pool.submit(function, *arguments).result()
