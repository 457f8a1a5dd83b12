"""The processor's model name and instruction set extensions, as Linux lists them in /proc/cpuinfo."""

import functools
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


@functools.cache  # a trace asks for each product, and the file lists every core
def processor() -> Processor:
    """Return this machine's processor; its fields are empty on systems other than Linux."""
    return parse(_CPUINFO.read_text(encoding="utf-8") if _CPUINFO.is_file() else "")


def parse(cpuinfo: str) -> Processor:
    """Return the first processor in the text of a /proc/cpuinfo.

    The text lists the extensions as "flags" on x86 and as "Features" on Arm.
    """
    lines = (line.partition(":") for line in cpuinfo.split("\n\n")[0].splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines}
    extensions = fields.get("flags", fields.get("Features", ""))
    return Processor(fields.get("model name", ""), frozenset(extensions.split()))
