"""A transfer by two real processes equals that of one."""

from pathlib import Path

import jax
import numpy as np
import pairs
import pytest
import tiny
from arrays import assert_equal_parameters
from test_runs_of_many import losses, started

from bertzoo.runs import experiments
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import sharding
from bertzoo.train.checkpoint import restore_params
from bertzoo.train.state import abstract_params, named

pytestmark = pytest.mark.slow
NAME = "mobilebert_electra_transfer"
CHANGES = {
    **{"teacher.layers": 1, "model.layers": 2, "model.feed_forwards": 1, "knowledge.layers": [1, 1]},
    **{"optimizer.epsilon": 1e-3, "run.evaluate_every": 2},
}


def parameters(run: Path) -> dict[str, np.ndarray]:
    """All of the last checkpoint, the learnt maps too."""
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    wanted = abstract_params(experiments.build_setups(RunDirectory(run).load())[-1].objective, mesh)
    return {name: np.asarray(leaf) for name, leaf in named(restore_params(run / "checkpoints", wanted)[0]).items()}


def test_a_transfer_in_two_processes_equals_one(tmp_path: Path) -> None:
    corpus = tiny.make_corpus(tmp_path)
    options = pairs.options(NAME, corpus, **CHANGES)
    teacher = pairs.write_teacher(pairs.load(NAME, options), tmp_path / "teacher", corpus)
    words = ["transfer", NAME, *options, f"--teacher={teacher}"]
    for run, count, mesh in (("alone", 1, ""), ("two", 2, "--mesh.fsdp=2")):
        with started(tmp_path, run, count, mesh.split(), words=words) as processes:
            ended = processes.end()
        assert [code for code, _ in ended] == [0] * count and "finished after 6 steps" in ended[0][1], ended
    ours, theirs = (losses(tmp_path, run) for run in ("two", "alone"))
    assert ours.keys() == theirs.keys() and len(ours) == 9  # six steps, and held-out text after every other
    np.testing.assert_allclose(list(ours.values()), [theirs[key] for key in ours], rtol=1e-6)
    found, expected = (parameters(tmp_path / run) for run in ("two", "alone"))
    assert any(name.startswith("projections/") for name in found)
    assert_equal_parameters(found, expected, 1e-5)
