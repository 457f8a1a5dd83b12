"""Connect the processes of one run, on one host or many: discovery, exchange of values, and barriers.

`jax.distributed` runs a coordination service in process 0. When one process stops sending heartbeats, the service
aborts the others; `bertzoo.train.signals` turns the abort into exit code 4. With one process, nothing is exchanged.
"""

import contextlib
import dataclasses
import itertools
import json
import logging
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

from bertzoo.core.documents import parse_json
from bertzoo.core.errors import ConfigError, HostLost, Stopped
from bertzoo.core.logs import LOGGER

Value = TypeVar("Value")
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_GKE = ("TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")
_BROKEN = ("Gloo", "gloo", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "connection", "heartbeat")
_HOUR = 3600
_numbers = itertools.count()  # numbers for barriers and shares, which all processes call in the same order
_connected = threading.Event()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """Settings for connecting the processes of a run; a field that is None is detected from the environment."""

    coordinator: str | None = None  # HOST:PORT of process 0
    processes: int | None = None  # number of processes
    process: int | None = None  # index of this process, from 0
    start_timeout: int = 300  # seconds in which all processes must connect
    heartbeat_timeout: int = 30  # seconds without a heartbeat after which a process counts as lost

    def __post_init__(self):
        names = ("coordinator", "processes", "process")
        missing = [f"--distributed.{name}" for name in names if getattr(self, name) is None]
        if missing and len(missing) < len(names):
            raise ConfigError(
                f"missing: {' and '.join(missing)}. coordinator, processes and process belong together. Set all "
                "three, or leave out all three to have them detected."
            )
        for name in ("start_timeout", "heartbeat_timeout"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--distributed.{name}={getattr(self, name)} is less than a second. Use 1 or more.")
        if self.processes is None or self.process is None or self.coordinator is None:
            return
        if not 0 <= self.process < self.processes:
            raise ConfigError(
                f"--distributed.process={self.process} is not below --distributed.processes={self.processes}. Use 0 "
                f"to {self.processes - 1}."
            )
        host, _, port = self.coordinator.rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 1 << 16):
            raise ConfigError(
                f"--distributed.coordinator={self.coordinator} is not HOST:PORT with a port from 1 to {(1 << 16) - 1}. "
                "Write it as in --distributed.coordinator=10.0.0.2:1234."
            )

    def detection(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return how processes discover one another, or None for a run of one process.

        "explicit" stands for --distributed.coordinator; "slurm", "gketpu" and "gcetpu" are jax's names for clusters.
        """
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
    from jax._src.hardware_utils import num_available_tpu_chips_and_device_id  # excludes devices other than TPUs

    return num_available_tpu_chips_and_device_id()[0] > 0


def connect(cluster: Cluster) -> None:
    """Connect to the other processes, if there are any; call it before any computation.

    Raises HostLost if connecting fails, and Stopped if a signal comes first. Raises ConfigError if the coordinator's
    host name does not resolve, or if process 0 expects a different number of processes. If another process never
    connects, the coordination service aborts this process after `start_timeout` seconds.
    """
    if (method := cluster.detection()) is None:
        return
    # The handler of jax's preemption service would keep SIGTERM from the training loop.
    jax.config.update("jax_enable_preemption_service", False)
    counts: list[int] = []
    failures: list[BaseException] = []

    def join() -> None:
        try:
            _initialize(cluster, method)
            counts.append(share("the number of processes", lambda: _state().num_processes, cluster.start_timeout))
        except BaseException as error:  # raised below
            failures.append(error)

    try:
        # Joining may block in C++ code. On another thread, it leaves the signals to the main thread.
        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(1)
        if failures:
            raise failures[0]
    except (RuntimeError, ValueError) as error:
        raise HostLost(
            f"this process could not join the others ({error}). Run the same command on every host."
        ) from error
    except KeyboardInterrupt as error:
        raise Stopped(
            "stopped by a signal before the other processes had connected. Run the same command on every host."
        ) from error
    processes, expected = _state().num_processes, counts[0]
    if processes != expected:
        raise ConfigError(
            f"process {_state().process_id} has --distributed.processes={processes}, but process 0 has {expected}. "
            "Use the same number on every host."
        )
    _connected.set()
    log_in_first()


def leave_together() -> None:
    """Wait until every process is ready to exit, or until one has sent nothing for 5 s.

    Process 0 then waits 2 s more, because its exit aborts every process that still runs.
    """
    if alone() or not _connected.is_set():
        return
    with contextlib.suppress(Exception):  # another process may have ended already
        gather("leaving", "", timeout=5)
        if is_first():
            time.sleep(2)


def _initialize(cluster: Cluster, method: str) -> None:
    """Start or join jax's coordination service; method: the result of `cluster.detection`."""
    coordinator, processes, process = cluster.coordinator, cluster.processes, cluster.process
    if coordinator is not None:
        _resolve(coordinator, cluster.start_timeout)
        method = "deactivate"
    elif method == "slurm" and os.environ.get("SLURM_STEP_NUM_NODES") == os.environ["SLURM_NTASKS"]:
        # With one task per node, a task needs all GPUs of the node; jax's own detection gives every task one GPU.
        from jax._src.clusters import SlurmCluster

        port = os.environ.get("JAX_COORDINATOR_PORT")
        coordinator = SlurmCluster.get_coordinator_address(cluster.start_timeout, port)
        processes, process = SlurmCluster.get_process_count(), SlurmCluster.get_process_id()
        method = "deactivate"
    jax.distributed.initialize(
        coordinator,
        processes,
        process,
        cluster_detection_method=method,
        initialization_timeout=cluster.start_timeout,
        heartbeat_timeout_seconds=cluster.heartbeat_timeout,
        shutdown_timeout_seconds=cluster.heartbeat_timeout,
    )


def _resolve(coordinator: str, timeout: float) -> None:
    """Wait until the coordinator's host name resolves, which takes a while in a new cluster, or raise ConfigError."""
    host, _, port = coordinator.rpartition(":")
    end = time.monotonic() + timeout
    while True:
        try:
            socket.getaddrinfo(host.strip("[]"), int(port))
            return
        except OSError as error:
            if time.monotonic() > end:
                raise ConfigError(
                    f"--distributed.coordinator={coordinator}: the host name {host} does not resolve within "
                    f"{timeout:.0f} s ({error.strerror}). Use an address that every host can reach."
                ) from error
        time.sleep(1)


def _state() -> Any:
    # The coordination service's client has no public name; orbax imports it from here too.
    from jax._src.distributed import global_state

    return global_state


def alone() -> bool:
    """Return whether the run has one process."""
    return _state().client is None or _state().num_processes == 1


def is_first() -> bool:
    """Return whether this is process 0, which writes the files of the run."""
    return alone() or _state().process_id == 0


def log_in_first() -> None:
    """Silence the log, except errors, in all processes but process 0."""
    if not is_first():
        LOGGER.setLevel(logging.ERROR)


def gather(topic: str, value: str, timeout: float = _HOUR) -> list[str]:
    """Return the values of all processes, in order; raises HostLost if one sends nothing within `timeout` seconds.

    topic: a name that is new in every call and equal in all processes.
    """
    if alone():
        return [value]
    client, key = _state().client, f"bertzoo/{topic}"
    client.key_value_set(f"{key}/{_state().process_id}", value)
    return [_receive(f"{key}/{process}", topic, timeout) for process in range(_state().num_processes)]


def barrier(topic: str, timeout: float = _HOUR) -> None:
    """Wait until every process calls `barrier`, or raise HostLost; topic, timeout: as in `share`."""
    gather(f"{next(_numbers)}/{topic}", "here", timeout)


def share(topic: str, action: Callable[[], Value], timeout: float = _HOUR) -> Value:
    """Run `action` in process 0 only and return its result, a JSON value, in every process.

    topic: a noun phrase for the result, such as "the corpus"; equal in all processes. HostLost quotes it.

    If the action raises an error, process 0 raises that error, and every other process raises FirstProcessError. Raises
    HostLost if process 0 sends no result within `timeout` seconds.
    """
    if alone():
        return action()
    key = f"{next(_numbers)}/{topic}"
    if not is_first():
        outcome = parse_json(_receive(f"bertzoo/{key}", topic, timeout))
        if "error" in outcome:
            raise FirstProcessError(outcome["error"], outcome["exit_code"])
        return outcome["value"]
    try:
        outcome = {"value": action()}
    except BaseException as error:
        code = Stopped.exit_code if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        outcome = {"error": str(error) or type(error).__name__, "exit_code": code}
        raise
    finally:
        _state().client.key_value_set(f"bertzoo/{key}", json.dumps(outcome))
    return outcome["value"]


def in_turn(topic: str, action: Callable[[], Any], timeout: float = _HOUR) -> Any:
    """Run `action` in process 0, then in all others; return this process's result. Raises the errors of `share`."""
    results = []
    share(topic, lambda: results.append(action()), timeout)
    return results[0] if results else action()


def _receive(key: str, topic: str, timeout: float) -> str:
    """Return the value of a key of the coordination service; raises HostLost, which quotes `topic`, after `timeout` s.

    Each call of the service blocks for at most a second, because Python handles signals only between these calls.
    """
    end = time.monotonic() + timeout
    while True:
        try:
            return _state().client.blocking_key_value_get(key, 1000)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error) and time.monotonic() < end:
                continue
            raise HostLost(
                f'a process of the run sent nothing about "{topic}" within {timeout} s. Look for the first error among '
                "the outputs of all processes, then run the same command on every host again."
            ) from error


@contextlib.contextmanager
def host_lost_errors() -> Iterator[None]:
    """In the with block, raise HostLost in place of jax's errors about a collective operation that broke off."""
    try:
        yield
    except Exception as error:
        if not is_broken_collective(error):
            raise
        reason = textwrap.shorten(str(error), 200, placeholder=" …")
        raise HostLost(
            f"another process of the run is gone ({reason}). Run the same command on every host to resume."
        ) from error


def is_broken_collective(error: BaseException) -> bool:
    """Return whether `error`, a ValueError if jax raised it during dispatch, is of a collective that broke off."""
    if alone() or not isinstance(error, jax.errors.JaxRuntimeError | ValueError):
        return False
    words = _BROKEN if isinstance(error, jax.errors.JaxRuntimeError) else ("Gloo",)
    return any(word in str(error) for word in words)


class FirstProcessError(Exception):
    """Raised in every process but process 0 after an error of process 0; has that error's exit code."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(f"process 0: {message}")
        self.exit_code = exit_code


class Agreement:
    """Passes a request of one process, such as to stop, to all processes at the same step.

    Every process calls the object once per step, with its request or None. The call returns the same value in all
    processes: a request that one of them made one call earlier, or None. The delay of one call means that no process
    waits for another. In a run of one process, the call returns its own argument.
    """

    _CODES = (None, signal.SIGHUP.name, signal.SIGINT.name, signal.SIGTERM.name)  # of several, the last wins

    def __init__(self):
        self._pending: jax.Array | None = None
        if not alone():
            mesh = jax.make_mesh((jax.device_count(),), ("all",), axis_types=(AxisType.Auto,))
            self._split = NamedSharding(mesh, PartitionSpec("all"))
            self._most = jax.jit(lambda codes: codes.max(), out_shardings=NamedSharding(mesh, PartitionSpec()))

    def __call__(self, request: str | None) -> str | None:
        if alone():
            return request
        local = np.full(jax.local_device_count(), self._CODES.index(request), np.int32)
        codes = jax.make_array_from_process_local_data(self._split, local)
        before, self._pending = self._pending, self._most(codes)
        return None if before is None else self._CODES[int(before)]
