"""benchmarks/reliability.py: what it kills, what it compares, and what it says."""

import json
import sys
from pathlib import Path

import pytest
import tiny
from scripts import loaded

from bertzoo.convert import directory


def test_the_newest_checkpoint_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("reliability", monkeypatch)
    assert script.newest(tmp_path) == (0, False)
    checkpoints = tmp_path / "checkpoints"
    for step in (20, 40):
        (checkpoints / str(step)).mkdir(parents=True)
    (checkpoints / "20.sha256.json").touch()
    assert script.newest(tmp_path) == (20, True)  # 40 is not sealed
    (checkpoints / "40.sha256.json").touch()
    assert script.newest(tmp_path) == (40, False)
    (checkpoints / "60.orbax-checkpoint-tmp").mkdir()
    assert script.newest(tmp_path) == (40, True)


def test_what_the_fuzzing_prints_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("reliability", monkeypatch)
    found = script.fuzzed(3)
    assert len(found) == 10 and {files for _, files, _, _ in found} == {3}
    assert {"ArrayRecord", "manifest", "safetensors", "config (demo)"} < {name for name, *_ in found}


@pytest.mark.slow
def test_a_killed_run_ends_alike_or_that_it_does_not_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("reliability", monkeypatch)
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(script, "OFTEN", ["--stages.0.steps=80", "--run.save_every=3", "--run.evaluate_every=9"])
    monkeypatch.setattr(script, "WAIT", (0.0, 6.0))
    config = tiny.write_config(tmp_path, tiny.write_text(tmp_path / "text.txt"))
    words = ["reliability.py", f"--runs={tmp_path / 'runs'}", f"--config={config}", "--kills=4", "--files=2"]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    text = (tmp_path / "page.md").read_text()
    kills = json.loads((tmp_path / "runs" / "killed.kills.json").read_text())["kills"]
    assert len(kills) == 4 and any(saving for *_, saving in kills) and "| 4 | " in text and "| manifest | 2 |" in text

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
