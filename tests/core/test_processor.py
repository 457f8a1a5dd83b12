"""The processor's name and extensions in the text of /proc/cpuinfo."""

import pytest

from bertzoo.core.machine import Processor, parse

X86 = "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512_bf16\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd bf16\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, Processor("AMD EPYC", frozenset({"fpu", "avx2", "avx512_bf16"}))),
        (ARM, Processor("", frozenset({"fp", "asimd", "bf16"}))),
        ("", Processor("", frozenset())),
    ],
    ids=["x86", "arm", "none"],
)
def test_the_first_processor_is_parsed(text: str, expected: Processor) -> None:
    assert parse(text) == expected
