"""A stand-in for LiteRT in `bertzoo benchmark`: it writes five bytes, and its n-th run takes n milliseconds."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bertzoo.benchmarking import interleave
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.export import formats
from bertzoo.export.litert import write


class TimedWorker:
    """A worker that loads nothing."""

    def __init__(self, name: str, request: LoadRequest, python: str = "") -> None:
        assert Path(request.path).read_bytes() == b"model"
        self.state = {"empty": 7, "lengths": (), "threads": request.threads, "version": "9"}
        self._runs = itertools.count(1)

    def run(self, lengths: Sequence[int]) -> list[float]:
        return [1e-3 * next(self._runs) for _ in lengths]

    def peak(self) -> int:
        return 5

    def close(self) -> None:
        pass


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, formats.FileSettings]]:
    """Take LiteRT's place; return a list that grows by the head and the settings of each written file."""
    written = []

    def make(pretrained: Any, reference: Any, settings: formats.FileSettings, file: Path) -> dict[str, Any]:
        file.write_bytes(b"model")
        written.append((pretrained.head.kind, settings))
        return {}

    monkeypatch.setattr(formats, "_litert", make)
    monkeypatch.setattr(write, "check_packages", dict)
    monkeypatch.setattr(interleave, "Worker", TimedWorker)
    return written
