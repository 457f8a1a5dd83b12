"""How processes find one another and agree, with two real ones; whole runs are in test_runs_of_many.py."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import psutil
import pytest
import tiny
from around import environment, free_port
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError, HostLost, UserError
from bertzoo.train import hosts, signals

EXPLICIT = {"coordinator": "10.0.0.1:1234", "processes": 4, "process": 3}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-4]"}
SLURM |= {"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_LOCALID": "0"}


@pytest.mark.parametrize(
    ("fields", "environment", "method"),
    [
        ({}, {}, None),
        (EXPLICIT, {}, "explicit"),
        (EXPLICIT, SLURM, "explicit"),
        ({**EXPLICIT, "processes": 1, "process": 0}, {}, None),
        ({}, SLURM, "slurm"),
        ({}, SLURM | {"SLURM_NTASKS": "1"}, None),
        ({}, {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, None),  # inside an allocation, but not started by srun
        ({}, {"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1"}, "gketpu"),
        ({}, {"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({}, {"TPU_WORKER_HOSTNAMES": "localhost", "MEGASCALE_NUM_SLICES": "2"}, "gketpu"),
    ],
)
def test_detection_of_the_other_processes(fields, environment, method):
    assert hosts.Cluster(**fields).detection(environment) == method


def test_a_tpu_machine_uses_its_metadata_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hosts, "_is_tpu_vm", lambda: True)
    assert hosts.Cluster().detection({}) == "gcetpu"
    assert hosts.Cluster().detection({"TPU_SKIP_MDS_QUERY": "1"}) is None
    assert hosts.Cluster().detection({"TPU_WORKER_HOSTNAMES": "localhost"}) is None


@pytest.mark.parametrize(
    ("tasks", "nodes", "arguments"),
    [
        # One task per node uses all of its GPUs: jax must not choose one by SLURM_LOCALID.
        ("4", "4", {"coordinator": "n1:61447", "processes": 4, "process": 1, "method": "deactivate"}),
        ("4", "2", {"coordinator": None, "processes": None, "process": None, "method": "slurm"}),
    ],
)
def test_under_slurm_one_task_per_node_has_all_its_devices(monkeypatch: pytest.MonkeyPatch, tasks, nodes, arguments):
    calls = []

    def initialize(coordinator, processes, process, cluster_detection_method, **rest):
        assert not {"local_device_ids"} & rest.keys() and rest["heartbeat_timeout_seconds"] == 30
        method = cluster_detection_method
        calls.append({"coordinator": coordinator, "processes": processes, "process": process, "method": method})

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name, value in (SLURM | {"SLURM_NTASKS": tasks, "SLURM_STEP_NUM_NODES": nodes}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAX_COORDINATOR_PORT", raising=False)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(hosts, "_connected", threading.Event())
    hosts.connect(hosts.Cluster())
    assert calls == [arguments]


def test_a_coordinator_whose_host_name_does_not_resolve_raises(monkeypatch: pytest.MonkeyPatch):
    answers = [socket.gaierror(-2, "Name or service not known")] * 9
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: (_ for _ in ()).throw(answers.pop()))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: pytest.fail("nothing to join"))
    with pytest.raises(ConfigError, match=mentioning("coordinator=nowhere:1234")):
        hosts.connect(hosts.Cluster(**{**EXPLICIT, "coordinator": "nowhere:1234"}, start_timeout=1))
    assert 0 < len(answers) < 8, "it may resolve later: it is tried more than once"


def test_one_process_does_not_wait():
    assert hosts.alone() and hosts.is_first()
    hosts.connect(hosts.Cluster())
    hosts.barrier("anything", timeout=0)
    assert hosts.share("anything", lambda: [1, 2]) == [1, 2]
    with pytest.raises(UserError, match="plainly"), hosts.host_lost_errors():
        hosts.share("anything", lambda: (_ for _ in ()).throw(UserError("plainly")))
    agreed = hosts.Agreement()
    assert [agreed(request) for request in (None, "SIGTERM", None)] == [None, "SIGTERM", None]


@pytest.mark.parametrize(
    ("alone", "error", "raised"),
    [
        (False, jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"), HostLost),
        (False, ValueError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"), HostLost),
        (False, ValueError("the connection is closed"), ValueError),
        (False, jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"), jax.errors.JaxRuntimeError),
        (True, jax.errors.JaxRuntimeError("UNAVAILABLE: of a device"), jax.errors.JaxRuntimeError),
    ],
)
def test_a_broken_collective_is_a_lost_host(monkeypatch: pytest.MonkeyPatch, alone: bool, error: Exception, raised):
    monkeypatch.setattr(hosts, "alone", lambda: alone)
    with pytest.raises(raised), hosts.host_lost_errors():
        raise error


@pytest.mark.slow
def test_two_processes_meet_share_and_agree():
    port, member = str(free_port()), str(Path(__file__).with_name("member.py"))
    members = [
        subprocess.Popen(
            [sys.executable, member, port, "2", str(process)],
            env=environment(2),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    outputs = [member.communicate(timeout=300) for member in members]
    assert [member.returncode for member in members] == [0, 0], [error[-2000:] for _, error in outputs]
    first, second = (json.loads(output.splitlines()[-1]) for output, _ in outputs)  # gloo speaks before
    assert (first["first"], second["first"]) == (True, False)
    assert first["devices"] == second["devices"] == 4 and not first["alone"]
    assert first["shared"] == second["shared"] == 10
    assert first["error"] == "the file is missing" and second["error"] == "process 0: the file is missing"
    assert first["exit_code"] == second["exit_code"] == 2
    # One step after either was asked, both know; with two requests, the more urgent.
    assert first["agreed"] == second["agreed"] == [None, None, "SIGTERM", None, "SIGINT"]
    assert (first["rows"]["(4, 1, 1)"], second["rows"]["(4, 1, 1)"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first["rows"]["(1, 2, 2)"], second["rows"]["(1, 2, 2)"]) == ([0, 1, 2, 3], [4, 5, 6, 7])


CHILD = """
import os, signal, sys, time
print("ready", flush=True)
if sys.argv[1] == "sleep": time.sleep(60)
if sys.argv[1].startswith("exit"): sys.exit(int(sys.argv[1][4:]))
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that takes the place of the bertzoo command."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    (tmp_path / "python").write_text(
        f'#!/bin/sh\nstarter=$2 pipe=$3\nshift 5\nexec {sys.executable} -P $starter $pipe {script} "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PYTHONPATH", str(Path(signals.__file__).parents[2]))


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_supervise_returns_the_exit_code_of_its_child(child: None, code: int):
    assert signals.supervise([f"exit{code}"], "process 1 of 2") == code


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("SIGABRT", ("--distributed.process",)),
        ("SIGSEGV", ()),
        ("SIGBUS", ()),
        ("SIGTERM", ()),
        ("SIGKILL", ("memory",)),
    ],
)
def test_a_child_that_a_signal_ended_raises_host_lost(child: None, ending: str, words: tuple[str, ...]):
    with pytest.raises(HostLost, match=mentioning("process 1", 2, ending, *words)):
        signals.supervise([ending], "process 1 of 2")


@pytest.mark.slow
def test_a_signal_while_connecting_stops_the_process(tmp_path: Path):
    """Process 1 waits for a coordinator that never answers; process 0 waits for a process that never connects."""
    config = tiny.write_config(tmp_path, "nowhere.txt")
    command = [sys.executable, "-m", "bertzoo", "pretrain", str(config), f"--run_dir={tmp_path / 'run'}"]
    command.append("--distributed.processes=2")
    with socket.socket() as coordinator:
        coordinator.bind(("127.0.0.1", 0))
        coordinator.listen()
        coordinator.settimeout(120)
        port = [free_port(), coordinator.getsockname()[1]]
        waiting = [
            subprocess.Popen(
                [*command, f"--distributed.coordinator=127.0.0.1:{port[process]}", f"--distributed.process={process}"],
                env=environment(1),
                stderr=subprocess.PIPE,
                text=True,
            )
            for process in range(2)
        ]
        coordinator.accept()[0].close()
        for _ in range(600):
            with socket.socket() as knocking:
                if knocking.connect_ex(("127.0.0.1", port[0])) == 0:
                    break
            time.sleep(0.1)
        for process, one in enumerate(waiting):
            one.send_signal(signal.SIGINT if process else signal.SIGTERM)
        ended = [(one.communicate(timeout=120)[1].splitlines()[-1], one.returncode) for one in waiting]
    assert [code for _, code in ended] == [3, 3]
    assert all(message.startswith("bertzoo: ") and mentions(message, "signal", "command") for message, _ in ended)
    assert not (tmp_path / "run").exists()


SUPERVISE = """
import sys
from bertzoo.train import signals
sys.executable = sys.argv[1]
try:
    signals.supervise(["sleep"], "process 0 of 2")
except Exception as error:
    sys.exit(error.exit_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 3), (signal.SIGKILL, -9)])
def test_a_signal_is_forwarded_and_no_child_outlives_its_parent(child: None, ending: int, code: int):
    real = os.path.realpath("/proc/self/exe")
    with subprocess.Popen([real, "-c", SUPERVISE, sys.executable], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        (child_pid,) = map(int, Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split())
        parent.send_signal(ending)
        assert parent.wait(timeout=60) == code
        for _ in range(100):
            try:
                ended = psutil.Process(child_pid).status() == psutil.STATUS_ZOMBIE  # nobody has reaped it yet
            except psutil.NoSuchProcess:
                ended = True
            if ended:
                return
            time.sleep(0.1)
    pytest.fail("the child is still there")
