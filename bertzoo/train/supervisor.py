"""Run one process of several as a child, so that the loss of another host ends it with exit code 4 and a message.

If a process is lost, JAX's coordination service aborts the others by SIGABRT from a C++ thread. No Python code runs
then, and a Python callback for lost processes crashes (std::bad_cast). Only a parent can turn the abort into an exit
code. Measured with jax 0.10.2, two CPU processes and a heartbeat timeout of 20 s: SIGKILL of process 0 aborted process
1 after 0.1 s. SIGKILL of process 1, or SIGSTOP of either, aborted the other after 18 to 19 s. It made no difference
whether the survivor computed, waited for a key or sat in a collective.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from bertzoo.core.child import start_python
from bertzoo.core.errors import HostLost, Stopped
from bertzoo.train.signals import leave_closed_terminal, stop_signals

_PARENT = "BERTZOO_SUPERVISED_BY"  # the environment variable with the parent's process id
_KILLED = "it was killed from outside or the machine ran out of memory"
_CAUSES = {
    signal.SIGABRT: "JAX aborts a process when another one is lost, does not start in time, or has the same "
    "--distributed.process; every process must be started once, with its own number and the same coordinator",
    signal.SIGKILL: _KILLED,
    signal.SIGTERM: _KILLED,
}
_CRASH = "if it happens again, the cause is a crash of this program or a library, not a lost host"


def is_child() -> bool:
    """Return whether `supervise` has started this process."""
    return _PARENT in os.environ


def supervise(argv: Sequence[str], name: str) -> int:
    """Run `bertzoo argv` as a child, forward SIGTERM, SIGINT and SIGHUP, and return its exit code.

    If a signal ended the child, raises Stopped, with this process's `name`, if it had forwarded one, else HostLost.
    """
    children: list[subprocess.Popen] = []
    forwarded: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        forwarded.append(number)
        leave_closed_terminal()
        for child in children:
            child.send_signal(number)

    handlers = {number: signal.signal(number, forward) for number in stop_signals()}
    try:
        child = start_python(
            ["-m", "bertzoo", *argv],
            environment={_PARENT: str(os.getpid())},
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )
        children.append(child)
        for number in forwarded:  # they came before there was a child
            child.send_signal(number)
        code = child.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code >= 0:
        return code
    end = f"{name} was ended by {signal.Signals(-code).name}"
    if forwarded:
        raise Stopped(f"{end} after it received {signal.Signals(forwarded[0]).name}. Run the same command again.")
    raise HostLost(
        f"{end}: {_CAUSES.get(signal.Signals(-code), _CRASH)}. Look for the first error among the outputs of all "
        "processes, then run the same command on every host to resume."
    )


def exit_child(code: int) -> NoReturn:
    """Exit with a nonzero code and skip jax's shutdown, which would wait for the other processes and then abort."""
    from bertzoo.train import hosts

    hosts.leave_together()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
