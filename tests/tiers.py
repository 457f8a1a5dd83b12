"""Which cases of a parametrised test `make test` runs; the others are left to `make test-all` and the slices of CI."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], *names: Any) -> list[Any]:
    """The cases, those but `names` marked slow: name one for each code path that the cases tell apart."""
    cases = list(cases)
    if unknown := [name for name in names if name not in cases]:
        raise ValueError(f"no such cases: {unknown}")
    return [case if case in names else pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
