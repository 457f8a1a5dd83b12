"""The processor's model name and instruction set extensions, as Linux lists them in /proc/cpuinfo."""

from itertools import takewhile
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


def processor() -> Processor:
    """Return this machine's processor; its fields are empty on systems other than Linux."""
    if not _CPUINFO.is_file():
        return parse("")
    with _CPUINFO.open(encoding="utf-8") as file:
        return parse("".join(takewhile(str.strip, file)))  # the first core: a trace asks for each product


def parse(cpuinfo: str) -> Processor:
    """Return the first processor in the text of a /proc/cpuinfo.

    The text lists the extensions as "flags" on x86 and as "Features" on Arm.
    """
    lines = (line.partition(":") for line in cpuinfo.split("\n\n")[0].splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    extensions = fields.get("flags", fields.get("Features", ""))
    return Processor(fields.get("model name", ""), frozenset(extensions.split()))
