"""The program of every shipped config's training step is the recorded one: a refactoring must not change it."""

import json

import jax
import pytest
from tiers import quick

from tests.golden import make_programs

RECORDED = json.loads(make_programs.FILE.read_text())


def test_every_config_is_recorded():
    assert {key.split("/")[0] for key in RECORDED if "/" in key} == set(make_programs.names())


@pytest.mark.parametrize("name", quick(make_programs.names(), "demo"))
def test_the_step_lowers_to_the_recorded_program(name):
    assert jax.__version__ == RECORDED["jax"], "another jax writes other programs: run python -m tests.golden"
    found = dict(make_programs.hashes(name))
    assert found == {key: RECORDED[key] for key in RECORDED if key.startswith(f"{name}/")}
