"""Other processes that a benchmark starts: bertzoo's command line, and functions of its own."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from bertzoo.core import atomic
from bertzoo.core.errors import Stopped
from bertzoo.export.companions import companions


def bertzoo(*words: str) -> str:
    """Run `bertzoo WORDS`, pass its messages on, and return its output."""
    command = [sys.executable, "-m", "bertzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def stop_after(seconds: float, *words: str) -> None:
    """Run `bertzoo WORDS`; send a signal after `seconds` of processor time, so that it saves and stops."""
    command, signalled = [sys.executable, "-m", "bertzoo", *words], False
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    used = psutil.Process(process.pid).cpu_times
    try:
        while (code := _ended(process)) is None:
            if not signalled and sum(used()[:2]) >= seconds:
                process.terminate()
                signalled = True
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code and not (signalled and code == Stopped.exit_code):
        raise subprocess.CalledProcessError(code, command)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=1)
    return None


def finetune(words: Sequence[str], run: Path, config: str = "finetune") -> dict[str, Any]:
    """Run or resume `bertzoo finetune CONFIG WORDS`, which rejects a run of other settings; return its results.json."""
    bertzoo("finetune", config, *words, f"--run_dir={run}")
    return json.loads((run / "results.json").read_text(encoding="utf-8"))


def evaluate(model: Path, *options: str) -> dict[str, Any]:
    """What `bertzoo evaluate` prints of a model or a file, as JSON."""
    return json.loads(bertzoo("evaluate", str(model), *options, "--json"))


def check_litert() -> None:
    """Exit if `litert_file` would fail after hours of training, because the extra litert is not installed."""
    if find_spec("litert_converter") is None:
        raise SystemExit("LiteRT files need the extra litert, which is missing. Run make .venv/litert.stamp.")


def litert_file(model: Path, file: Path, *options: str) -> Path:
    """A model's LiteRT file, which `bertzoo convert` writes and scores if it is missing."""
    if not file.exists():
        print(f"{file}: bertzoo converts", flush=True)
        bertzoo("convert", str(model), str(file), "--to=litert", *options)
    return file


def card(file: Path) -> dict[str, Any]:
    """What `bertzoo convert` wrote of a file in the JSON beside it."""
    return json.loads(file.with_name(companions(file)[0]).read_text(encoding="utf-8"))


def options_of(name: str, others: Iterable[str], options: Sequence[str]) -> list[str]:
    """The options of one of several runs: those that start with its name, as --NAME.option, and those of all runs.

    others: the names of all runs.
    """
    shared = [word for word in options if not word.startswith(tuple(f"--{other}." for other in others))]
    return shared + [word.replace(f"--{name}.", "--", 1) for word in options if word.startswith(f"--{name}.")]


def read_or_measure(file: Path, measure: Callable[[], Any]) -> Any:
    """Read a JSON file; if it is missing, measure its content and write it first."""
    if not file.exists():
        atomic.write_json(file, measure())
    return json.loads(file.read_text(encoding="utf-8"))


def heldout(run: Path) -> dict[str, Any]:
    """Return a run's metrics on all held-out text, by `bertzoo evaluate`; the run's heldout.json stores them."""
    return read_or_measure(run / "heldout.json", lambda: evaluate(run))


def in_new_process(function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
    """Call a function of a module in a fresh Python process with more environment variables, and return its result."""
    with mock.patch.dict(os.environ, variables), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
