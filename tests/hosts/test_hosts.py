"""How processes find one another and agree; two real ones meet here, whole runs are in test_runs_of_many.py."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from around import environment, free_port, tiny
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError, HostLost, UserError
from bertzoo.train import hosts, supervisor

EXPLICIT = {"coordinator": "10.0.0.1:1234", "processes": 4, "process": 3}
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-4]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}


@pytest.mark.parametrize(
    ("given", "around", "found"),
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
def test_where_the_others_are(given, around, found):
    assert hosts.Cluster(**given).found(around) == found


def test_a_tpu_machine_asks_its_metadata(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hosts, "_is_tpu_vm", lambda: True)
    assert hosts.Cluster().found({}) == "gcetpu"
    assert hosts.Cluster().found({"TPU_SKIP_MDS_QUERY": "1"}) is None
    assert hosts.Cluster().found({"TPU_WORKER_HOSTNAMES": "localhost"}) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"processes": 2, "process": 0}, ("--distributed.coordinator",)),
        ({"coordinator": "a:1"}, ("--distributed.processes", "--distributed.process")),
        ({**EXPLICIT, "process": 4}, ("--distributed.process=4", 4)),
        ({**EXPLICIT, "process": -1}, ("--distributed.process=-1", 0, 3)),
        ({**EXPLICIT, "coordinator": "host"}, ("--distributed.coordinator=host",)),
        (
            {**EXPLICIT, "coordinator": "host:99999"},
            ("--distributed.coordinator=host:99999", "ports", 1, 65535),
        ),
        ({**EXPLICIT, "coordinator": "host:0"}, ("--distributed.coordinator=host:0", "ports", 1, 65535)),
        ({"heartbeat_timeout": 0}, ("--distributed.heartbeat_timeout=0",)),
        ({"start_timeout": -3}, ("--distributed.start_timeout=-3",)),
    ],
)
def test_what_contradicts_itself_is_refused(given, said):
    with pytest.raises(ConfigError, match=mentioning(*said)):
        hosts.Cluster(**given)


@pytest.mark.parametrize(
    ("tasks", "nodes", "given"),
    [
        # One task a node has all the GPUs of it: jax must not choose one by SLURM_LOCALID.
        ("4", "4", {"coordinator": "n1:61447", "processes": 4, "process": 1, "method": "deactivate"}),
        ("4", "2", {"coordinator": None, "processes": None, "process": None, "method": "slurm"}),
    ],
)
def test_under_slurm_one_task_of_a_node_has_all_its_devices(monkeypatch: pytest.MonkeyPatch, tasks, nodes, given):
    seen = []

    def initialize(coordinator, processes, process, cluster_detection_method, **rest):
        assert not {"local_device_ids"} & rest.keys() and rest["heartbeat_timeout_seconds"] == 30
        method = cluster_detection_method
        seen.append({"coordinator": coordinator, "processes": processes, "process": process, "method": method})

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    for name, value in (SLURM | {"SLURM_NTASKS": tasks, "SLURM_STEP_NUM_NODES": nodes}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAX_COORDINATOR_PORT", raising=False)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    hosts.connect(hosts.Cluster())
    assert seen == [given]


def test_a_coordinator_whose_name_nobody_knows_is_a_mistake(monkeypatch: pytest.MonkeyPatch):
    answers = [socket.gaierror(-2, "Name or service not known")] * 9
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: (_ for _ in ()).throw(answers.pop()))
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: pytest.fail("nothing to join"))
    with pytest.raises(ConfigError, match=mentioning("coordinator=nowhere:1234")):
        hosts.connect(hosts.Cluster(**{**EXPLICIT, "coordinator": "nowhere:1234"}, start_timeout=1))
    assert 0 < len(answers) < 8, "it may become known: it is asked for more than once"


def test_alone_nothing_is_waited_for():
    assert hosts.alone() and hosts.is_first()
    hosts.connect(hosts.Cluster())
    hosts.barrier("anything", timeout=0)
    assert hosts.share("anything", lambda: [1, 2]) == [1, 2]
    with pytest.raises(UserError, match="plainly"), hosts.losses():
        hosts.share("anything", lambda: (_ for _ in ()).throw(UserError("plainly")))
    agreed = hosts.Agreement()
    assert [agreed(request) for request in (None, "SIGTERM", None)] == [None, "SIGTERM", None]


@pytest.mark.parametrize(
    ("alone", "message", "raised"),
    [
        (False, "UNKNOWN: Gloo all-reduce failed: Connection reset by peer", HostLost),
        (False, "RESOURCE_EXHAUSTED: out of memory", jax.errors.JaxRuntimeError),
        (True, "UNAVAILABLE: of a device", jax.errors.JaxRuntimeError),
    ],
)
def test_a_broken_collective_is_a_lost_host(monkeypatch: pytest.MonkeyPatch, alone: bool, message: str, raised):
    monkeypatch.setattr(hosts, "alone", lambda: alone)
    with pytest.raises(raised), hosts.losses():
        raise jax.errors.JaxRuntimeError(message)


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
from bertzoo.train import supervisor
supervisor.watch()
if sys.argv[2] == "joins": supervisor.joined()
print("ready", flush=True)
for line in sys.argv[3:]: print(line, file=sys.stderr, flush=True)
if sys.argv[1] == "sleep": time.sleep(60)
if sys.argv[1].startswith("exit"): sys.exit(int(sys.argv[1][4:]))
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in the place of bertzoo's command."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    (tmp_path / "python").write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {script} "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PYTHONPATH", str(Path(supervisor.__file__).parents[2]))


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
def test_a_childs_exit_code_is_its_parents(child: None, code: int):
    assert supervisor.supervise([f"exit{code}", "joins"], "process 1 of 2") == code


SERVICE = (
    "F1122 05:12:14.047272     998 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors."
)
CHECK = "F1122 05:12:14.047272     998 shape.cc:80] Check failed: rank == 2 (3 vs. 2)"


@pytest.mark.parametrize(
    ("ending", "joins", "prints", "said"),
    [
        (
            "SIGABRT",
            "joins",
            [],
            ("process 1", 2, "SIGABRT"),
        ),
        ("SIGABRT", "joins", [SERVICE], ("process",)),
        (
            "SIGABRT",
            "not",
            [SERVICE],
            ("others",),
        ),
        ("SIGABRT", "not", [f"{SERVICE} A newer incarnation."], ("processes",)),
        ("SIGABRT", "joins", ["with a different incarnation", SERVICE], ("--distributed.process",)),
        (
            "SIGABRT",
            "joins",
            [CHECK],
            ("SIGABRT", "shape.cc:80]", 2),
        ),
        ("SIGSEGV", "joins", [], ("process 1", 2, "SIGSEGV")),
        ("SIGBUS", "joins", [], ("SIGBUS",)),
        ("SIGTERM", "joins", [], ("SIGTERM",)),
        ("SIGKILL", "joins", [], ("SIGKILL",)),
    ],
)
def test_a_child_that_a_signal_ended_is_told_in_words(
    child: None,
    ending: str,
    joins: str,
    prints: list[str],
    said: tuple[object, ...],
    capsys: pytest.CaptureFixture[str],
):
    stack = ["*** Check failure stack trace: ***", "    @     0x7f52a5b2b1a4  (unknown)"]
    with pytest.raises(HostLost, match=mentioning(*said)):
        supervisor.supervise([ending, joins, "a warning", *prints, *stack], "process 1 of 2")
    # What the child says is passed on, but for the stack of addresses.
    assert capsys.readouterr().err.splitlines() == ["a warning", *prints]


@pytest.mark.slow
def test_who_is_stopped_while_waiting_for_the_others_says_so(tmp_path: Path):
    """Process 1 knocks at a coordinator that never answers; process 0 is one, and nobody knocks."""
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
    assert all(said.startswith("bertzoo: ") and mentions(said, "signal", "command") for said, _ in ended)
    assert not (tmp_path / "run").exists()


SUPERVISE = """
import sys
from bertzoo.train import supervisor
sys.executable, supervisor._GRACE = sys.argv[1], 1
try:
    supervisor.supervise(["sleep", sys.argv[2]], "process 0 of 2")
except Exception as error:
    sys.exit(error.exit_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("joins", ["joins", "not"])
@pytest.mark.parametrize(("ending", "code"), [(signal.SIGTERM, 3), (signal.SIGKILL, -9)])
def test_a_signal_is_passed_on_and_no_child_outlives_its_parent(child: None, ending: int, code: int, joins: str):
    real = os.path.realpath("/proc/self/exe")
    with subprocess.Popen([real, "-c", SUPERVISE, sys.executable, joins], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        (child_pid,) = map(int, Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split())
        parent.send_signal(ending)
        assert parent.wait(timeout=60) == code
        for _ in range(100):
            if not Path(f"/proc/{child_pid}").exists():
                return
            time.sleep(0.1)
    pytest.fail("the child is still there")
