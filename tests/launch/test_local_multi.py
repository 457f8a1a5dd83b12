"""launch/local_multi.sh: N processes of one run, whose outputs, signals and exit codes are one."""

import os
import signal
import time

import pytest
from clouds import Cloud
from messages import mentions

RUN = ("demo", "--run_dir=runs/x")


def test_every_process_gets_its_own_number_and_all_the_same_place(cloud: Cloud, hostile: list[str]) -> None:
    out = cloud.run("local_multi.sh", "3", *hostile)
    calls = cloud.calls("bertzoo", "pretrain")
    assert len(calls) == 3 and all(call[: len(hostile)] == hostile for call in calls)
    own = [dict(word.removeprefix("--distributed.").split("=") for word in call[len(hostile) :]) for call in calls]
    assert {int(options["process"]) for options in own} == {0, 1, 2}
    (coordinator,) = {options["coordinator"] for options in own}
    host, port = coordinator.split(":")
    assert host == "127.0.0.1" and 61000 <= int(port) < 65536 and {options["processes"] for options in own} == {"3"}
    assert sorted(out.splitlines()) == [f"[{i}] process {i} begins" for i in range(3)]
    assert {record["xla"] for record in cloud.records("bertzoo")} == {None}
    assert not list(cloud.folder.rglob("broken"))


@pytest.mark.parametrize("words", [("transfer", "demo_transfer"), ("prune", "demo_prune", "--from=runs/demo")])
def test_a_transfer_and_a_pruning_are_run_as_one(cloud: Cloud, words: tuple[str, ...]) -> None:
    cloud.run("local_multi.sh", "2", *words, "--run_dir=runs/x")
    assert len(cloud.calls("bertzoo", *words, "--run_dir=runs/x")) == 2


def test_devices_are_simulated_beside_other_flags(cloud: Cloud) -> None:
    cloud.run("local_multi.sh", "--devices-per-process=4", "1", *RUN, XLA_FLAGS="--xla_dump_to=here")
    (record,) = cloud.records("bertzoo")
    assert record["xla"] == "--xla_dump_to=here --xla_force_host_platform_device_count=4"


def own(out: str) -> list[str]:
    """The lines that the script itself says."""
    return [line for line in out.splitlines() if line.startswith("local_multi.sh: ")]


@pytest.mark.parametrize("code", [2, 3])
def test_the_first_code_that_fails_is_the_result(cloud: Cloud, code: int) -> None:
    cloud.set(codes0=[code], codes1=[0], seconds1=0.3, codes2=[4], seconds2=0.5)
    (said,) = own(cloud.run("local_multi.sh", "3", *RUN, code=code))
    assert mentions(said, "process 0", f"code {code}")


def test_who_does_not_end_is_ended(cloud: Cloud) -> None:
    cloud.set(codes0=[-9], seconds1=60, codes2=[0])
    begun = time.monotonic()
    out = cloud.run("local_multi.sh", "--grace=0", "3", *RUN, code=137)
    first, _ = own(out)  # and of the others, once they are ended
    assert time.monotonic() - begun < 10 and mentions(first, "process 0", "code 137")


def test_a_stopped_process_is_named_and_killed_at_once(cloud: Cloud) -> None:
    cloud.set(codes0=[4], seconds0=0.3, codes1=[-signal.SIGSTOP], codes2=[0])
    begun = time.monotonic()
    out = cloud.run("local_multi.sh", "3", *RUN, code=4)
    assert time.monotonic() - begun < 20 and mentions(
        "\n".join(own(out)), "process 0", "code 4", "process 1", "SIGSTOP"
    )


def test_sigterm_reaches_all_and_their_code_is_the_result(cloud: Cloud) -> None:
    cloud.set(seconds0=60, seconds1=60)
    process = cloud.start("local_multi.sh", "2", *RUN)
    cloud.wait_for_runs(2)
    os.kill(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 3
    assert sorted(out.splitlines()) == ["[0] process 0 begins; saved", "[1] process 1 begins; saved"]


def test_a_dry_run_starts_nothing(cloud: Cloud) -> None:
    out = cloud.run("local_multi.sh", "--dry-run", "--devices-per-process=2", "2", *RUN, "--x=a b")
    assert out.count("device_count=2 bertzoo pretrain demo --run_dir=runs/x --x=a\\ b --distributed.coordinator=") == 2
    assert not cloud.calls()


def test_a_missing_bertzoo_prints_an_error(cloud: Cloud) -> None:
    (cloud.bin / "bertzoo").unlink()
    assert mentions(cloud.run("local_multi.sh", "2", *RUN, code=2), "bertzoo", "PATH")
