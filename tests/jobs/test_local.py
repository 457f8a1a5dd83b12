"""Which device each of the processes side by side has."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.jobs import local, record

CUDA = "CUDA_VISIBLE_DEVICES"
BOUNDS = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CUDA, "TPU_VISIBLE_CHIPS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("found", "processes", "visible", "expected"),
    [
        (("cpu", 8), None, {}, [{}]),
        (("cpu", 8), 3, {}, [{}, {}, {}]),
        (("gpu", 2), None, {}, [{CUDA: "0"}, {CUDA: "1"}]),
        (("gpu", 4), 1, {}, [{CUDA: "0"}]),
        (("gpu", 2), None, {CUDA: "3,GPU-5"}, [{CUDA: "3"}, {CUDA: "GPU-5"}]),
        (("tpu", 2), None, {}, [{"TPU_VISIBLE_CHIPS": "0", **BOUNDS}, {"TPU_VISIBLE_CHIPS": "1", **BOUNDS}]),
        (("tpu", 2), 1, {"TPU_VISIBLE_CHIPS": "2,3"}, [{"TPU_VISIBLE_CHIPS": "2", **BOUNDS}]),
        (("rocm", 2), None, {}, [{}]),
    ],
)
def test_one_device_each(monkeypatch, found, processes, visible, expected) -> None:
    for name, value in visible.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(local, "count_devices", lambda: found)
    assert local.device_environments(processes) == expected


@pytest.mark.parametrize(("found", "most"), [(("gpu", 2), 2), (("rocm", 4), 1)])
def test_more_processes_than_devices_raise(monkeypatch, found, most) -> None:
    monkeypatch.setattr(local, "count_devices", lambda: found)
    with pytest.raises(UserError, match=mentioning("--processes=3", most)):
        local.device_environments(3)


@pytest.mark.parametrize(
    ("found", "processes"), [(("cpu", 1), 2), (("gpu", 8), 2), (("tpu", 8), 2), (("gpu", 1), 1), (("rocm", 1), 1)]
)
def test_cores_limit_the_number_of_processes(monkeypatch, found, processes: int) -> None:
    monkeypatch.setattr(local, "count_devices", lambda: found)
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    assert len(local.device_environments(None, 2)) == processes


@pytest.mark.parametrize(("cores", "pinned"), [(None, [{0}, {1}, {0}, {0}]), (2, [{0, 1}, {2, 3}, {0, 1}, {0, 1}])])
def test_jobs_wait_for_memory_and_share_the_cores(monkeypatch, cores: int | None, pinned: list[set[int]]) -> None:
    needed, running, started, shares = {"a": 3, "b": 2, "c": 9, "d": 1}, {}, [], []

    class Process:
        returncode = pid = 0

        def __init__(self, job: Any, _: Any):
            self._job, self._polls = job, 3
            running[job.name] = self
            started.append("".join(running))

        def poll(self) -> int | None:
            self._polls -= 1
            if not self._polls:
                del running[self._job.name]
            return None if self._polls else 0

    monkeypatch.setattr(local, "_POLL", 0)
    monkeypatch.setattr(local, "machine_memory", lambda: (8, 5))
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr(local.os, "sched_setaffinity", lambda process, share: shares.append(share))
    jobs: Any = [SimpleNamespace(name=name) for name in needed]
    local.run_processes(jobs, [{}] * 3, cast(Any, Process), lambda *_: None, needed, cores)
    assert started == ["a", "ab", "c", "d"]  # c never fits beside another
    assert shares == pinned
    local.run_processes(jobs[:1], [{}] * 3, cast(Any, Process), lambda *_: None, needed, cores)
    assert shares[4:] == ([{0, 1}] if cores else [])  # a job that runs alone


def test_devices_are_listed_by_another_process(monkeypatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    assert local.count_devices() == ("cpu", 3)
    monkeypatch.setattr(local, "_COUNT", "raise SystemExit('first\\nno abacus here')")
    with pytest.raises(RuntimeError, match=mentioning("devices")):
        local.count_devices()


def test_a_stamp_changes_with_name_size_and_modification_time(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    os.utime(file, ns=(0, 1))
    stamps = [record.files_stamp(str(tmp_path))]
    file.write_text("two")
    os.utime(file, ns=(0, 2))  # the same size
    stamps.append(record.files_stamp(str(tmp_path)))
    file.write_text("three")
    os.utime(file, ns=(0, 2))
    stamps.append(record.files_stamp(str(tmp_path)))
    file.rename(tmp_path / "b.txt")
    stamps.append(record.files_stamp(str(tmp_path)))
    assert len({*stamps}) == 4 and None not in stamps
    assert record.files_stamp(str(tmp_path)) == stamps[-1] and record.files_stamp(str(tmp_path / "none")) is None
