"""Hostile inputs: valid files and command lines with bytes, words and values of them changed.

Any of them ends in a UserError or is accepted, within limits of memory and time. BERTZOO_FUZZ is the number of inputs
of each class; `python -m benchmarks reliability.attack` tries thousands.
"""

import contextlib
import faulthandler
import io
import os
import re
import resource
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertzoo.cli import main as cli
from bertzoo.core.errors import UserError

COUNT = int(os.environ.get("BERTZOO_FUZZ", "150"))
MEMORY = 512 << 20  # bytes that a process may grow by; the files have some kilobytes
SECONDS = 20  # of the processor that one input may take
LATEST = 120  # seconds after which a process ends that still handles one input
VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[^\s,:=\[\]{}"]+')  # of JSON, TOML or a table
PROCESS = Path("/proc/self")  # of Linux; anywhere else a process's peak is not asked for
WORDS = [*b'-1 0 1e999 NaN null true [] {} "" 999999999999999999999'.split(), b"\xff\xfe", b"\0"]
WORDS += [b'["x"]', b'{"x": 1}', b"1.5", b'"x"', b"x" * 5000, b'{"a":' * 3000, b"\xef\xbb\xbf", b"\t", b"\n\n", b","]
WORDS += [b'"', b"\\", b"[" * 2000, b"..", b"/", b"\xed\xa0\x80", b"\r\n", b"=", b"[[a]]", b"a.b.c = 1\n"]


# (kind, place as a share of the file, number of bytes, new bytes)
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "word", "value", "swap"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 64),
        st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from(WORDS)),
    ),
    min_size=1,
    max_size=6,
)


def damaged(data: bytes, damage: list[tuple[str, float, int, bytes]]) -> bytes:
    """The data with all of this done to it."""
    for what, share, size, new in damage:
        at = int(share * len(data))
        if what == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << size % 8)]) + data[at + 1 :]
        elif what == "cut":
            data = data[:at]
        elif what == "insert":
            data = data[:at] + new + data[at:]
        elif what == "remove":
            data = data[:at] + data[at + size :]
        elif what == "repeat":
            data = data[:at] + data[at : at + size] * 3 + data[at + size :]
        elif what == "word":  # replaces a number or a word
            end = at
            while end < len(data) and data[end : end + 1].isalnum():
                end += 1
            data = data[:at] + new + data[end:]
        elif what == "value" and (match := VALUE.search(data, at)):
            data = data[: match.start()] + new + data[match.end() :]
        elif what == "swap":
            data = data[:at] + data[at + size : at + 2 * size] + data[at : at + size] + data[at + 2 * size :]
    return data


REFUSED: list[str] = []  # output since the last test started


def survive(read: Callable[[], object]) -> bool:
    """Read, and return whether that ended well; a UserError of one line is as good."""
    try:
        read()
    except UserError as error:
        REFUSED.append(str(error))
        assert str(error) and "\n" not in str(error), str(error)
        return False
    return True


def survive_command(*words: object) -> bool:
    """Run a command line in this process, and return whether its exit code is 0; 2 and a line of error are as good."""
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        code = cli.main([*map(str, words), "--debug"])
    assert code in (0, 2) and "a bug in bertzoo" not in error.getvalue(), error.getvalue()[-3000:]
    REFUSED.extend([error.getvalue()] if code else [])
    return code == 0


def fuzz(name: str, test: Callable[[list], object]) -> None:
    """Run a test on many damages, each within the limits, and print how many were rejected."""
    REFUSED.clear()
    tried, before = 0, restart_peak()

    def limited(damage: list) -> None:
        nonlocal tried
        tried += 1
        start = time.process_time()
        faulthandler.dump_traceback_later(LATEST, exit=True)
        try:
            test(damage)
        finally:
            faulthandler.cancel_dump_traceback_later()
        if (seconds := time.process_time() - start) >= SECONDS:
            raise AssertionError(f"an input took {seconds:.0f} seconds, not < {SECONDS}")
        if (grown := peak() - before) >= MEMORY:
            raise AssertionError(f"the process grew by {grown:,} bytes, not < {MEMORY:,}")

    many = settings(
        max_examples=COUNT, deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
    )
    usual = resource.getrlimit(resource.RLIMIT_DATA)
    # The limit counts reserved memory, which is more than the memory in use.
    limit = status("VmData") + 4 * MEMORY if before else usual[0]
    resource.setrlimit(resource.RLIMIT_DATA, (limit, usual[1]))
    try:
        many(given(damage=DAMAGE)(limited))()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, usual)
    assert tried >= COUNT, f"only {tried} of {COUNT} different damages were tried"
    # benchmarks/reliability/inputs.py reads this line.
    print(f"fuzzed {name}: {tried} files, {len(REFUSED)} refused, {(peak() - before) >> 20} MB")


def attack(name: str, file: Path, check: Callable[[Path], object]) -> None:
    """Call `check` with the file's path, which it must accept, and then after each damage to the file."""
    whole = file.read_bytes()
    REFUSED.clear()
    check(file)
    assert not REFUSED
    try:
        fuzz(name, lambda damage: (file.write_bytes(damaged(whole, damage)), check(file)))
    finally:
        file.write_bytes(whole)


def restart_peak() -> int:
    """Measure the peak from now on, which otherwise is the process's of all time, and return it."""
    if PROCESS.exists():
        (PROCESS / "clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The most bytes that this process has held; 0 where they cannot be measured."""
    return status("VmHWM") if PROCESS.exists() else 0


def status(name: str) -> int:
    """A figure of this process in Linux's proc/self/status, in bytes."""
    (line,) = [line for line in (PROCESS / "status").read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
