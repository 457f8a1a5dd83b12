"""The loop: resumption bit for bit, signals, numbers that are not finite, records."""

import contextlib
import dataclasses
import itertools
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from messages import mentioning, mentions
from tiers import quick
from toy import Records

from bertzoo.core.errors import ConfigError, NonFinite, Stopped
from bertzoo.train import loop, progress
from bertzoo.train.checkpoint import Checkpoints, steps_in
from bertzoo.train.loop import RunSettings
from bertzoo.train.signals import StopRequest
from bertzoo.train.state import State

TOTAL = sum(stage.steps for stage in toy.STAGES)


class Crash(Exception):
    """A run that dies without a message."""


def before(step: int, act: Callable[[], None]):
    """The batches of a run in which something happens before the batch of `step` is made."""

    def batches(stage: int, row: int):
        first = sum(one.steps for one in toy.STAGES[:stage]) + row // toy.ROWS + 1
        for number, batch in zip(itertools.count(first), toy.batches(stage, row), strict=False):
            if number == step:
                act()
            yield batch

    return batches


def crash() -> None:
    raise Crash


def run(directory: Path | None = None, **fields: Any) -> State:
    job = toy.job(directory, **fields)
    with job.checkpoints or contextlib.nullcontext():
        return toy.copy(loop.run(job))


@pytest.fixture(scope="module")
def uninterrupted() -> State:
    return run()


@pytest.mark.parametrize("step", quick([2, 4, 6, 8, 9], 4))
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, uninterrupted: State, step: int):
    with pytest.raises(Crash):
        run(tmp_path, batches=before(step, crash))
    memory = Records()
    resumed = run(tmp_path, reporters=[memory])
    assert toy.same(resumed, uninterrupted)
    saved = {2: None, 4: 2, 6: 5, 8: 6, 9: 8}[step]  # every second step and at the end of a stage
    events = {event["event"]: event["step"] for event in memory.events()}
    assert events == ({"resumed": saved} if saved else {}) | {"finished": TOTAL}
    assert memory.of("train")[0]["step"] == (saved or 0) + 1
    assert step - 1 - (saved or 0) < 2  # less than one save interval is repeated


FORGOTTEN: dict[str, Callable[[State], dict[str, Any]]] = {
    "nothing": lambda state: {},
    "moments": lambda state: {"opt_state": jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim else x, state.opt_state)},
    "schedule": lambda state: {
        "opt_state": jax.tree.map(lambda x: x if x.ndim else jnp.zeros_like(x), state.opt_state)
    },
    "key": lambda state: {"key": state.key + 1},
    "row": lambda state: {"position": {**state.position, "row": jnp.zeros_like(state.position["row"])}},
}


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was last saved after step 8, in the middle of its second stage."""
    directory = tmp_path_factory.mktemp("crashed")
    with pytest.raises(Crash):
        run(directory, batches=before(9, crash))
    return directory


@pytest.mark.parametrize("part", FORGOTTEN)
def test_every_part_of_the_state_is_needed(crashed: Path, tmp_path, uninterrupted: State, part: str):
    class Forgetful(Checkpoints):
        def restore_latest(self, abstract: State) -> State | None:
            state = super().restore_latest(abstract)
            return state and dataclasses.replace(state, **FORGOTTEN[part](state))

    shutil.copytree(crashed, tmp_path, dirs_exist_ok=True)
    resumed = run(checkpoints=Forgetful(tmp_path))
    assert toy.same(resumed.params, uninterrupted.params) == (part == "nothing")


def test_a_finished_run_does_nothing(tmp_path, uninterrupted: State):
    run(tmp_path)
    memory = Records()
    assert toy.same(run(tmp_path, reporters=[memory], batches=before(1, crash)), uninterrupted)
    assert [event["event"] for event in memory.events()] == ["resumed", "finished"] and not memory.of("train")


@pytest.fixture
def terminal():
    """SIGHUP acts as on a terminal, even where nohup started the tests."""
    usual = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, usual)


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("name", quick(["SIGTERM", "SIGINT", "SIGHUP"], "SIGTERM"))
def test_a_signal_stops_the_run_with_a_checkpoint_at_that_step(tmp_path, uninterrupted: State, name: str):
    memory = Records()
    usual = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match=mentioning(name, "step 7", tmp_path / "7", "command")):
        kill = before(7, lambda: os.kill(os.getpid(), signal.Signals[name]))
        run(tmp_path, batches=kill, reporters=[memory])
    assert memory.events() == [{"event": "stopped", "step": 7, "stage": 1, "signal": name}]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == usual
    assert memory.of("train")[-1]["step"] == 7
    resumed = Records()
    assert toy.same(run(tmp_path, reporters=[resumed]), uninterrupted)
    assert resumed.events()[0] == {"event": "resumed", "step": 7, "stage": 1}


@pytest.mark.slow
@pytest.mark.parametrize("look", quick(range(1, 12), 1, 6, 9, 10))
def test_a_signal_at_any_moment_reports_the_step_it_stopped_at(tmp_path, look: int, monkeypatch):
    class Late:
        """A stop request that comes true between two looks at it."""

        looks = 0

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None: ...

        @property
        def name(self) -> str | None:
            self.looks += 1
            return "SIGTERM" if self.looks >= look else None

    monkeypatch.setattr(loop, "StopRequest", Late)
    memory = Records()
    if look >= TOTAL:  # only looked at in the last step or later
        run(tmp_path, reporters=[memory])
        assert [event["event"] for event in memory.events()] == ["finished"]
        return
    with pytest.raises(Stopped) as stopped:
        run(tmp_path, reporters=[memory])
    step = memory.events()[-1]["step"]
    assert mentions(str(stopped.value), "SIGTERM", step, f"{tmp_path}/{step}")
    assert memory.of("train")[-1]["step"] == step and step not in [row["step"] for row in memory.of("heldout")]


def test_a_signal_in_the_last_evaluation_stops_the_run_that_follows(tmp_path):
    def measure(step: int, _: Any) -> dict[str, float]:
        if step == TOTAL:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss": 1.0}

    with pytest.raises(Stopped, match=mentioning("SIGTERM", f"step {TOTAL}")):
        run(tmp_path, followed=True, measure=measure)
    again = Records()
    run(tmp_path, followed=True, reporters=[again])
    assert [event["event"] for event in again.events()] == ["resumed", "finished"]


def test_nohup_lets_a_run_outlive_its_terminal(monkeypatch):
    usual = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
            assert stop.name is None
    finally:
        signal.signal(signal.SIGHUP, usual)


def test_a_second_signal_kills():
    # A shell starts background jobs with SIGINT ignored, and Python keeps that.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
            for _ in range(2):  # the same again at once is an echo
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(0.01)
                assert stop.name == "SIGTERM"
            time.sleep(1.1)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("step", quick([1, 3, 4, 5, 7], 5, 7))
def test_a_number_that_is_not_finite_stops_the_run_and_is_not_saved(tmp_path, step: int):
    def poisoned(stage: int, row: int):
        first = sum(one.steps for one in toy.STAGES[:stage]) + row // toy.ROWS + 1
        for number, batch in zip(itertools.count(first), toy.batches(stage, row), strict=False):
            yield {**batch, "x": batch["x"] * (np.nan if number == step else 1)}

    memory = Records()
    with pytest.raises(NonFinite) as error:
        run(tmp_path, batches=poisoned, reporters=[memory])
    message = str(error.value)
    saved = {1: None, 3: 2, 4: 2, 5: 4, 7: 6}[step]
    assert mentions(message, f"step {step} ")
    stage, row = {1: (0, 0), 3: (0, 32), 4: (0, 48), 5: (0, 64), 7: (1, 16)}[step]
    assert mentions(message, f"stage {stage}", f"rows {row} to {row + toy.ROWS - 1}")
    assert mentions(message, "checkpoint", f"{tmp_path}/{saved}" if saved else "no ")
    assert memory.events()[-1]["event"] == "non_finite" and memory.events()[-1]["step"] == step
    assert memory.events()[-1]["message"] == message
    with Checkpoints(tmp_path) as checkpoints:
        assert max(steps_in(checkpoints.directory), default=None) == saved


def test_a_held_out_loss_that_is_not_finite_stops_the_run(tmp_path):
    bad = toy.batch(9, 0)
    bad["x"][0] = np.inf
    with pytest.raises(NonFinite, match=mentioning("step 2")):
        run(tmp_path, heldout=lambda stage: [bad])


def test_records(tmp_path):
    memory, asked = Records(), []

    def heldout(stage: int):
        asked.append(stage)
        return [toy.batch(9, 0), toy.batch(9, 16)]

    config = RunSettings(log_every=4, evaluate_every=3, save_every=3)
    with Checkpoints(tmp_path, keep_last=9) as checkpoints:
        run(
            checkpoints=checkpoints,
            config=config,
            heldout=heldout,
            reporters=[memory],
            flops_per_example=lambda stage, batch: [1e6, 3e6][stage],
            batches=before(9, lambda: time.sleep(0.2)),
        )
    train = memory.of("train")
    assert len({record["started"] for record in train}) == 1
    spent = {name: train[-1][f"{name}_seconds"] for name in progress.SPENT}
    assert min(spent.values()) > 0 and sum(spent.values()) < train[-1]["elapsed_seconds"]
    assert spent["input"] >= 0.2 > train[0]["input_seconds"]
    # The first steps are logged one by one, then every fourth and the last of a stage.
    assert [(record["step"], record["stage"]) for record in train] == [(1, 0), (2, 0), (4, 0), (5, 0), (8, 1), (9, 1)]
    assert [(record["step"], record["stage"]) for record in memory.of("heldout")] == [(3, 0), (5, 0), (6, 1), (9, 1)]
    assert asked == [0, 0, 1, 1]
    # linear decay from 0.02 over 5 steps and from 0.01 over 4: the update of step k is at rate 1 - (k - 1)/steps
    rates = [0.02, 0.02 * 0.8, 0.02 * 0.4, 0.02 * 0.2, 0.01 * 0.5, 0.01 * 0.25]
    assert [record["learning_rate"] for record in train] == pytest.approx(rates, rel=1e-5)
    for record in train:
        assert record["loss"] == pytest.approx(record["fit_loss"] + record["size_loss"])
        assert 0 <= record["close_accuracy"] <= 1 and record["memory_bytes"] > 1e7
        if "examples_per_second" in record:
            assert record["tokens_per_second"] == pytest.approx(8 * record["examples_per_second"])
            flops = record["flops_per_second"] / record["examples_per_second"]
            assert flops == pytest.approx([1e6, 3e6][record["stage"]])
    assert [("examples_per_second" in record) for record in train] == [False, True, True, True, True, True]
    assert train[-1]["elapsed_seconds"] > train[0]["elapsed_seconds"] > 0
    assert steps_in(checkpoints.directory) == [3, 5, 6, 9]


def test_the_mean_of_an_interval_weighs_rows_equally():
    each, every = Records(), Records()
    run(reporters=[each])
    run(reporters=[every], config=RunSettings(log_every=5, evaluate_every=0))
    weights = [toy.batch(0, 16 * k)["weight"].sum() for k in range(2, 5)]
    mean = np.average([record["fit_loss"] for record in each.of("train")[2:5]], weights=weights)
    assert [record["step"] for record in every.of("train")[:3]] == [1, 2, 5]
    assert every.of("train")[2]["fit_loss"] == pytest.approx(mean, rel=1e-6)


@pytest.mark.slow
def test_stages_joined_by_carry_all_equal_one_stage():
    whole = run(stages=[toy.stage(6)], batches=toy.batches)

    def split(stage: int, row: int):
        return toy.batches(0, row + 4 * toy.ROWS * stage)

    parts = run(stages=[toy.stage(4), toy.stage(2, carry="all")], batches=split)
    assert toy.same(parts.params, whole.params) and toy.same(parts.opt_state, whole.opt_state)
    assert (int(parts.position["stage"]), int(parts.position["row"])) == (1, 2 * toy.ROWS)
    restarted = run(stages=[toy.stage(4), toy.stage(2, carry="moments")], batches=split)
    fresh = run(stages=[toy.stage(4), toy.stage(2, carry="params")], batches=split)
    assert not toy.same(parts.params, restarted.params) and not toy.same(restarted.params, fresh.params)


def test_a_checkpoint_of_other_stages_raises(tmp_path):
    with pytest.raises(Crash):
        run(tmp_path, batches=before(9, crash))  # saved after step 8, in stage 1
    with pytest.raises(ConfigError, match=mentioning("step 8", "stage 1", "stage 0")):
        run(tmp_path, stages=[toy.stage(20)])
    with pytest.raises(ConfigError, match=mentioning("step 8", 6)):
        run(tmp_path, stages=[toy.stage(6)])


def test_batches_that_end_early_raise():
    with pytest.raises(RuntimeError, match=mentioning("stage 0", "step 3")):
        run(batches=lambda stage, row: itertools.islice(toy.batches(stage, row), 2))


def test_saves_need_no_evaluation_where_no_checkpoint_is_the_best():
    assert RunSettings(save_every=30, evaluate_every=20, keep_best=0).save_every == 30


def test_throughput_counts_the_computed_tokens(monkeypatch):
    """Rows have two lengths and a step takes a second; compilation, at the first step of each, does not count."""
    lengths = [8, 8, 4, 8, 4, 4]
    clock, count = SimpleNamespace(now=0.0), progress.Meter.step
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: clock.now, time=lambda: clock.now))

    def step(meter: progress.Meter, tokens: int, flops: float) -> None:
        clock.now += 1.0
        count(meter, tokens, flops)

    monkeypatch.setattr(progress.Meter, "step", step)
    monkeypatch.setattr(progress, "_FIRST_STEPS", ())
    monkeypatch.setitem(progress.PEAK_FLOPS, jax.devices()[0].device_kind, 1e9)
    monkeypatch.setattr(toy.Toy, "__call__", chex.assert_max_traces(toy.Toy.__call__, n=2))  # each length once

    def batches(stage: int, row: int):
        for index, length in enumerate(lengths):
            yield toy.batch(0, index) | {"row": np.zeros((toy.ROWS, length), np.float32)}

    memory = Records()
    run(
        stages=[toy.stage(6)],
        batches=batches,
        config=RunSettings(log_every=6, evaluate_every=0),
        reporters=[memory],
        length=lambda batch: batch["row"].shape[1],
        flops_per_example=lambda stage, batch: 1e6 * batch["row"].shape[1],
    )
    (record,) = memory.of("train")
    timed = [4, 8, 4, 4]  # the first compiles, and while the second was computed the third was compiled
    assert record["examples_per_second"] == toy.ROWS
    assert record["tokens_per_second"] == pytest.approx(toy.ROWS * np.mean(timed))
    assert record["flops_per_second"] == pytest.approx(1e6 * record["tokens_per_second"])
    assert jax.device_count() > 1 and record["mfu"] == record["flops_per_second"] / (1e9 * jax.device_count())


def test_the_next_batch_is_on_the_devices_before_the_host_waits_for_a_step(monkeypatch: pytest.MonkeyPatch):
    order: list[tuple[str, int]] = []
    put = loop.put_batch

    def put_batch(*arguments):
        order.append(("put", 1 + sum(what == "put" for what, _ in order)))
        return put(*arguments)

    class Read(Records):
        def __call__(self, record: dict[str, Any]) -> None:
            if record.get("split") == "train":  # its numbers were waited for
                order.append(("read", record["step"]))

    monkeypatch.setattr(loop, "put_batch", put_batch)
    run(stages=[toy.stage(6)], config=RunSettings(log_every=1, evaluate_every=0, save_every=0), reporters=[Read()])
    assert len(order) == 12
    for step in range(1, 6):
        assert order.index(("put", step + 1)) < order.index(("read", step))
