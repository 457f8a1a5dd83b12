"""A trace of some training steps: which steps it holds, and the names of the model's parts in it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
import tiny
import toy
from messages import mentioning

from bertzoo.core import config
from bertzoo.core.errors import ConfigError, Stopped
from bertzoo.runs.configs import Pretrain
from bertzoo.train import loop
from bertzoo.train.loop import RunSettings

SETTINGS = {"log_every": 1, "evaluate_every": 0, "save_every": 2, "profile_start": 4, "profile_steps": 3}


def trace(directory: Path) -> Path:
    """The one trace in a directory, in the layout that xprof and TensorBoard read."""
    (file,) = directory.glob("plugins/profile/*/*.xplane.pb")
    assert file.with_suffix("").with_suffix(".trace.json.gz").is_file()
    return file


def steps(file: Path) -> list[int]:
    planes = jax.profiler.ProfileData.from_file(str(file)).planes
    events = [event for plane in planes for line in plane.lines for event in line.events if event.name == "train"]
    return sorted(dict(event.stats)["step_num"] for event in events)


def test_a_trace_holds_the_steps_that_the_config_names(tmp_path: Path):
    records = toy.Records()
    loop.run(toy.job(config=RunSettings(**SETTINGS), profile=tmp_path, reporters=[records]))
    assert steps(trace(tmp_path)) == [4, 5, 6]  # in two stages
    (ended,) = [record for record in records.events() if record["event"] == "profiled"]
    assert ended["step"] == 6 and ended["stage"] == 1


def test_a_stopped_run_writes_its_trace_and_a_resumed_one_traces_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    original = loop._due

    def due(job: loop.Job, step: int, stage_end: int) -> tuple[bool, bool]:
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(job, step, stage_end)

    monkeypatch.setattr(loop, "_due", due)
    with pytest.raises(Stopped):
        loop.run(toy.job(tmp_path / "run", config=RunSettings(**SETTINGS), profile=tmp_path / "first"))
    loop.run(toy.job(tmp_path / "run", config=RunSettings(**SETTINGS), profile=tmp_path / "second"))
    assert steps(trace(tmp_path / "first")) == [4, 5] and steps(trace(tmp_path / "second")) == [6]


def test_a_profile_after_the_last_step_raises(tmp_path: Path):
    file = tiny.write_config(tmp_path, "text.txt")  # 10 steps
    with pytest.raises(ConfigError, match=mentioning("run.profile_start", 11, 10)):
        config.load(Pretrain, [file], [("run.profile_start", "11"), ("run.profile_steps", "1")])


@pytest.mark.slow
def test_the_operations_of_a_trace_are_named_by_the_models_parts(tiny_config: str, tmp_path: Path):
    """JAX leaves names out of its cache's keys, so a program that another version compiled would have that one's."""
    words = ["pretrain", tiny_config, f"--run_dir={tmp_path / 'run'}", "--stages.0.steps=2", "--stages.1.steps=1"]
    words += ["--run.profile_start=2", "--run.profile_steps=1"]
    variables = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    subprocess.run([sys.executable, "-m", "bertzoo", *words], check=True, env=variables)
    file = trace(tmp_path / "run" / "profile")
    assert steps(file) == [2]
    names = re.findall(rb"jit\(train_step\)/[\w()./,<>;-]+", file.read_bytes())
    layer = [f"encoder/layers_0/{part}/" for part in ("attention", "feed_forward")]
    layer += [f"encoder/layers_0/attention/{part}/" for part in ("query", "key", "value", "output")]
    for part in ("embedding/word/", *layer, "masked_head/", "sentence_head/"):
        assert any(part.encode() in name and b"jvp(" in name for name in names), part
        assert any(part.encode() in name and b"transpose(" in name for name in names), part  # the backward pass
    assert any(b"/optimizer/" in name for name in names)
