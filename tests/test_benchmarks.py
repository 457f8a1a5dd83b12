"""A benchmark that has a target says by its exit code whether it was reached."""

import importlib.util
import os
import sys
from pathlib import Path

import jax
import pytest
import tiny

from bertzoo.cli import main as bertzoo

FILE = Path(__file__).parents[1] / "benchmarks" / "input.py"


@pytest.fixture
def benchmark(monkeypatch):
    """benchmarks/input.py, which leaves this process its cores and its devices."""
    spec = importlib.util.spec_from_file_location("benchmark_of_input", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: None, raising=False)
    monkeypatch.setattr(jax.config, "update", lambda name, value: None)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    return module


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    text, config = tiny.write_text(folder / "text.txt"), tiny.write_config(folder, "nowhere")
    assert bertzoo(["tokenize", str(text), str(folder / "corpus"), f"--config={config}", "--workers=1"]) == 0
    return folder / "corpus"


@pytest.mark.parametrize(("speed", "code"), [(0.0, 0), (1e15, 1)])
def test_a_target_of_the_pipeline(benchmark, corpus, monkeypatch, capsys, speed, code):
    """What is measured is real, what it must reach is easy or out of reach."""
    own = benchmark.measure

    def measure(name, unit, target, amount, work, repeats):
        return own(name, unit, target and speed, amount, work, 1)

    monkeypatch.setattr(benchmark, "measure", measure)
    assert benchmark.main([f"--corpus={corpus}"]) == code
    said = capsys.readouterr().out
    assert ("NO" in said) == bool(code) and "batches of" in said


@pytest.mark.slow  # two runs
@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.0, 1)])
def test_the_target_of_a_step(benchmark, corpus, monkeypatch, tmp_path, capsys, share, code):
    """A step waits less than all of its time, and never less than none of it."""
    monkeypatch.setattr(benchmark, "WAITING", share)
    config = tiny.write_config(tmp_path, corpus)
    options = [f"--corpus={corpus}", "--train", f"--config={config}", "--steps=2"]
    assert benchmark.main(options) == code
    assert capsys.readouterr().out.rstrip().endswith("| NO |" if code else "| yes |")
