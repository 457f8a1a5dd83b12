"""One process of many is run as a child, so that its end can be told in words however it ends.

The coordination service ends a process that has lost another by aborting it, with a stack trace and no Python.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import NoReturn

from bertzoo.errors import HostLost

_CHILD = "BERTZOO_SUPERVISED_BY"  # the parent's process id and the pipe to it
_JOINED = b"joined"


def is_child() -> bool:
    """Whether this process is supervised."""
    return _CHILD in os.environ


def supervise(argv: Sequence[str], which: str) -> int:
    """Run `bertzoo argv` as a child, pass SIGTERM and SIGINT on, and return its exit code.

    which: this process, in words. Raises HostLost where a signal ended the child.
    """
    told, telling = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "bertzoo", *argv],
        env={**os.environ, _CHILD: f"{os.getpid()} {telling}"},
        pass_fds=(telling,),
        start_new_session=True,  # Ctrl-C reaches it once, from here
    )
    os.close(telling)
    usual = {
        number: signal.signal(number, lambda n, _: child.send_signal(n)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        code = child.wait()
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    joined = os.read(told, len(_JOINED)) == _JOINED
    os.close(told)
    if code >= 0:
        return code
    ended = f"{which} was ended by {signal.Signals(-code).name}"
    if -code == signal.SIGKILL:
        raise HostLost(f"{ended}, from outside or for want of memory; run the same command on every host to resume")
    if not joined:
        raise HostLost(
            f"{ended} before it had met the others: one did not come in time, or was told of another coordinator or "
            "number of processes; start the same command on every host"
        )
    raise HostLost(
        f"{ended}, most likely as another process of the run is gone: look for the first error among their outputs, "
        "and run the same command on every host to resume"
    )


def joined() -> None:
    """Tell the parent that this process has met the others, and end with the parent from now on."""
    if not is_child():
        return
    parent, pipe = map(int, os.environ[_CHILD].split())
    os.write(pipe, _JOINED)
    os.close(pipe)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(HostLost.exit_code)

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def leave(code: int) -> NoReturn:
    """End a child with an exit code, without the farewell to the others: jax's would wait for them and then abort."""
    from bertzoo.train import hosts

    with contextlib.suppress(HostLost):  # all that fail alike have said so before the first is gone
        hosts.barrier("leaving", timeout=5)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
