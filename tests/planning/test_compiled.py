"""The compiler's process, its cached results and its errors."""

import importlib.metadata
import json
import stat
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
import tiny
from messages import mentioning
from packaging.requirements import Requirement

from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.planning import chips, compiled
from bertzoo.runs.configs import Pretrain

ROOT = Path(__file__).parents[2]
SENT = {"kind": "all-reduce", "group": 4, "count": 1, "size": 8, "sent": 12}
RESULT = {"seconds": 2.0, "arguments": 10, "temporaries": 5, "code": 1, "collectives": [SENT]}


def message_line(stage: int, progress: str, **result: dict) -> str:
    """A line of the compiler's process."""
    return json.dumps({"stage": stage, "progress": progress, **result})


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


def test_results_and_progress_are_read_stage_by_stage(logged, compiler, recipe, tmp_path):
    large = {"seconds": 1.0, "needed": 99}
    messages = [message_line(0, "slow"), message_line(0, "2 s", result=RESULT), message_line(3, "1 s", result=large)]
    compiler(["a line of libtpu", *messages])
    results = compiled.compile_stages(recipe, chips.parse_topology("v5e:2x2"), tmp_path)
    assert list(results) == [0, 3]
    assert results[0].fits and results[0].total == results[0].required == 16 and results[0].collectives is not None
    assert results[0].collectives[0].sent == 12
    assert not results[3].fits and results[3].total is None and results[3].required == 99
    assert logged == [f"stage {text}" for text in ("0 on v5e:2x2: slow", "0 on v5e:2x2: 2 s", "3 on v5e:2x2: 1 s")]


def test_a_compiler_that_fails_raises_its_last_line(compiler, recipe, tmp_path):
    compiler([], 1, "RuntimeError: no such thing")
    with pytest.raises(UserError, match=mentioning("v5e:2x2", "RuntimeError: no such thing")):
        compiled.compile_stages(recipe, chips.parse_topology("v5e:2x2"), tmp_path)


def test_a_missing_compiler_raises_with_its_install_command(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "available", lambda: False)
    with pytest.raises(UserError, match=mentioning("'.[tpu-plan]'")):
        compiled.compile_stages(recipe, chips.parse_topology("v5e:2x2"), tmp_path)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
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
def test_needed_bytes_of_an_error(message, expected):
    assert compiled.needed_bytes(message) == expected


def test_a_result_is_cached_by_text_slice_and_versions(tmp_path):
    keys = ("a",), ("b",), ("a", "v5e:2x2"), ("a", "v5e:2x2", "1"), ("av5e:2x2",)
    names = {compiled.result_key(*parts) for parts in keys}
    assert len(names) == 5
    name = compiled.result_key("text", "v5e:2x2")
    assert compiled.read_result(tmp_path, name) is None
    step = compiled.CompiledStep(seconds=1.0, collectives=(compiled.Collective(**SENT),))
    compiled.write_result(tmp_path / "new", name, step)
    assert compiled.read_result(tmp_path / "new", name) == step
    (tmp_path / "new" / f"{name}.json").write_text('{"seconds"', encoding="utf-8")
    assert compiled.read_result(tmp_path / "new", name) is None


@pytest.mark.parametrize("missing", ["as_text", "cost_analysis"])
def test_a_program_without_text_or_costs_has_the_other_figures(missing):
    def fail() -> None:
        raise jax.errors.JaxRuntimeError("UNIMPLEMENTED")

    lowered = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((4, 4), "float32"))
    program = lowered.compile()
    parts = {name: getattr(program, name) for name in ("memory_analysis", "as_text", "cost_analysis")}
    stand_in = SimpleNamespace(**parts | {missing: fail})
    result = compiled.compile_step(SimpleNamespace(compile=lambda: stand_in), 1)
    assert result.arguments == 128
    assert (result.collectives is None) == (missing == "as_text")
    assert (result.accessed is None) == (missing == "cost_analysis")


def test_the_plans_compiler_equals_the_runs():
    """The extra is `jax[tpu]`, at the versions of constraints.txt."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (extra,) = map(Requirement, metadata["project"]["optional-dependencies"]["tpu-plan"])
    assert extra.name == "jax" and extra.extras == {"tpu"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = dict(line.split("==") for line in lines)
    assert pinned["jax"] == importlib.metadata.version("jax")
    requirements = [Requirement(line) for line in importlib.metadata.requires("jax") or ()]
    (compiler,) = [
        one for one in requirements if one.name == "libtpu" and one.marker and one.marker.evaluate({"extra": "tpu"})
    ]
    assert compiler.specifier.contains(pinned["libtpu"])


def test_result_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert compiled.result_folder() == Path("somewhere/bertzoo/plans")
    assert compiled.result_folder("here") == Path("here")
