"""Fixtures of pipelines whose steps are a fake: one that has not started, and one that has ended."""

import shutil
import sys
from pathlib import Path

import planted
import pytest
import tiny
from place import PIPELINE, STAND_IN, SWEEP, TUNE, WORDS, Place, kind, verb

from bertzoo.cli import main as cli
from bertzoo.core import kinds
from bertzoo.jobs import local


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a pipeline starts."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "tune.toml").write_text(TUNE)
    (folder / "behaviour.json").write_text("{}")
    tiny.write_config(folder, "nowhere")
    tiny.write_text(folder / "text.txt", documents=8)
    (folder / "labels").mkdir()
    planted.fill(folder / "labels")
    (folder / "labels/model").rename(folder / "model")
    return folder


def enter(folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of `source` the working directory, and the stand-in the command of every step."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(local, "COMMAND", (str(STAND_IN),))
    monkeypatch.setattr(local, "count_devices", lambda: ("cpu", 1))


@pytest.fixture(scope="session")
def outputs(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a pipeline has ended."""
    folder = tmp_path_factory.mktemp("outputs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        enter(folder, inputs, monkeypatch)
        assert cli.main(list(WORDS)) == 0
    (folder / "calls").unlink()
    return folder


@pytest.fixture
def place(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Place:
    enter(tmp_path, inputs, monkeypatch)
    return Place(capsys)


@pytest.fixture
def finished(outputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Place:
    """A place in which every step of the pipeline has run, but not in this test."""
    enter(tmp_path, outputs, monkeypatch)
    return Place(capsys)


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Place:
    """A place with a sweep, and a fake `bertzoo finetune`."""
    source = tmp_path / "source"
    source.mkdir()
    for name, text in (("base.toml", "seeds = 1\n"), ("sweep.toml", SWEEP), ("behaviour.json", "{}")):
        (source / name).write_text(text)
    enter(tmp_path, source, monkeypatch)
    monkeypatch.setitem(sys.modules, "bertzoo.cli.finetune", verb())
    monkeypatch.setitem(kinds.KINDS, "finetune", kind())
    monkeypatch.setitem(cli.VERBS, "finetune", "fine-tune")
    return Place(capsys)
