"""A transfer by two real processes equals that of one."""

from pathlib import Path

import numpy as np
import pairs
import pytest
import tiny
from arrays import assert_equal_parameters
from test_runs_of_many import losses, started

from bertzoo.train.state import named

pytestmark = pytest.mark.slow
NAME = "mobilebert_electra_transfer"
CHANGES = pairs.QUICK | {"optimizer.epsilon": 1e-3, "run.evaluate_every": 2}


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
    found, expected = (named(pairs.parameters(tmp_path / run)) for run in ("two", "alone"))
    assert any(name.startswith("projections/") for name in found)
    assert_equal_parameters(found, expected, 1e-5)
