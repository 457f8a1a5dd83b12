"""The program of every shipped config's training step is the recorded one: a refactoring must not change it."""

import json
import re

import jax
import pytest
from messages import mentioning
from tiers import quick

from bertzoo.core.errors import ConfigError
from tests.golden import __main__ as golden
from tests.golden import make_programs, make_shardings

RECORDED = json.loads(make_programs.FILE.read_text())


def test_every_config_is_recorded():
    assert {key.split("/")[0] for key in RECORDED if "/" in key} == set(make_programs.names())


@pytest.mark.parametrize("name", quick(make_programs.names(), "demo"))
def test_the_step_lowers_to_the_recorded_program(name):
    assert jax.__version__ == RECORDED["jax"], "another jax writes other programs: run python -m tests.golden"
    found = dict(make_programs.hashes(name))
    assert found == {key: RECORDED[key] for key in RECORDED if key.startswith(f"{name}/")}


def test_one_command_rewrites_the_lines_of_a_config(tmp_path, monkeypatch):
    """It leaves the other configs' lines, so that the diff shows the change."""
    changes = {
        make_programs: (r'"demo/0": "\w+"', '"demo/0": "0"'),
        make_shardings: (r"\ndemo\n  .*\n", "\ndemo\n"),
    }
    before = {module: module.FILE.read_text() for module in changes}
    for module, text in before.items():
        monkeypatch.setattr(module, "FILE", tmp_path / module.FILE.name)
        module.FILE.write_text(re.sub(*changes[module], text))
        assert module.FILE.read_text() != text
    golden.main(["demo"])
    assert {module: module.FILE.read_text() for module in before} == before
    with pytest.raises(SystemExit, match=mentioning("demos")):
        golden.main(["demos"])


def test_a_wrong_config_ends_in_its_error_and_writes_nothing(monkeypatch, tmp_path):
    def fail(configs):
        raise ConfigError(f"{configs[0]}: model.heads = 7")

    for module in (make_shardings, make_programs):
        monkeypatch.setattr(module, "FILE", tmp_path / module.FILE.name)
        monkeypatch.setattr(module, "text", fail if module is make_programs else str)
    with pytest.raises(SystemExit, match=mentioning("demo", "model.heads = 7")):
        golden.main(["demo"])
    assert not [*tmp_path.iterdir()]
