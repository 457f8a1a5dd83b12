"""Exported files whose runtime is JAX, where LiteRT is not installed."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import planted
import pytest

from bertzoo.benchmarking import interleave
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import formats, runtimes
from bertzoo.export.graph.reference import GraphRunner, TrainingGraph


class InJax(runtimes.Runner):
    """The training graph on one row; `lengths` records those of the rows."""

    def __init__(self, graph: TrainingGraph):
        self._run = GraphRunner(graph)
        self.lengths: list[int] = []

    def __call__(self, inputs: runtimes.Inputs) -> dict[str, np.ndarray]:
        assert all(array.shape[0] == 1 and array.dtype == np.int32 for array in inputs.values())
        self.lengths.append(inputs["input_ids"].shape[1])
        return self._run(inputs)


class Export:
    """Writes a model directory as a file; `loaded` are the runtimes that have opened a file since."""

    _graphs: ClassVar[dict[bytes, TrainingGraph]] = {}
    _kept: ClassVar[dict[tuple[Path, ...], Path]] = {}  # exports of models that outlive a test

    def __init__(self, folder: Path):
        self._folder, self.loaded = folder, list[InJax]()

    def __call__(self, source: Path, *options: str) -> Path:
        file, key = self._folder / f"{source.name}.tflite", (source, *map(Path, options))
        if key in self._kept:
            shutil.copytree(self._kept[key], self._folder, dirs_exist_ok=True)
            return file
        assert planted.cli.main(["convert", str(source), str(file), "--to=litert", *options]) == 0
        if not source.is_relative_to(self._folder):
            kept = self._kept[key] = source.parent / "exports" / str(len(self._kept))
            others = {path.name for path in self._folder.iterdir() if not path.name.startswith(file.name)}
            shutil.copytree(self._folder, kept, ignore=lambda *_: others)
        self.loaded.clear()
        return file

    def make(self, pretrained: Pretrained, reference: TrainingGraph, settings: Any, file: Path) -> dict[str, Any]:
        file.write_bytes(len(self._graphs).to_bytes(4, "little"))
        self._graphs[file.read_bytes()] = reference
        return {"operators": {}, "ports": {}}

    def load(self, file: Path) -> InJax:
        self.loaded.append(InJax(self._graphs[file.read_bytes()]))
        return self.loaded[-1]

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the place of LiteRT's converter and runtime."""
        monkeypatch.setattr(formats, "_litert", self.make)
        monkeypatch.setattr(runtimes, "LiteRT", self.load)
        find_spec = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if "lite" in name else find_spec(name))
        monkeypatch.setattr(interleave, "memory_of_file", lambda *_: 1)
