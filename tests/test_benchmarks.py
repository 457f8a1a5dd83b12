"""A benchmark that has a target says by its exit code whether it was reached."""

import os
import sys

import jax
import pytest
import tiny
from scripts import loaded

from bertzoo.cli import main as bertzoo


@pytest.fixture
def benchmark(monkeypatch):
    """benchmarks/input.py, which leaves this process its cores and its devices."""
    module = loaded("input", monkeypatch)
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


def test_a_section_takes_the_place_of_the_one_before(monkeypatch, tmp_path):
    pages, page = loaded("pages", monkeypatch), tmp_path / "results.md"
    for script, text in (("a.py", "first"), ("b.py", "other"), ("a.py", "second")):
        pages.write_section(script, text, page)
    assert page.read_text().split() == [
        *("#", "Results", "<!--", "benchmarks/a.py", "-->", "second", "<!--", "end", "-->"),
        *("<!--", "benchmarks/b.py", "-->", "other", "<!--", "end", "-->"),
    ]


@pytest.mark.parametrize(("after", "complaint"), [(41.5, None), (39.0, "F1 is 7.25 untrained and 39.00 trained")])
def test_the_page_of_questions_has_both_runs_and_a_floor(monkeypatch, after, complaint):
    script, written = loaded("squad", monkeypatch), []

    def results(name, model, data, runs):
        f1, learnt = {"untrained": (7.25, 16), "trained": (after, 6000)}[name]
        scores = {"dev": {"exact_match": f1 / 2, "f1": f1}}
        model = {"kind": "bert", "parameters": 22_600_000}
        return {"examples": {"train": learnt, "dev": 1489}, "median": scores, "model": model}

    monkeypatch.setattr(script, "results", results)
    monkeypatch.setattr(script, "write_section", lambda name, text: written.append((name, text)))
    monkeypatch.setattr(sys, "argv", ["squad.py", "--model=models/small", "--data=files/train-v1.1.json"])
    if complaint:
        with pytest.raises(SystemExit, match=complaint):
            script.main()
    else:
        script.main()
    ((name, text),) = written
    assert name == "squad.py" and "| untrained | 16 | 3.62 | 7.25 |" in text and f"| {after:.2f} |" in text
    assert "--from=small --data_dir=train-v1.1.json" in text and "bert, 22.6 M parameters" in text
