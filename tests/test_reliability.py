"""benchmarks/reliability.py: what it kills, what it compares, and what it says."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from scripts import loaded

from bertzoo.convert import directory


def test_what_is_being_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that is begun and not sealed; one that was there before counts when it has gone and come again."""
    script = loaded("reliability", monkeypatch)
    begun, checkpoints = script.Begun(tmp_path), tmp_path / "checkpoints"
    assert not begun.saving() and script.saved(tmp_path) == set()
    for step in (20, 40):
        (checkpoints / str(step)).mkdir(parents=True)
    (checkpoints / "20.sha256.json").touch()
    assert begun.saving() and script.saved(tmp_path) == {"20"}
    (checkpoints / "40.sha256.json").touch()
    assert not begun.saving() and script.saved(tmp_path) == {"20", "40"}
    (checkpoints / "60.orbax-checkpoint-tmp").mkdir()
    assert begun.saving()
    later = script.Begun(tmp_path)
    assert not later.saving()
    (checkpoints / "60.orbax-checkpoint-tmp").rmdir()
    assert not later.saving()
    (checkpoints / "60.orbax-checkpoint-tmp").mkdir()
    assert later.saving()


AGAIN = """
import os, time
time.sleep(0.4)
os.rmdir("40.tmp")
time.sleep(0.4)
os.mkdir("40.tmp")
time.sleep(60)
"""


@pytest.mark.parametrize("saving", [False, True])
def test_what_an_earlier_kill_left_is_not_being_saved(
    saving: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = loaded("reliability", monkeypatch)
    monkeypatch.setattr(script, "MORE", 0)
    monkeypatch.setattr(script, "WAIT", (0.0, 0.0))
    (tmp_path / "checkpoints" / "40.tmp").mkdir(parents=True)
    command = [sys.executable, "-c", AGAIN]

    def begin() -> subprocess.Popen:
        return subprocess.Popen(command, cwd=tmp_path / "checkpoints", start_new_session=True)

    kill = script.killed_once(tmp_path, begin, random.Random(0), saving)
    assert kill.saving is saving and kill.step == 0


def test_what_the_fuzzing_prints_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("reliability", monkeypatch)
    found = script.fuzzed(3)
    assert len(found) == 10 and {files for _, files, _, _ in found} == {3}
    assert {"ArrayRecord", "manifest", "safetensors", "config (demo)"} < {name for name, *_ in found}


@pytest.mark.slow
def test_a_killed_run_ends_alike_or_that_it_does_not_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("reliability", monkeypatch)
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(script, "OFTEN", ["--stages.0.steps=100", "--run.save_every=3", "--run.evaluate_every=9"])
    monkeypatch.setattr(script, "WAIT", (0.0, 1.0))  # so that a fast machine is not done before the last
    config = tiny.write_config(tmp_path, tiny.write_text(tmp_path / "text.txt"))
    words = ["reliability.py", f"--runs={tmp_path / 'runs'}", f"--config={config}", "--kills=4", "--files=2"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    text = (tmp_path / "page.md").read_text()
    kills = json.loads((tmp_path / "runs" / "killed.kills.json").read_text())["kills"]
    assert len(kills) == 4 and any(saving for *_, saving in kills) and "| 4 | " in text and "| manifest | 2 |" in text
    commit = script.machine.revision(json.loads((tmp_path / "runs" / "whole" / "run.json").read_text()))
    assert "Commit " in text and commit in text

    monkeypatch.setattr(sys, "argv", [*words[:-2], "--kills=5", "--files=2"])
    with pytest.raises(SystemExit, match=r"was killed under .*'times': 4.*give another --runs"):
        script.main()
    monkeypatch.setattr(sys, "argv", words)

    # The same with one bit changed, or with another loss.
    whole, killed = tmp_path / "runs" / "whole", tmp_path / "runs" / "killed"
    assert script.differences(whole, killed) == []
    metrics = killed / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    last = max(index for index, line in enumerate(lines) if '"heldout"' in line)
    metrics.write_text(
        "\n".join([*lines[:last], json.dumps(json.loads(lines[last]) | {"loss": 1.0}), *lines[last + 1 :]])
    )
    assert script.differences(whole, killed) == ["held-out losses"]
    metrics.write_text("\n".join(lines))
    own = directory.read

    def changed(path: Path):
        found = own(path)
        if path == killed:
            name, array = next(iter(found.params.items()))
            array = array.copy()
            array.reshape(-1)[0] += 1e-6
            found.params[name] = array
        return found

    monkeypatch.setattr(script.directory, "read", changed)
    assert len(script.differences(whole, killed)) == 1
    with pytest.raises(SystemExit, match="ended otherwise than"):
        script.main()
