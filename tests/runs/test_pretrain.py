"""Whole runs of a tiny model from the command line: their files, stopping, resuming and errors."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import tiny
from damage import flip, largest
from messages import mentions
from tiny import records

from bertzoo.cli.main import main
from bertzoo.core.machine import processor
from bertzoo.nn.products import RESULTS_VARIABLE
from bertzoo.runs import experiments, load_model
from bertzoo.runs.load_model import load_run
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import optim, sharding, state
from bertzoo.train.checkpoint import Checkpoints

pytestmark = pytest.mark.usefixtures("one_device")

EARLIER = Path(__file__).parents[1] / "golden" / "run.tar.xz"  # a run of revision e0a04c78, after 4 of its 10 steps


def whole(run: Path):
    """Every leaf of a run's newest state, the optimiser's too."""
    recipe = RunDirectory(run).load()
    setup, mesh = experiments.build_setups(recipe)[-1], sharding.make_mesh(recipe.mesh)
    optimizer = optim.build(setup.optimizer, 1, rates=setup.rates)
    with Checkpoints(run / "checkpoints") as checkpoints:
        return checkpoints.restore_latest(state.abstract(setup.objective, optimizer, mesh))


def assert_same_state(run: Path, other: Path) -> None:
    chex.assert_trees_all_equal(whole(run), whole(other))


def test_run_of_an_earlier_version_resumes_bit_for_bit(tmp_path, monkeypatch):
    with tarfile.open(EARLIER) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", "tiny.toml", "--run_dir=run", "--run.keep_last=9"]) == 0
    events = [record["event"] for record in records(tmp_path / "run") if "event" in record]
    assert "resumed" in events and "changed" not in events
    cpu = processor()
    made = {
        "processor": cpu.name,
        "extensions": hashlib.sha256(" ".join(sorted(cpu.extensions)).encode()).hexdigest(),
        "jax": jax.__version__,
        "xla_flags": os.environ["XLA_FLAGS"].strip(),
    }
    same = made == json.loads((tmp_path / "made.json").read_text())  # another processor or XLA may round differently
    expected, found = np.load(tmp_path / "expected.npz"), load_model.read_model(tmp_path / "run").params
    assert set(expected) == set(found)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=0 if same else 1e-5, err_msg=name)


def error(capsys, *argv: str, code: int = 2) -> str:
    """Return the one error that a failing command prints."""
    assert main(argv) == code
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("bertzoo: ")
    return message


@pytest.mark.slow
def test_a_run_with_a_warm_up_in_steps_resumes(finished_run, tiny_config, tmp_path, capsys):
    """The checkpoint is checked under the stage's schedule; one of a single step would be shorter than the warm-up."""
    run = shutil.copytree(finished_run, tmp_path / "run")
    schedule = ["--optimizer.schedule.warmup_share=0", "--optimizer.schedule.warmup_steps=2"]
    assert main(["pretrain", tiny_config, f"--run_dir={run}", *schedule]) == 0
    assert mentions(capsys.readouterr().err, "warmup_steps", "finished after 10 steps")


def test_the_files_of_a_run_whose_schedule_starts_again_with_its_second_stage(finished_run):
    rows = records(finished_run)
    train = [row for row in rows if row.get("split") == "train"]
    assert [row["step"] for row in train] == list(range(1, 11))
    assert [row["stage"] for row in train] == [0] * 6 + [1] * 4
    wanted = ["loss", "mlm_loss", "mlm_hidden_loss", "mlm_accuracy", "sop_loss", "sop_accuracy"]
    wanted += ["learning_rate", "memory_bytes", "elapsed_seconds"]
    assert all(np.isfinite(row[name]) for row in train for name in wanted)
    assert all(row["loss"] == pytest.approx(row["mlm_loss"] + row["sop_loss"], rel=1e-6) for row in train)
    rates = [row["learning_rate"] for row in train]
    assert rates[0] == rates[6] == 0 and max(rates[:6]) > rates[5] and max(rates[6:]) == rates[7]
    assert {row["step"] for row in rows if row.get("split") == "heldout"} == {2, 4, 6, 8, 10}
    assert rows[-1]["event"] == "finished"
    assert json.loads((finished_run / "run.json").read_text())["devices"] == ["cpu cpu"] * jax.device_count()
    assert list((finished_run / "tensorboard").iterdir())
    assert (finished_run / "checkpoints" / "10.sha256.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("stop_after", "dtype"), [(3, "float32"), (8, "float32"), (8, "bfloat16")])
def test_a_stopped_run_resumes_to_the_same_parameters(
    finished_run, tiny_config, tmp_path, stop_after, dtype, monkeypatch
):
    run, options = tmp_path / "run", [f"--compute.dtype={dtype}"]
    if dtype == "bfloat16":
        monkeypatch.setenv(RESULTS_VARIABLE, "float32")  # also for this process, which has several devices
        finished_run = tmp_path / "finished"
        assert main(["pretrain", tiny_config, f"--run_dir={finished_run}", *options]) == 0
    alone = os.environ | {"XLA_FLAGS": os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")}
    words = [sys.executable, "-m", "bertzoo", "pretrain", tiny_config, f"--run_dir={run}", *options]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=alone)
    deadline = time.monotonic() + 300
    while f'"step": {stop_after},' not in (
        read := (run / "metrics.jsonl").read_text() if run.is_dir() and (run / "metrics.jsonl").is_file() else ""
    ):
        assert process.poll() is None and time.monotonic() < deadline, read
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=300)
    stopped = [row for row in records(run) if row.get("event") == "stopped"]
    if process.returncode == 0:
        pytest.fail(f"the run finished before it noticed the signal: {stderr}")
    assert process.returncode == 3 and mentions(stderr, "command")
    assert main(["pretrain", tiny_config, f"--run_dir={run}", *options]) == 0
    resumed = [row for row in records(run) if row.get("event") == "resumed"]
    assert [row["step"] for row in resumed] == [stopped[0]["step"]]
    assert_same_state(finished_run, run)


def test_allowed_changes_are_applied_and_logged(finished_run, tiny_config, tmp_path, capsys):
    run = shutil.copytree(finished_run, tmp_path / "run")
    assert main(["pretrain", tiny_config, f"--run_dir={run}", "--stages.1.steps=5"]) == 0
    assert mentions(capsys.readouterr().err, "stages")
    assert load_run(run).step == 11
    (changed,) = [row for row in records(run) if row.get("event") == "changed"]
    assert (changed["step"], changed["changes"]) == (10, ["stages.1.steps: 4 -> 5"])
    assert main(["report", str(run)]) == 0
    assert "step 10: stages.1.steps: 4 -> 5\n" in (run / "report.md").read_text()


def test_a_damaged_checkpoint_falls_back_to_the_one_before(finished_run, tiny_config, tmp_path, capsys, caplog):
    run = shutil.copytree(finished_run, tmp_path / "run")
    victim = flip(largest(run / "checkpoints" / "10" / "params"))
    assert main(["pretrain", tiny_config, f"--run_dir={run}"]) == 0
    said = caplog.text + capsys.readouterr().err
    assert victim.name in said and mentions(said, "checkpoint 8")
    chex.assert_trees_all_equal(load_run(finished_run).params, load_run(run).params)


def test_evaluate(finished_run, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(finished_run), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["step"] == 10 and figures["max_length"] == 48 and np.isfinite(figures["mlm_loss"])
    assert figures["loss"] == pytest.approx(figures["mlm_loss"] + figures["sop_loss"])
    below = {name: figures["unigram_entropy"] - figures[f"mlm_{name}"] for name in ("loss", "hidden_loss")}
    for flag, name in (("--below_unigram", "loss"), ("--hidden_below_unigram", "hidden_loss")):
        message = error(capsys, "evaluate", str(finished_run), f"{flag}={below[name] + 1e-6}", code=1)
        assert mentions(message, flag, f"{below[name]:.3f}")
        assert main(["evaluate", str(finished_run), f"{flag}={below[name] - 1e-6}"]) == 0
    shown = capsys.readouterr().out.splitlines()
    rows = {" ".join(line.split()[:-2]): line.split()[-2] for line in shown if line.endswith("nats")}
    assert rows["MLM loss of hidden tokens"] == f"{figures['mlm_hidden_loss']:.3f}"
    assert rows["MLM loss below the entropy"] == f"{below['loss']:.3f}" != f"{below['hidden_loss']:.3f}"
    (line,) = (line for line in shown if "of hidden tokens below the entropy" in line)
    assert f" {below['hidden_loss']:.3f}  nats" in line
    assert mentions(error(capsys, "evaluate", str(finished_run), "--checkpoint=7"), "checkpoint 7")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.source=nowhere/*.txt"], ("nowhere/*.txt",)),
        (["--stages.0.batch_size=4096"], ("batch", "4,096")),
        (["--stages.0.batch_size=12"], ("batch_size=12",)),
        (["--model.vocab_size=100"], ("model.vocab_size", 100)),
        (["--stages.1.max_length=64"], ("model.max_positions", 48)),
        (["--mesh.data=3"], ("mesh", "data=3")),
        (["--workerz=3"], ("--workerz", "--workers")),
        (["--workers=-1"], ("--workers=-1",)),
        (["--workers=two"], ("--workers=two",)),
        (["--seed=99999999999999999999"], ("seed", 99999999999999999999)),
        (["--optimizer.schedule.warmup_share=0", "--optimizer.schedule.warmup_steps=5"], ("warmup_steps=5",)),
        (["--stages.0.max_length=4", "--stages.0.max_predictions=2"], ("stages.0.max_length", 4)),
        (["--stages.1.batch_size=4096"], ("batch", "4,096")),
    ],
)
def test_bad_options_raise_one_error_before_a_step(options, message, tiny_config, tmp_path, capsys):
    run = tmp_path / "run"
    with tiny.devices(8):
        said = error(capsys, "pretrain", tiny_config, f"--run_dir={run}", *options)
    assert mentions(said.replace(str(tmp_path), ""), *message)
    assert not (run / "metrics.jsonl").exists() and not (run / "config.toml").exists()


@pytest.mark.slow
def test_a_text_without_rows_for_held_out_documents_can_be_mended_in_place(tiny_config, tmp_path, capsys):
    run, steps = tmp_path / "run", ("--stages.0.steps=1", "--stages.1.steps=1")
    text = tiny.write_text(tmp_path / "few.txt", documents=1)
    said = error(capsys, "pretrain", tiny_config, f"--run_dir={run}", f"--data.source={text}", *steps)
    assert mentions(said, "heldout = ", run / "corpus")
    tiny.write_text(text)
    shutil.rmtree(run / "corpus")  # as the sentence says
    assert main(["pretrain", tiny_config, f"--run_dir={run}", f"--data.source={text}", *steps]) == 0


@pytest.mark.parametrize(
    "option", ["--stages.1.batch_size=16", "--stages.0.max_length=24", "--optimizer.variant=optax", "--model.layers=2"]
)
def test_changes_of_rows_moments_or_the_model_raise_and_are_not_written(finished_run, tiny_config, capsys, option):
    before = (finished_run / "config.toml").read_text()
    key = option[2:].split("=")[0]
    assert f"{key}: " in error(capsys, "pretrain", tiny_config, f"--run_dir={finished_run}", option)
    assert (finished_run / "config.toml").read_text() == before


def test_run_dir_must_be_a_directory_that_can_be_written(tiny_config, tmp_path, capsys):
    (file := tmp_path / "file").write_text("")
    for run_dir, parts in (
        (file, [f"{file} "]),
        (file / "run", [file, os.strerror(errno.ENOTDIR)]),
        ("", ["--run_dir"]),
    ):
        assert mentions(error(capsys, "pretrain", tiny_config, f"--run_dir={run_dir}"), *parts)


@pytest.mark.slow
def test_a_run_is_read_from_anywhere_without_its_source(tiny_config, tiny_corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tiny_corpus.parent)
    steps = ("--stages.0.steps=1", "--stages.1.steps=1")
    assert main(["pretrain", tiny_config, f"--run_dir={tmp_path / 'run'}", "--data.source=corpus", *steps]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "run", "one [MASK] two"]) == 0
    assert not (tmp_path / "run" / "corpus").exists()
    for top in ("0", "999"):
        assert f"--top={top}" in error(capsys, "predict", "run", f"--top={top}", "one [MASK] two")


def losses(run: Path, split: str) -> list[float]:
    return [row["loss"] for row in records(run) if row.get("split") == split]


@pytest.mark.slow
def test_the_config_sets_kept_checkpoints_and_evaluated_rows(finished_run, tiny_config, tmp_path):
    run = tmp_path / "run"
    keep = ("--run.keep_last=1", "--run.keep_best=0", "--run.evaluate_rows=1")
    assert main(["pretrain", tiny_config, f"--run_dir={run}", *keep]) == 0
    assert [path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()] == ["10"]
    assert losses(run, "train") == losses(finished_run, "train")
    assert len(losses(run, "heldout")) == 5 and losses(run, "heldout") != losses(finished_run, "heldout")


def test_a_loss_that_is_not_finite_stops_the_run_and_names_its_rows(tiny_config, tmp_path, capsys):
    run, options = tmp_path / "run", ["--optimizer.learning_rate=1e30", "--optimizer.clip_norm=0"]
    message = error(capsys, "pretrain", tiny_config, f"--run_dir={run}", *options, code=1)
    assert mentions(message, "step 2", "stage 0", "rows 16 to 31")
    assert "checkpoint" in message and len(message) < 500
    (event,) = [row for row in records(run) if row.get("event") == "non_finite"]
    assert event["message"] in message
