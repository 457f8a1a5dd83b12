"""A stage's `watch`: in the records, at most for a share of the time, and not timed as a step."""

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import toy

from bertzoo.train import loop
from bertzoo.train.loop import RunSettings
from bertzoo.train.progress import Record


class Memory:
    """A reporter that keeps the records of training."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(self, record: Record) -> None:
        if record.get("split") == "train":
            self.records.append(record)

    def close(self) -> None: ...


def test_watched_figures_are_in_every_record_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures belong to the step's parameters. A slow watch skips records but a stage's last, and is not timed."""
    seen: list[Any] = []

    def watch(params: Any) -> dict[str, float]:
        seen.append(toy.copy(params))
        return {"watched": float(len(seen))}

    def setups(watch: Any) -> list[Any]:
        return [dataclasses.replace(setup, watch=watch) for setup in toy.job().experiment.setups]

    config, memory = RunSettings(log_every=1, evaluate_every=0), Memory()
    state = loop.run(toy.job(setups=setups(watch), config=config, reporters=[memory]))
    records = memory.records
    watched = [record for record in records if "watched" in record]
    assert watched[0] is records[0] and watched[-1] is records[-1] and toy.same(seen[-1], state.params)

    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("bertzoo.train.progress.time", SimpleNamespace(perf_counter=lambda: clock.now))

    def slow(params: Any) -> dict[str, float]:
        clock.now += 10.0
        return {"watched": 1.0}

    def timed(stage: int, row: int) -> Iterator[Any]:
        for one in toy.batches(stage, row):
            clock.now += 1.0
            yield one

    memory = Memory()
    loop.run(toy.job(setups=setups(slow), config=config, batches=timed, reporters=[memory]))
    records = memory.records
    assert [record["step"] for record in records if "watched" in record] == [1, 5, 9]
    rates = [record["examples_per_second"] for record in records if "examples_per_second" in record]
    assert rates and rates == [toy.ROWS] * len(rates)
