"""launch/tpu_vm.sh and launch/tpu_worker.sh: create a TPU, train on it, survive preemption, delete it."""

import fcntl
import os
import signal
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from clouds import LAUNCH, Cloud
from documented import STATES
from messages import mentions

from bertzoo.planning.chips import parse_topology

WHERE = ("--name=pod", "--zone=us-east5-b", "--project=p")
TPU = (*WHERE, "--accelerator=v6e-16", "--spot", "--poll=0")
RUN = ("--", "demo", "--run_dir=gs://b/x")
QUEUED = ("gcloud", "compute", "tpus", "queued-resources")
VM = ("gcloud", "compute", "tpus", "tpu-vm")
GROUP = ("gcloud", "compute", "instance-groups", "managed")
COMPUTE = ("--api=compute",)
APIS = pytest.mark.parametrize(
    ("api", "resource"), [((), QUEUED), pytest.param(COMPUTE, GROUP, marks=pytest.mark.slow)], ids=["queued", "compute"]
)


@pytest.fixture
def ready(cloud: Cloud) -> Cloud:
    """A cloud where the TPU is there and the workers have the launchers."""
    cloud.set(states=["ACTIVE"])
    for worker in ("worker0", "worker1"):
        install(cloud.folder / worker)
    return cloud


def install(home: Path) -> None:
    """What `copy` leaves on a worker, without the way there."""
    (home / "bertzoo/launch").mkdir(parents=True)
    (home / "bertzoo/launch/tpu_worker.sh").write_text((LAUNCH / "tpu_worker.sh").read_text())
    (home / "bertzoo-venv/bin").mkdir(parents=True)
    (home / "bertzoo-venv/bin/bertzoo").symlink_to(home.parent.parent / "bin/bertzoo")


def ended(cloud: Cloud, runs: int = 2) -> None:
    """Wait until the exit codes of `runs` runs exist."""
    cloud.wait_for(lambda: len(list(cloud.folder.glob("worker?/bertzoo-run/exit"))) == runs)


def group(state: Path) -> int | None:
    """The process group of a worker's run; None if it has ended or not begun."""
    with suppress(ProcessLookupError, FileNotFoundError, ValueError):
        return os.getpgid(int((state / "pid").read_text()))
    return None


def test_a_run_from_creation_to_deletion(cloud: Cloud, hostile: list[str], tmp_path):
    (tmp_path / "my config.toml").write_text("seed = 1\n")
    cloud.set(codes=[0])
    options = (f"--copy={tmp_path}/my config.toml", '--before=[ -e bertzoo/launch ] && echo  two > "$HOME/a  file"')
    out = cloud.run("tpu_vm.sh", "watch", *TPU, *options, "--", *hostile)
    assert mentions(out, "pod", "ABSENT", "WAITING_FOR_RESOURCES", "done")
    asked = ["pod", "--node-id=pod", "--zone=us-east5-b", "--project=p", "--accelerator-type=v6e-16"]
    assert cloud.calls(*QUEUED, "create") == [[*asked, "--runtime-version=v2-alpha-tpuv6e", "--spot"]]
    runs = cloud.records("bertzoo")
    assert sorted(run["host"] for run in runs) == ["worker0", "worker1"]
    assert all(run["argv"] == ["bertzoo", "pretrain", *hostile] for run in runs)
    for run in runs:
        home = cloud.folder / run["host"]
        assert run["cwd"] == str(home / "bertzoo") and (home / "bertzoo/my config.toml").is_file()
        assert (home / "a  file").is_file() and (home / "bertzoo/configs/demo.toml").is_file()
        assert "begins" in (home / "bertzoo-run/log").read_text()
    installs = [call for call in cloud.calls("uv", "pip") if "jax[tpu]" in call]
    assert len(installs) == 2 and all("--constraints=constraints.txt" in call for call in installs)
    assert all("--editable=.[gcs,sentencepiece,tensorboard,zstd]" in call for call in installs)
    assert "gcs" in tomllib.loads((LAUNCH.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert not list(tmp_path.rglob("broken")) and "delete --name=pod --zone=us-east5-b --project=p" in out

    cloud.forget()
    cloud.run("tpu_vm.sh", "delete", *WHERE, "--yes")
    assert cloud.calls(*QUEUED, "delete") == [["pod", "--zone=us-east5-b", "--project=p", "--force", "--quiet"]]
    assert mentions(cloud.run("tpu_vm.sh", "delete", *WHERE, "--yes"), "pod", "us-east5-b")
    assert len(cloud.calls(*QUEUED, "delete")) == 1


@pytest.mark.slow  # what differs from a queued resource; the rest is the same code
def test_a_run_on_an_instance_group(cloud: Cloud, hostile: list[str], tmp_path: Path):
    (tmp_path / "my config.toml").write_text("seed = 1\n")
    copied = f"--copy={tmp_path}/my config.toml"
    out = cloud.run("tpu_vm.sh", "watch", *COMPUTE, *TPU, copied, "--", *hostile)
    assert mentions(out, "pod", "ABSENT", "PROVISIONING", "ACTIVE", "done", "delete --name=pod", "--api=compute")
    (policy,) = cloud.calls("gcloud", "compute", "resource-policies", "create", "workload-policy")
    (template,) = cloud.calls("gcloud", "compute", "instance-templates", "create")
    (group,) = cloud.calls(*GROUP, "create")
    assert {"bertzoo-4x4", "--region=us-east5", "--accelerator-topology=4x4"} <= {*policy}
    assert {"--machine-type=ct6e-standard-4t", "--provisioning-model=SPOT"} <= {*template}
    policy_url = "--workload-policy=projects/p/regions/us-east5/resourcePolicies/bertzoo-4x4"
    assert {"pod", "--size=4", f"--template={template[0]}", policy_url} <= {*group}
    for number, run in enumerate(sorted(cloud.records("bertzoo"), key=lambda run: run["host"])):
        others = ["coordinator=10.0.0.1:8476", "processes=2", f"process={number}"]
        assert run["host"] == f"worker{number}" and (cloud.folder / run["host"] / "bertzoo/my config.toml").is_file()
        assert run["argv"] == ["bertzoo", "pretrain", *hostile, *(f"--distributed.{word}" for word in others)]
    assert not list(tmp_path.rglob("broken")) and not cloud.calls("gcloud", "compute", "tpus")
    cloud.run("tpu_vm.sh", "delete", *COMPUTE, *WHERE, "--yes")
    assert cloud.calls(*GROUP, "delete") == [["pod", "--zone=us-east5-b", "--project=p", "--quiet"]]
    cloud.set(lives=[["ACTIVE"]])
    cloud.run("tpu_vm.sh", "create", *COMPUTE, *TPU)  # the policy and the template are there
    assert len(cloud.calls(*GROUP, "create")) == 2


@pytest.mark.parametrize("accelerator", ["v6e-16", "v6e-32", "v6e-256", "v5p-16", "v5p-32", "v5p-256", "tpu7x-64"])
def test_a_slice_of_an_instance_group_has_googles_default_shape(cloud: Cloud, accelerator: str):
    topology = parse_topology(accelerator)
    out = cloud.run("tpu_vm.sh", "create", "--dry-run", *COMPUTE, *WHERE, f"--accelerator={accelerator}")
    assert f"--accelerator-topology={topology.name.partition(':')[2]} " in out
    assert f"--size={topology.chips // 4} " in out and "4t " in out


@pytest.mark.parametrize(("number", "follows"), [("0", True), ("1", False)])
def test_a_host_of_a_group_follows_its_log_only_if_the_number_is_its_own(cloud: Cloud, number: str, follows: bool):
    cloud.set(made=[])
    (cloud.folder / "bertzoo-run").mkdir()
    (cloud.folder / "bertzoo-run/log").write_text("of host 0\n")
    tail = cloud.bin / "tail"
    tail.write_text('#!/bin/sh\n/usr/bin/cat "$4"\n')
    tail.chmod(0o755)
    home = {**cloud.environment, "HOME": str(cloud.folder), "FAKE_HOST": "worker0"}
    command = ["bash", str(LAUNCH / "tpu_worker.sh"), "tail", number]
    assert subprocess.check_output(command, env=home, text=True) == ("of host 0\n" if follows else "")


def test_an_interrupt_ends_the_connections_to_all_hosts(ready: Cloud):
    ready.set(made=[])
    log = str(ready.folder / "worker0/bertzoo-run/log").encode()

    def followed() -> bool:
        commands = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                commands.append(file.read_bytes())
        return any(b"-F" in command and log in command for command in commands)

    process = ready.start("tpu_vm.sh", "tail", *COMPUTE, *WHERE)
    ready.wait_for(followed)
    process.send_signal(signal.SIGTERM)  # as Ctrl-C; where tests run, SIGINT may be ignored
    process.communicate(timeout=60)
    assert process.returncode == 130
    ready.wait_for(lambda: not followed())


def test_flex_start_asks_for_capacity_for_a_time(cloud: Cloud):
    cloud.run("tpu_vm.sh", "create", *WHERE, "--accelerator=v6e-8", "--flex-start=1d", "--poll=0")
    (asked,) = cloud.calls("gcloud", "alpha", *QUEUED[1:], "create")
    assert asked[-2:] == ["--provisioning-model=flex-start", "--max-run-duration=1d"]
    out = cloud.run("tpu_vm.sh", "create", "--dry-run", *COMPUTE, *WHERE, "--accelerator=v6e-8", "--flex-start=1d")
    assert "--machine-type=ct6e-standard-8t" in out and "workload-policy" not in out
    assert "--provisioning-model=FLEX_START --max-run-duration=1d --instance-termination-action=DELETE" in out


SMOKE = (*WHERE, "--accelerator=v6e-8", "--poll=0")


@pytest.mark.parametrize("code", [0, 1])
@APIS
def test_a_smoke_test_brings_its_results_and_deletes_the_tpu(
    cloud: Cloud, api: tuple[str, ...], resource: tuple[str, ...], code: int, tmp_path: Path
):
    """In place of launch/smoke.sh, whose runs tests/launch/test_smoke.py has."""
    cloud.set(smoke=code)
    words = ("smoke", *api, *SMOKE, f"--folder={tmp_path}/results")
    out = cloud.run("tpu_vm.sh", *words, code=code)
    assert (tmp_path / "results/smoke.txt").read_text() == "measured\n"
    assert mentions(out, "results/smoke.txt", "issue form")
    assert len(cloud.calls(*resource, "create")) == len(cloud.calls(*resource, "delete")) == 1
    assert mentions(cloud.run("tpu_vm.sh", *words, code=2), "results", "exists")
    cloud.set(states=["ACTIVE"])
    (cloud.folder / "worker0").mkdir()
    assert mentions(cloud.run("tpu_vm.sh", "smoke", *api, *SMOKE, code=2), "pod", "ACTIVE", "--name")
    assert len(cloud.calls(*resource, "delete")) == 1  # not somebody's TPU


@pytest.mark.parametrize("step", ["tpu-vm scp", "tpu_worker.sh install"])
def test_a_smoke_test_that_fails_deletes_the_tpu_too(cloud: Cloud, step: str):
    cloud.set(failures=[[step, 7, 1]])
    cloud.run("tpu_vm.sh", "smoke", *SMOKE, code=7)
    assert len(cloud.calls(*QUEUED, "delete")) == 1


@pytest.mark.parametrize("words", [("--run_dir=gs://b/66m",), ("--run_dir", "gs://b/66m")], ids=["one", "two"])
def test_pruning_behind_a_url_stops_before_anything_is_rented(cloud: Cloud, words: tuple[str, ...]):
    out = cloud.run("tpu_vm.sh", "watch", *TPU, "--", "prune", "prune_66m", "--from=bucket/bert", *words, code=2)
    assert mentions(out, "prune", "gs://b/66m", "--run_dir") and not cloud.calls()


@pytest.mark.slow
def test_the_copied_files_equal_the_checkout(cloud: Cloud, tmp_path):
    checkout = tmp_path / "a checkout"
    git = ("git", "-C", str(checkout))
    subprocess.run(["git", "clone", "--quiet", str(LAUNCH.parent), str(checkout)], check=True)
    (checkout / "launch/tpu_vm.sh").write_text((LAUNCH / "tpu_vm.sh").read_text())
    (checkout / "README.md").write_text("changed\n")
    (checkout / "stranger.txt").write_text("git knows nothing of it\n")
    before = subprocess.check_output([*git, "status", "--short"])
    cloud.set(states=["ACTIVE"])
    for worker in ("worker0", "worker1"):
        (cloud.folder / worker / "bertzoo/bertzoo").mkdir(parents=True)
        (cloud.folder / worker / "bertzoo/bertzoo/removed_since.py").touch()
        (cloud.folder / worker / "bertzoo/runs").mkdir()
    cloud.run(f"{checkout}/launch/tpu_vm.sh", "copy", *WHERE)
    for worker in ("worker0", "worker1"):
        there = cloud.folder / worker / "bertzoo"
        assert (there / "README.md").read_text() == "changed\n" and (there / "bertzoo/cli/main.py").is_file()
        assert not (there / "stranger.txt").exists() and not (there / "bertzoo/removed_since.py").exists()
        assert (there / "runs").is_dir()
    assert subprocess.check_output([*git, "status", "--short"]) == before
    assert not subprocess.check_output([*git, "stash", "list"])


@pytest.mark.slow
@APIS
def test_a_preempted_tpu_is_requested_again_and_the_run_resumes(
    cloud: Cloud, api: tuple[str, ...], resource: tuple[str, ...]
) -> None:
    # The first TPU is preempted during the run; the second finishes it.
    cloud.set(lives=[["ACTIVE", "ACTIVE", "SUSPENDING", "SUSPENDED"], ["PROVISIONING", "ACTIVE"]])
    seconds = ("seconds0", "seconds1", "secondsworker0", "secondsworker1")
    cloud.set(**dict.fromkeys(seconds, 60))
    process = cloud.start("tpu_vm.sh", "watch", *api, *TPU, *RUN)
    cloud.wait_for(lambda: len(cloud.calls(*resource, "create")) == 2)
    cloud.set(**dict.fromkeys(seconds, 0))
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, out + errors
    assert len(cloud.calls(*resource, "create")) == 2 and len(cloud.calls(*resource, "delete")) == 1
    assert mentions(out, "1 of", 100) and len(cloud.records("bertzoo")) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "times", "result"),
    [([4, 0], [-9, 0], 2, 0), ([4], [1], 1, 1), ([3, 0], [3, 0], 2, 0), ([2], [4], 1, 2)],
)
def test_only_recoverable_failures_are_retried(ready, first, second, times, result):
    ready.set(codesworker0=first, codesworker1=second)
    out = ready.run("tpu_vm.sh", "watch", *TPU, *RUN, code=result)
    assert len(ready.records("bertzoo")) == 2 * times and not ready.calls(*QUEUED, "create")
    assert ("done" in out) == (result == 0) and mentions(out, "rented", "delete --name=pod")


@pytest.mark.slow
def test_restarts_are_limited(ready: Cloud):
    ready.set(codesworker0=[3] * 9)
    out = ready.run("tpu_vm.sh", "watch", *TPU, "--restarts=1", *RUN, code=1)
    assert mentions(out, "1 times") and len(ready.records("bertzoo")) == 4


def test_a_running_run_is_joined_not_restarted(ready: Cloud):
    ready.set(secondsworker0=60, secondsworker1=60)
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    assert ready.run("tpu_vm.sh", "run", *WHERE, *RUN).count("bertzoo-worker: running already") == 2
    watching = ready.start("tpu_vm.sh", "watch", *TPU, *RUN)
    assert watching.stdout and any("2 of 2" in line for line in watching.stdout)
    ready.set(secondsworker0=0, secondsworker1=0)
    out, errors = watching.communicate(timeout=60)
    assert watching.returncode == 0 and mentions(out, "done"), errors
    assert len(ready.records("bertzoo")) == 2 and not ready.calls(*VM, "scp")


def watched(cloud: Cloud) -> subprocess.Popen[str]:
    """Start `watch` in another terminal, with a run that does not end by itself."""
    cloud.set(secondsworker0=600, secondsworker1=600)
    process = cloud.start("tpu_vm.sh", "watch", *TPU, *RUN)
    cloud.wait_for_runs(2)
    return process


@pytest.mark.slow  # waits
def test_a_watch_ends_when_its_run_is_stopped(ready: Cloud):
    process = watched(ready)
    ready.run("tpu_vm.sh", "stop", *WHERE)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 3 and mentions(out, "`stop`", "command"), out + errors
    assert "of at most" not in out and len(ready.calls("bertzoo")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("action", ["watch", "run"])
@pytest.mark.parametrize("words", [RUN, ("--", "transfer", *RUN[1:])], ids=["the same", "another"])
def test_after_a_stop_the_same_or_another_run_may_start(ready: Cloud, action: str, words: tuple[str, ...]):
    ready.set(secondsworker0=600, secondsworker1=600)
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    ready.wait_for_runs(2)
    ready.run("tpu_vm.sh", "stop", *WHERE)
    assert ready.run("tpu_vm.sh", "status", *WHERE).count("bertzoo-worker: exit 3") == 2
    ready.set(secondsworker0=0, secondsworker1=0)
    out = ready.run("tpu_vm.sh", action, *(TPU if action == "watch" else WHERE), *words)
    assert "done" in out if action == "watch" else out.count("bertzoo-worker: started") == 2
    ended(ready)
    assert len(ready.calls("bertzoo")) == 4 and len(ready.calls("bertzoo", "transfer")) in (0, 2)


@pytest.mark.slow
def test_a_stop_before_the_start_prevents_the_start(cloud: Cloud):
    there, go = cloud.folder / "there", cloud.folder / "go"
    process = cloud.start(
        "tpu_vm.sh", "watch", *TPU, f"--before=touch {there}; until [ -e {go} ]; do sleep 1; done", *RUN
    )
    cloud.wait_for((cloud.folder / "there").exists)
    cloud.run("tpu_vm.sh", "stop", *WHERE)
    go.touch()
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 3 and "stopped" in out and not cloud.calls("bertzoo"), out + errors


@pytest.mark.slow  # waits
def test_a_watch_ends_when_the_tpu_is_deleted_and_rents_no_other(ready: Cloud):
    process = watched(ready)
    ready.run("tpu_vm.sh", "delete", *WHERE, "--yes")
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and mentions(errors, "pod", "deleted"), out + errors
    assert not ready.calls(*QUEUED, "create") and len(ready.calls("bertzoo")) == 2


def test_a_worker_that_is_being_deleted_has_no_other_run(tmp_path):
    state = tmp_path / "bertzoo-run"
    state.mkdir()
    worker = ["bash", str(LAUNCH / "tpu_worker.sh"), "status", "pretrain", "demo"]
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gone = subprocess.run(worker, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True)
        assert gone.returncode == 1 and not gone.stdout
        (state / "run").write_text("pretrain demo ")
        there = subprocess.run(worker, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, capture_output=True)
        assert there.returncode == 0 and there.stdout == b"bertzoo-worker: running\n"


@pytest.mark.parametrize("states", [["SUSPENDING", "DELETING"], ["WAITING_FOR_RESOURCES", "DELETING"]])
def test_a_tpu_deleted_while_waiting_is_not_requested_again(cloud: Cloud, states: list[str]):
    cloud.set(states=states)
    assert mentions(cloud.run("tpu_vm.sh", "watch", *TPU, *RUN, code=1), "pod", "deleted")
    assert not cloud.calls(*QUEUED, "create")


def test_another_run_is_not_mistaken_for_this_one(ready: Cloud):
    ready.set(secondsworker0=600, secondsworker1=600)
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    other = ("--", "transfer", *RUN[1:])
    out = ready.run("tpu_vm.sh", "watch", *TPU, *other, code=2)
    assert mentions(out, "pod", "bertzoo pretrain demo --run_dir=gs://b/x") and "done" not in out
    assert mentions(ready.run("tpu_vm.sh", "run", *WHERE, *other, code=2), "another run")
    ready.wait_for_runs(2)
    assert len(ready.calls("bertzoo", "pretrain")) == 2
    ready.set(secondsworker0=0, secondsworker1=0)


def test_status_and_stop(ready: Cloud):
    assert ready.run("tpu_vm.sh", "status", *WHERE).count("bertzoo-worker: idle") == 2
    ready.set(secondsworker0=60, codesworker1=[3])
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    ended(ready, 1)
    out = ready.run("tpu_vm.sh", "status", *WHERE)
    assert mentions(out, "pod", "ACTIVE") and "bertzoo-worker: running\nbertzoo-worker: exit 3\n" in out
    ready.run("tpu_vm.sh", "stop", *WHERE)
    ended(ready, 2)
    assert "saved" in (ready.folder / "worker0/bertzoo-run/log").read_text()
    assert ready.run("tpu_vm.sh", "status", *WHERE).count("bertzoo-worker: exit 3") == 2


WAITING = {"CREATING", "ACCEPTED", "PROVISIONING", "SUSPENDING"}  # as WAITING_FOR_RESOURCES


def test_a_machine_that_restarts_leaves_no_code_of_the_run_before(ready: Cloud):
    ready.set(codesworker0=[2], secondsworker1=600)
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    ended(ready, 1)
    ready.set(secondsworker0=600)
    ready.run("tpu_vm.sh", "run", *WHERE, *RUN)
    for worker in ("worker0", "worker1"):
        state = ready.folder / worker / "bertzoo-run"
        ready.wait_for(lambda state=state: group(state) is not None)
        os.killpg(os.getpgid(int((state / "pid").read_text())), signal.SIGKILL)
    assert ready.run("tpu_vm.sh", "status", *WHERE).count("bertzoo-worker: exit 137") == 2


@pytest.mark.slow
def test_a_worker_that_is_stuck_is_stopped(ready: Cloud):
    ready.set(codesworker0=[4, 0], codesworker1=[0, 0], secondsworker1=60)
    process = ready.start("tpu_vm.sh", "watch", *TPU, "--poll=300", *RUN)
    assert process.stdout and any("stopping" in line for line in process.stdout)
    assert any("1 of" in line for line in process.stdout)
    ready.set(secondsworker1=0)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and mentions(out, "done"), errors
    assert "saved" in (ready.folder / "worker1/bertzoo-run/log").read_text()


@pytest.mark.parametrize(
    "state", [pytest.param(name, marks=pytest.mark.slow if name in WAITING else ()) for name in sorted(STATES)]
)
def test_every_state_is_known(cloud: Cloud, state: str):
    leads = {"FAILED", "SUSPENDED", "ACTIVE", "STATE_UNSPECIFIED", "DELETING"}
    cloud.set(states=[state] if state in leads else [state, "ACTIVE"])
    if state == "STATE_UNSPECIFIED":
        assert mentions(cloud.run("tpu_vm.sh", "create", *TPU, code=1), "STATE_UNSPECIFIED")
        return
    cloud.run("tpu_vm.sh", "create", *TPU)
    again = state in {"FAILED", "SUSPENDED", "DELETING"}
    assert len(cloud.calls(*QUEUED, "create")) == again
    assert len(cloud.calls(*QUEUED, "delete")) == (again and state != "DELETING")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("api", "step", "steps_after"),
    [
        ((), "queued-resources describe", "create"),
        ((), "queued-resources create", "scp"),
        ((), "tpu-vm scp", "tar"),
        ((), "tar -xzf", "install"),
        ((), "tpu_worker.sh install", "start"),
        ((), "tpu_worker.sh start", "never"),
        (COMPUTE, "managed describe", "create"),
        (COMPUTE, "list-instances", "delete"),  # a group whose hosts cannot be listed is not taken for a preempted one
        (COMPUTE, "workload-policy", "instance-templates"),
        (COMPUTE, "instance-templates create", "managed create"),
        (COMPUTE, "managed create", "scp"),
        (COMPUTE, "compute scp", "tar -xzf"),  # on one of two hosts
        (COMPUTE, "tpu_worker.sh install", "start"),
    ],
)
def test_a_step_that_fails_ends_it(cloud: Cloud, api: tuple[str, ...], step: str, steps_after: str):
    cloud.set(failures=[[step, 7, 1]])
    out = cloud.run("tpu_vm.sh", "watch", *api, *TPU, *RUN, code=None)
    assert cloud.code in (1, 7) and mentions(out, "gcloud")
    later = [call for call in cloud.calls("gcloud") if steps_after in " ".join(call) and step not in " ".join(call)]
    assert not later and not cloud.calls("bertzoo")


def test_a_failed_deletion_is_an_error(ready: Cloud):
    ready.set(failures=[["queued-resources delete", 7, 1]])
    ready.run("tpu_vm.sh", "delete", *WHERE, "--yes", code=7)
    assert mentions(ready.run("tpu_vm.sh", "delete", *WHERE, code=2), "--yes")
    assert len(ready.calls(*QUEUED, "delete")) == 1


@pytest.mark.parametrize("action", ["create", "copy", "run", "watch", "status", "tail", "stop", "delete", "smoke"])
@pytest.mark.parametrize("api", [(), COMPUTE], ids=["queued", "compute"])
def test_a_dry_run_creates_nothing(cloud: Cloud, api: tuple[str, ...], action: str):
    asked = TPU if action in ("create", "watch") else SMOKE if action == "smoke" else WHERE
    out = cloud.run("tpu_vm.sh", action, *api, *asked, "--dry-run", *(RUN if action in ("run", "watch") else ()))
    assert f"+ {' '.join(GROUP if api else VM[:3])} " in out and not cloud.calls()
    unknown = action in ("create", "watch", "delete", "smoke")  # the state, as no request was sent
    assert unknown or "ABSENT" not in out
    if action == "copy":
        assert "stash create\n" in out and out.rstrip().count("tar.gz COMMIT\n") == 1
    steps = {
        "smoke": ["describe", "create", "git", "tar\\ ", "install", "smoke.sh", ":smoke", "issue form", "delete"],
        "watch": ["describe", "create", "git", "scp", "tar\\ ", "install", "start", "then: "],
    }.get(action, [])
    assert [out.index(step) for step in steps] == sorted(out.index(step) for step in steps)
