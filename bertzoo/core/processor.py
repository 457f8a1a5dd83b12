"""The processor's model name and instruction set extensions, as Linux lists them in /proc/cpuinfo."""

import functools
import re
from pathlib import Path
from typing import NamedTuple

_CPUINFO = Path("/proc/cpuinfo")


class Processor(NamedTuple):
    """The first processor of this machine.

    name: its model name, or "" if the system does not list it.
    extensions: names of its instruction set extensions, such as "avx2"; empty if the system does not list them.
    """

    name: str
    extensions: frozenset[str]


@functools.cache  # a trace asks for each product
def processor() -> Processor:
    """Return this machine's processor; its fields are empty on systems other than Linux."""
    return parse(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")


def parse(cpuinfo: str) -> Processor:
    """Return the first processor in the text of a /proc/cpuinfo.

    The text lists the extensions as "flags" on x86 and as "Features" on Arm.
    """
    name = re.search(r"^model name\s*: (.*)", cpuinfo, re.MULTILINE)
    extensions = re.search(r"^(?:flags|Features)\s*: (.*)", cpuinfo, re.MULTILINE)
    return Processor(name[1].strip() if name else "", frozenset(extensions[1].split() if extensions else ()))
