"""Start Python processes that import nothing from the current directory and do not outlive their parent.

A downloaded model's directory may hold a `numpy.py`, and `python -m` or `-c` would import it. So every child runs this
file first, under any interpreter: `python -P child.py PIPE -m MODULE …`, `… -c CODE` or `… SCRIPT …`. PIPE is the
file descriptor of a pipe from the parent.
"""

import ctypes
import errno
import fcntl
import os
import platform
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HOME = str(Path(__file__).parents[2])  # folder that holds this package
# Numbers of system calls (unistd.h).
_CALLS = {
    "x86_64": {"socket": 41, "connect": 42, "sendto": 44},
    "aarch64": {"socket": 198, "connect": 203, "sendto": 206},
}
# The Python that runs between this process and a program that is not Python.
_GUARD = """
import ctypes, signal, subprocess, sys
library, stop = ctypes.CDLL(None) if sys.platform == "linux" else None, int(sys.argv[1])
end = library and (lambda: library.prctl(1, stop or signal.SIGTERM))  # PR_SET_PDEATHSIG
process = subprocess.Popen(sys.argv[2:], preexec_fn=end)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: process.send_signal(stop or number))
code = process.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


def start_python(
    words: Sequence[str], python: str | Path | None = None, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen:
    """Start Python with the arguments `words`; raises OSError if it does not start.

    The child ends when this process ends, or when nothing refers to the returned Popen any more.

    words: such as `-m bertzoo …`.
    python: another interpreter, which gets no PYTHONPATH and so uses its own packages. The default is this process's
    interpreter, which gets only the absolute entries of PYTHONPATH.
    environment: variables to add to the child's environment.
    options: further arguments of subprocess.Popen.
    """
    same_packages = python is None or str(python) == sys.executable
    variables = {**os.environ, **(environment or {}), "PYTHONPATH": absolute_paths()}
    if not same_packages:
        del variables["PYTHONPATH"]
    pipe, parent_end = os.pipe()
    try:
        command = [str(python or sys.executable), "-P", __file__, str(pipe), *words]
        process = subprocess.Popen(command, env=variables, pass_fds=[pipe], **options)
    except BaseException:
        os.close(parent_end)
        raise
    finally:
        os.close(pipe)
    weakref.finalize(process, os.close, parent_end)
    return process


def start_program(
    words: Sequence[str], environment: Mapping[str, str], stop: int = 0, **options: Any
) -> subprocess.Popen:
    """Start a program other than Python; on Linux, it receives SIGTERM when this process ends.

    words: the program and its arguments. environment, options: as in `start_python`. The returned process is a Python
    process that forwards SIGTERM and SIGINT to the program and exits with the program's exit code.

    stop: the signal that the program receives instead of SIGTERM or SIGINT; 0: the same.
    """
    return start_python(["-c", _GUARD, str(stop), *words], environment=environment, **options)


def absolute_paths() -> str:
    """Return PYTHONPATH with absolute entries only.

    Its first entry is the folder that holds this package, unless that is site-packages.
    """
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(entry)]
    installed = sysconfig.get_path("purelib") == _HOME  # in PYTHONPATH, it could hide Python's own modules
    return os.pathsep.join(dict.fromkeys([*inherited] if installed else [_HOME, *inherited]))


@contextmanager
def set_environment(**variables: str) -> Iterator[None]:
    """Set environment variables in this context."""
    usual = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in usual.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def end_with(pipe: int) -> None:
    """End this process as soon as its parent ends or closes the parent's end of a pipe; returns at once.

    pipe: descriptor of this process's end of the pipe.

    On Linux, a signal ends the process, even in native code that holds the GIL, such as a tokenizer. A parent death
    signal (prctl) would come too early: when the thread that started this process ends.
    """
    if sys.platform != "linux":
        threading.Thread(target=_end_after, args=(pipe,), daemon=True).start()
        return
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # a process inherits what its parent ignores or blocks
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO})
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO ends a process
    if select.select([pipe], [], [], 0)[0]:  # closed already
        os._exit(1)


def _end_after(pipe: int) -> None:
    select.select([pipe], [], [])
    os._exit(1)


def forbid_network() -> None:
    """Deny network sockets to this process and its children, for a library that reports its use to its vendor.

    Call it before the process starts threads. Raises OSError if Linux refuses; does nothing on other systems.
    """
    if sys.platform == "linux":
        filter_calls("socket", 0, (socket.AF_INET, socket.AF_INET6), 0x50000 | errno.EACCES)  # SECCOMP_RET_ERRNO


def filter_calls(name: str, argument: int, values: tuple[int, int], action: int) -> None:
    """Let Linux answer a system call by `action` if its argument of this index is one of two values (seccomp(2)).

    action: a SECCOMP_RET_… value. Raises OSError if Linux refuses, or for an unknown processor.
    """
    calls = _CALLS.get(platform.machine())
    if calls is None:
        names = ", ".join(_CALLS)
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}. Use a machine with {names}")
    program = struct.pack(
        "HBBI" * 7,
        *(0x20, 0, 0, 0),  # load the call's number
        *(0x15, 0, 4, calls[name]),  # another call: jump to the last line
        *(0x20, 0, 0, 16 + 8 * argument),
        *(0x15, 1, 0, values[0]),
        *(0x15, 0, 1, values[1]),
        *(0x06, 0, 0, action),
        *(0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    )
    lines, library = ctypes.create_string_buffer(program), ctypes.CDLL(None, use_errno=True)
    pointer = struct.pack("HxxxxxxQ", 7, ctypes.addressof(lines))
    # PR_SET_NO_NEW_PRIVS, which the filter requires, and PR_SET_SECCOMP with SECCOMP_MODE_FILTER
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, 2, pointer, 0, 0):
        raise OSError(ctypes.get_errno(), "Linux refuses to filter system calls")


def main(pipe: str, *words: str) -> None:
    """Run `words` as `python WORDS` does: -m MODULE, -c CODE or SCRIPT, each with arguments.

    pipe: number of the descriptor that `end_with` watches.
    """
    end_with(int(pipe))
    sys.path.append(_HOME)
    first, *rest = words
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
