"""The processes of one run, on one host or many: how they find one another, agree, and wait.

The engine is `jax.distributed`: its coordination service runs in process 0, sees a process that dies by its missing
heartbeats and then ends all the others; `bertzoo.train.supervisor` says so in words. Alone, nothing here acts.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertzoo.core.errors import ConfigError, HostLost, Stopped
from bertzoo.train.notice import NOTICE

Value = TypeVar("Value")
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_GKE = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
_BROKEN = ("Gloo", "gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "connection", "heartbeat")
_HOUR = 3600
_numbers = itertools.count()  # all processes do the same things in the same order


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the other processes are: HOST:PORT of process 0, how many there are, and which this one is.

    Seconds: `start_timeout` for all to come; `heartbeat_timeout` until a silent one counts as dead.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None
    start_timeout: int = 300
    heartbeat_timeout: int = 30

    def __post_init__(self):
        given = {name: getattr(self, name) for name in ("coordinator", "processes", "process")}
        missing = [f"--distributed.{name}" for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise ConfigError(f"{' and '.join(missing)} is missing: coordinator, processes and process go together")
        for name in ("start_timeout", "heartbeat_timeout"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--distributed.{name}={getattr(self, name)} is less than a second")
        if self.processes is None or self.process is None or self.coordinator is None:
            return
        if not 0 <= self.process < self.processes:
            raise ConfigError(
                f"--distributed.process={self.process} is not one of the {self.processes} processes, "
                f"which are numbered 0 to {self.processes - 1}"
            )
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"--distributed.coordinator={self.coordinator} is not HOST:PORT")
        if not 0 < int(port) < 1 << 16:
            raise ConfigError(f"--distributed.coordinator={self.coordinator}: ports are numbered 1 to {(1 << 16) - 1}")

    def found(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """How this process meets the others: "explicit", or as jax calls the environment; None where it is alone."""
        if self.coordinator is not None:
            return "explicit" if self.processes != 1 else None
        if all(name in environment for name in _SLURM) and int(environment["SLURM_NTASKS"]) > 1:
            return "slurm"
        if (
            any("," in environment.get(name, "") for name in _GKE)
            or environment.get("MEGASCALE_NUM_SLICES", "1") != "1"
        ):
            return "gketpu"
        if _is_tpu_vm() and not any(name in environment for name in (*_GKE, "TPU_SKIP_MDS_QUERY")):
            return "gcetpu"
        return None


def _is_tpu_vm() -> bool:
    if find_spec("libtpu") is None or "tpu" not in os.environ.get("JAX_PLATFORMS", "tpu"):
        return False
    from jax._src.hardware_utils import num_available_tpu_chips_and_device_id  # knows Google's chips from other devices

    return num_available_tpu_chips_and_device_id()[0] > 0


def connect(cluster: Cluster) -> None:
    """Meet the other processes, if there are any; before anything is computed.

    Raises HostLost where they have been told of another number of processes, Stopped where a signal comes first,
    ConfigError where the coordinator's name stays unknown. One that never comes ends this process after
    `start_timeout`: the coordination service leaves no choice.
    """
    if (how := cluster.found()) is None:
        return
    # A signal is the loop's: the service's own handler would take it away.
    jax.config.update("jax_enable_preemption_service", False)
    meet = functools.partial(
        _meet,
        cluster,
        how,
        initialization_timeout=cluster.start_timeout,
        heartbeat_timeout_seconds=cluster.heartbeat_timeout,
        shutdown_timeout_seconds=cluster.heartbeat_timeout,
    )
    try:
        _aside(meet)
    except (RuntimeError, ValueError) as error:
        raise HostLost(
            f"this process could not join the others ({error}); run the same command on every host"
        ) from error
    except KeyboardInterrupt as error:
        raise Stopped(
            "stopped by a signal while waiting for the other processes; nothing had begun: run the same command on "
            "every host"
        ) from error
    mine = _state().num_processes
    theirs = share("how many processes there are", lambda: mine, cluster.start_timeout)
    if mine != theirs:
        raise ConfigError(
            f"process {_state().process_id} was told of {mine} processes, but process 0 of {theirs}: "
            "give every host the same --distributed.processes"
        )


def _meet(cluster: Cluster, how: str, **timeouts: Any) -> None:
    """Start jax's coordination service, or join it."""
    coordinator, processes, process = cluster.coordinator, cluster.processes, cluster.process
    if coordinator is not None:
        _resolve(coordinator, cluster.start_timeout)
        how = "deactivate"
    elif how == "slurm" and os.environ.get("SLURM_STEP_NUM_NODES") == os.environ["SLURM_NTASKS"]:
        # By itself jax gives a task under Slurm one GPU, which is right for one task a GPU; this is one task a node.
        from jax._src.clusters import SlurmCluster

        port = os.environ.get("JAX_COORDINATOR_PORT")
        coordinator = SlurmCluster.get_coordinator_address(cluster.start_timeout, port)
        processes, process = SlurmCluster.get_process_count(), SlurmCluster.get_process_id()
        how = "deactivate"
    jax.distributed.initialize(coordinator, processes, process, cluster_detection_method=how, **timeouts)


def _resolve(coordinator: str, timeout: float) -> None:
    """Wait until the coordinator's name is known, which in a cluster may take a while; nothing else would say that."""
    host, _, port = coordinator.rpartition(":")
    end = time.monotonic() + timeout
    while True:
        try:
            socket.getaddrinfo(host.strip("[]"), int(port))
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConfigError(
                    f"--distributed.coordinator={coordinator}: the name {host} is not known here ({error.strerror})"
                ) from error
        time.sleep(1)


def _aside(action: Callable[[], None]) -> None:
    """Do what waits where Python sees no signal in another thread, so that one is seen here."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:  # raised below
            failures.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(1)
    if failures:
        raise failures[0]


def _state() -> Any:
    # The coordination service's client has no public name; orbax takes it from here too.
    from jax._src.distributed import global_state

    return global_state


def alone() -> bool:
    """Whether the run has one process."""
    return _state().client is None or _state().num_processes == 1


def is_first() -> bool:
    """Whether this is the process that writes."""
    return alone() or _state().process_id == 0


def gather(what: str, mine: str, timeout: float = _HOUR) -> list[str]:
    """What every process says, in their order; raises HostLost where one says nothing within `timeout` seconds."""
    if alone():
        return [mine]
    client, key = _state().client, f"bertzoo/{what}"
    client.key_value_set(f"{key}/{_state().process_id}", mine)
    return [_get(f"{key}/{process}", what, timeout) for process in range(_state().num_processes)]


def barrier(what: str, timeout: float = _HOUR) -> None:
    """Wait until every process is here; raises HostLost where one does not come within `timeout` seconds."""
    gather(f"{next(_numbers)}/{what}", "here", timeout)


def share(what: str, action: Callable[[], Value], timeout: float = _HOUR) -> Value:
    """What `action`, done by process 0 alone, returns (as JSON can have it); its error is everyone's."""
    if alone():
        return action()
    key = f"{next(_numbers)}/{what}"
    if not is_first():
        said = json.loads(_get(f"bertzoo/{key}", what, timeout))
        if "error" in said:
            raise Elsewhere(said["error"], said["exit_code"])
        return said["value"]
    try:
        said = {"value": action()}
    except BaseException as error:
        code = Stopped.exit_code if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        said = {"error": str(error) or type(error).__name__, "exit_code": code}
        raise
    finally:
        _state().client.key_value_set(f"bertzoo/{key}", json.dumps(said))
    return said["value"]


def _get(key: str, what: str, timeout: float) -> str:
    """The value of a key, waited for in slices, between which Python sees its signals."""
    end = time.monotonic() + timeout
    while True:
        try:
            return _state().client.blocking_key_value_get(key, 1000)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error) and time.monotonic() < end:
                continue
            raise HostLost(
                f"a process of the run did not do its part ({what}) within {timeout:.0f} s; look for the first error "
                "among the outputs of all, and run the same command on every host again"
            ) from error


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Raises HostLost for what jax raises when a collective breaks off."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_broken(error):
            raise
        said = textwrap.shorten(str(error), 200, placeholder=" …")
        raise HostLost(
            f"another process of the run is gone ({said}); run the same command on every host to resume"
        ) from error


def is_broken(error: BaseException) -> bool:
    """Whether an error is that of a collective that broke off."""
    return not alone() and isinstance(error, jax.errors.JaxRuntimeError) and any(word in str(error) for word in _BROKEN)


class Elsewhere(Exception):
    """What went wrong in process 0, with its exit code."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(f"process 0: {message}")
        self.exit_code = exit_code


class Agreement:
    """Makes what one process was asked, such as to stop, known to all at the same step.

    Every process calls it once a step with its own request; what it returns is what any process passed a step before,
    so that nobody waits for an answer. Alone, the request is returned at once.
    """

    _CODES = (None, NOTICE, signal.SIGHUP.name, signal.SIGINT.name, signal.SIGTERM.name)  # the last wins

    def __init__(self):
        self._asked: jax.Array | None = None
        if not alone():
            mesh = jax.make_mesh((jax.device_count(),), ("all",), axis_types=(AxisType.Auto,))
            self._split = NamedSharding(mesh, PartitionSpec("all"))
            self._most = jax.jit(lambda codes: codes.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def __call__(self, request: str | None) -> str | None:
        if alone():
            return request
        mine = np.full(jax.local_device_count(), self._CODES.index(request), np.int32)
        codes = jax.make_array_from_process_local_data(self._split, mine)
        before, self._asked = self._asked, self._most(codes)
        return None if before is None else self._CODES[int(before)]
