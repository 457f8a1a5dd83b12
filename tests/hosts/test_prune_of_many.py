"""A pruning by two real processes equals that of one."""

import json
from pathlib import Path

import chex
import prunable
import pytest
from test_runs_of_many import started

from bertzoo.pruning import layout
from bertzoo.runs import load_model

pytestmark = pytest.mark.slow


def test_two_processes_prune_as_one(tmp_path: Path) -> None:
    prunable.fill(tmp_path)
    words = ["prune", str(tmp_path / "prune.toml"), f"--from={tmp_path / 'unpruned'}", '--cut.dimensions=["f", "v"]']
    words += ["--target.share=0.8", "--workers=1", "--optimizer.epsilon=1e-3"]  # noise of no gradient stays small
    for run, count, mesh in (("alone", 1, ""), ("two", 2, "--mesh.fsdp=2")):
        with started(tmp_path, run, count, mesh.split(), words=words) as processes:
            ended = processes.end()
        assert [code for code, _ in ended] == [0] * count and "finished: " in ended[0][1], ended
    ours, theirs = (
        [json.loads(path.read_text()) for path in layout.cut_files(tmp_path / run)] for run in ("two", "alone")
    )
    assert ours == theirs and len(ours) == 2
    found, expected = (load_model.read_model(tmp_path / run).params for run in ("two", "alone"))
    assert found.keys() == expected.keys()
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-4)
