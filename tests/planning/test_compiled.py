"""The compiler's process and its results: kept by what was compiled, and read in its own words."""

import importlib.metadata
import stat
import sys
import tomllib
from pathlib import Path

import pytest
import tiny
from messages import mentioning, mentions
from packaging.requirements import Requirement

from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.planning import cache, chips, compiled
from bertzoo.runs.pretrain_config import Pretrain

ROOT = Path(__file__).parents[2]
RECORD = (
    '{"seconds": 2.0, "arguments": 10, "temporaries": 5, "code": 1, "collectives": [{"kind": "all-reduce", "group": 4,'
)
RECORD += ' "count": 1, "size": 8, "sent": 12}]}'


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """A function (lines, exit code, error) that puts a program in the place of the compiler's process."""

    def make(lines: list[str], code: int = 0, error: str = "") -> None:
        program = tmp_path / "python"
        shown = "\n".join(f"echo '{line}'" for line in lines)
        program.write_text(f"#!/bin/sh\n{shown}\necho '{error}' >&2\nexit {code}\n", encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(compiled, "available", lambda: True)

    return make


@pytest.fixture
def recipe(tmp_path) -> Pretrain:
    return config.load(Pretrain, [tiny.write_config(tmp_path, "text.txt")], [])


def test_results_are_read_stage_by_stage(compiler, recipe, tmp_path):
    compiler(["what libtpu says", RECORD, '{"seconds": 1.0, "needed": 99}', "{}"])
    said: list[str] = []
    first, second, third = compiled.compile_stages(recipe, chips.parse("v5e:2x2"), tmp_path, said.append)
    assert first is not None and first.fits and first.total == 16 and first.collectives is not None
    assert first.collectives[0].sent == 12
    assert second is not None and not second.fits and second.total is None
    assert third is None
    assert len(said) == 3 and mentions(said[0], "stage 0 on v5e:2x2", "2 s")
    assert mentions(said[2], "stage 2 on v5e:2x2") and " s " not in said[2]


def test_it_is_said_what_is_compiled_and_what_is_known(compiler, recipe, tmp_path):
    known = RECORD[:-1] + ', "known": true}'
    compiler(['{"compiling": true}', RECORD, known, '{"passed_over": true}'])
    said: list[str] = []
    first, second, _ = compiled.compile_stages(recipe, chips.parse("v5e:2x2"), tmp_path, said.append)
    assert first == second is not None
    stages = [f"stage {index} on v5e:2x2: " for index in (0, 0, 1)]
    for line, stage, word in zip(said, stages, ("compiling", "2 s", "before"), strict=True):
        assert line.startswith(stage) and mentions(line, word)


def test_a_compiler_that_fails_is_one_sentence(compiler, recipe, tmp_path):
    compiler([], 1, "RuntimeError: no such thing")
    with pytest.raises(UserError, match=mentioning("v5e:2x2", "RuntimeError: no such thing")):
        compiled.compile_stages(recipe, chips.parse("v5e:2x2"), tmp_path, print)


def test_without_a_compiler_it_says_how_to_have_one(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises(UserError, match=mentioning("'.[tpu-plan]'")):
        compiled.compile_stages(recipe, chips.parse("v5e:2x2"), tmp_path, print)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (512.50M) "
            "exceeds available HBM (15.48M).",
            int(512.5 * 2**20),
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (512.00G) exceeds available HBM (15.75G). HLO module: jit_train_step.",
            512 << 30,
        ),
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.50G of 15.75G hbm. Exceeded hbm "
            "capacity by 1.75G.\n\nTotal hbm usage >= 17.75G:\n    reserved        258.00M",
            int(17.75 * 2**30),
        ),
        ("RESOURCE_EXHAUSTED: Used 900.0M of 800.0M hbm.", 900 << 20),
        ("RESOURCE_EXHAUSTED: too many open files", None),
    ],
)
def test_what_does_not_fit_says_what_it_wanted(message, expected):
    assert compiled.needed(message) == expected


def test_a_result_is_kept_by_text_slice_and_versions(tmp_path):
    names = {cache.key(*parts) for parts in (("a",), ("b",), ("a", "v5e:2x2"), ("a", "v5e:2x2", "1"), ("av5e:2x2",))}
    assert len(names) == 5
    name = cache.key("text", "v5e:2x2")
    assert cache.read(tmp_path, name) is None
    cache.write(tmp_path / "new", name, {"seconds": 1.0})
    assert cache.read(tmp_path / "new", name) == {"seconds": 1.0}
    (tmp_path / "new" / f"{name}.json").write_text('{"seconds"', encoding="utf-8")
    assert cache.read(tmp_path / "new", name) is None


def test_plans_are_made_with_the_compiler_of_runs():
    """What is installed for plans is what `jax[tpu]` installs, and at one version with all else."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (extra,) = map(Requirement, metadata["project"]["optional-dependencies"]["tpu-plan"])
    assert extra.name == "jax" and extra.extras == {"tpu"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = dict(line.split("==") for line in lines)
    assert pinned["jax"] == importlib.metadata.version("jax")
    asked = [Requirement(line) for line in importlib.metadata.requires("jax") or ()]
    (compiler,) = [
        one for one in asked if one.name == "libtpu" and one.marker and one.marker.evaluate({"extra": "tpu"})
    ]
    assert compiler.specifier.contains(pinned["libtpu"])


def test_where_results_are_kept(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache.directory() == Path("somewhere/bertzoo/plans")
    assert cache.directory("here") == Path("here")
