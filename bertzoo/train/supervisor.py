"""One process of many is run as a child, so that its end can be told in words however it ends.

The coordination service ends a process that has lost another by aborting it, with a stack trace and no Python.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO, NoReturn

from bertzoo.core.errors import HostLost, Stopped
from bertzoo.train.signals import leave_closed_terminal, stop_signals

_CHILD = "BERTZOO_SUPERVISED_BY"  # the parent's process id and the pipe to it
_JOINED = b"joined"
_met: list[bool] = []  # filled once this process, a child, has met the others
_GRACE = 10  # seconds that a child which has not met the others has after a signal
# What the coordination service says when it ends a process, and when one joins that had joined before.
_SERVICE, _TWICE = "the JAX distributed service detected fatal errors", "incarnation"
_FATAL = re.compile(r"F\d{4} [\d:.]+ +\d+ (.*)")  # the last line of a program that ends itself in C++
_STACK = re.compile(r"\s+@\s+(0x|\(nil\))|\*\*\* Check failure stack trace: \*\*\*")


def is_child() -> bool:
    """Whether this process is supervised."""
    return _CHILD in os.environ


def supervise(argv: Sequence[str], which: str) -> int:
    """Run `bertzoo argv` as a child, pass SIGTERM, SIGINT and SIGHUP on, and return its exit code.

    which: this process, in words. Raises HostLost where a signal ended the child, which may be for the loss of another
    process, and Stopped where one was passed on to it.
    """
    told, telling = os.pipe()
    children: list[subprocess.Popen] = []
    passed: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        passed.append(number)
        leave_closed_terminal()
        for child in children:
            child.send_signal(number)
            if not joined():  # it may be deep in what meets the others, where Python sees no signal
                timer = threading.Timer(_GRACE, child.kill)
                timer.daemon = True  # not waited for, once the child has ended
                timer.start()

    def joined() -> bool:
        with contextlib.suppress(BlockingIOError):
            answer[0] = answer[0] or os.read(told, len(_JOINED)) == _JOINED
        return answer[0]

    answer = [False]
    os.set_blocking(told, False)
    usual = {number: signal.signal(number, forward) for number in stop_signals()}
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "bertzoo", *argv],
            env={**os.environ, _CHILD: f"{os.getpid()} {telling}"},
            pass_fds=(telling,),
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )
        children.append(child)
        assert child.stderr is not None
        said = _Errors(child.stderr)
        for number in passed:
            child.send_signal(number)
        code = child.wait()
    finally:
        os.close(telling)
        for number, handler in usual.items():
            signal.signal(number, handler)
    met = joined()
    os.close(told)
    said.join(5)  # what the child has started may hold its end open
    if code >= 0:
        return code
    ended = f"{which} was ended by {signal.Signals(-code).name}"
    if passed:
        raise Stopped(f"{ended} after {signal.Signals(passed[0]).name} was passed on to it; run the same command again")
    if -code in (signal.SIGKILL, signal.SIGTERM):
        raise HostLost(f"{ended}, from outside or for want of memory; run the same command on every host to resume")
    if -code != signal.SIGABRT or (said.fatal and not said.service):
        words = f" ({said.fatal[:200]})" if said.fatal else ""
        raise HostLost(
            f"{ended}{words}; run the same command on every host to resume, and should it end so again, it is no lost "
            "host but an error of this program or what it runs on"
        )
    if said.twice:
        raise HostLost(
            f"{ended}: two processes had the same number, or one was started again while the others went on; start "
            "every process once, each with its own --distributed.process"
        )
    if not met:
        raise HostLost(
            f"{ended} before it had met the others: one did not come in time, had the number of another, or was told "
            "of another coordinator or number of processes; start the same command on every host"
        )
    raise HostLost(
        f"{ended}, most likely as another process of the run is gone: look for the first error among their outputs, "
        "and run the same command on every host to resume"
    )


class _Errors(threading.Thread):
    """Passes a child's standard error on, without the stacks of C++, and keeps what it says of its end."""

    def __init__(self, lines: IO[bytes]):
        super().__init__(name="errors", daemon=True)
        self._lines, self.fatal, self.service, self.twice = lines, "", False, False
        self.start()

    def run(self) -> None:
        for raw in self._lines:
            line = raw.decode(errors="replace")
            if found := _FATAL.match(line):
                self.fatal = found[1].strip()
            self.service |= _SERVICE in line
            self.twice |= _TWICE in line
            if not _STACK.match(line):
                with contextlib.suppress(OSError, ValueError):  # nobody reads; the child must not wait for that
                    sys.stderr.write(line)
                    sys.stderr.flush()
        self._lines.close()


def watch() -> None:
    """End with the parent from now on, where there is one."""
    if not is_child():
        return
    parent = int(os.environ[_CHILD].split()[0])

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(HostLost.exit_code)

    threading.Thread(target=look, name="watch-parent", daemon=True).start()


def joined() -> None:
    """Tell the parent that this process has met the others."""
    if is_child():
        _met.append(True)
        pipe = int(os.environ[_CHILD].split()[1])
        os.write(pipe, _JOINED)
        os.close(pipe)


def leave(code: int) -> NoReturn:
    """End a child with an exit code, without the farewell to the others: jax's would wait for them and then abort."""
    from bertzoo.train import hosts

    # Whom it has not met it need not take leave of: asking for them would be waiting for them again.
    with contextlib.suppress(Exception):  # all that end alike have said so before the first, who is asked, is gone
        if _met:
            hosts.gather("leaving", "", timeout=5)
            if not hosts.alone() and hosts.is_first():
                time.sleep(2)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
