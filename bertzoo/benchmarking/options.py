"""The options of a benchmark. Imports no jax."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertzoo.core.errors import UserError
from bertzoo.core.options import flag_of, option
from bertzoo.export.options import PRECISIONS

BACKEND_NAMES = ("litert", "onnx", "executorch")
_measured = partial(option, group="measurement")


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """Settings of a benchmark; raises UserError for unknown or conflicting values."""

    backends: tuple[str, ...] | None = _measured(
        f"runtimes: {', '.join(BACKEND_NAMES)} (default: litert)", None, metavar="A,B"
    )
    threads: tuple[int, ...] = _measured(
        "numbers of CPU threads to measure with (default: 1)", (1,), metavar="N,…", least=1
    )
    lengths: tuple[int, ...] | None = _measured(
        "sequence lengths in tokens to measure with (default: 128)", None, metavar="N,…", least=1
    )
    precisions: tuple[str, ...] | None = _measured(
        "precisions of the weights, as in `bertzoo convert` (default: fp32)", None, metavar="A,B", flag="--precision"
    )
    runs: int = _measured("timed runs of each model", 40, metavar="N")  # the papers' mean is over 40 runs
    rounds: int = _measured(
        "rounds to spread the timed runs over; in each round, the models take turns", 8, metavar="N"
    )
    python: Path | None = _measured(
        "for executorch: a Python that has executorch (default: this Python)", None, metavar="FILE"
    )

    def __post_init__(self):
        for field in ("backends", "precisions", "lengths", "threads"):
            value = getattr(self, field)
            if value is not None and (isinstance(value, str) or not isinstance(value, Sequence)):
                raise UserError(f"{field} = {value!r} is not a list. Pass {[value]!r}.")
        for field, names in (("backends", BACKEND_NAMES), ("precisions", PRECISIONS)):
            for name in getattr(self, field) or ():
                if name not in names:
                    raise UserError(f"{flag_of(type(self), field)}={name} is unknown. Use {', '.join(names)}.")
        if not 1 <= self.rounds <= self.runs:
            raise UserError(
                f"--rounds={self.rounds} is not between 1 and --runs={self.runs}. Use at least one run per round."
            )

    @property
    def interpreter(self) -> Path:
        """The Python that runs ExecuTorch's files."""
        return Path(self.python or sys.executable)
