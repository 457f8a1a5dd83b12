"""Model directories of every head, and their export to a file whose runtime is JAX."""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import planted
import pytest
import quiz

from bertzoo.benchmarking import interleave
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import formats, runtimes
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.finetuning.question_answering import squad_notes
from bertzoo.models.tasks import (
    JointSpanExtraction,
    MaskedLanguageModel,
    NoHead,
    SequenceClassification,
    SpanExtraction,
    TokenClassification,
)
from bertzoo.runs import any_model
from bertzoo.tasks.squad_tasks import SquadOptions

JOINT = SquadOptions(joint=True, candidates=4, stride=8, max_question=4, threshold=0)
HEADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rte": (SequenceClassification(labels=("not_entailment", "entailment")), {"task": "rte", "max_length": 24}),
    "stsb": (
        SequenceClassification(labels=("number",), problem_type="regression"),
        {"task": "stsb", "scale": "5", "max_length": 16},
    ),
    "tags": (TokenClassification(labels=("O", "B-X", "I-X")), {}),
    "own": (SequenceClassification(), {"task": "own"}),
    "span": (
        SpanExtraction(),
        {"task": "squad1", "max_length": 24, **squad_notes(SquadOptions(stride=8, max_question=4), False)},
    ),
    "joint": (JointSpanExtraction(beam=4), {"task": "squad2", "max_length": 24, **squad_notes(JOINT, True)}),
    "masked": (MaskedLanguageModel(sentence=True), {"sentence": "sop"}),
    "none": (NoHead(), {}),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model directories of every head, the files of RTE and SQuAD."""
    folder = tmp_path_factory.mktemp("files")
    planted.fill(folder)
    base = any_model.read_model(folder / "model")
    for name, (head, source) in HEADS.items():
        planted.write(folder / name, base.model, head, base.tokenizer, **source)
    planted.fill_pairs(folder / "RTE", "RTE", np.random.default_rng(2))
    (folder / "quiz").mkdir()
    quiz.fill(folder / "quiz")
    return folder


class InJax(runtimes.FileRuntime):
    """The training graph on one row; `lengths` records those of the rows."""

    def __init__(self, graph: TrainingGraph):
        self._run = partial(jax.jit(lambda graph, row: graph(**row)), graph)
        self.lengths: list[int] = []

    def __call__(self, inputs: runtimes.Inputs) -> dict[str, np.ndarray]:
        assert all(array.shape[0] == 1 and array.dtype == np.int32 for array in inputs.values())
        self.lengths.append(inputs["input_ids"].shape[1])
        return {name: np.asarray(y)[None] for name, y in self._run({n: x[0] for n, x in inputs.items()}).items()}


class Export:
    """Writes a model directory as a file; `loaded` are the runtimes that have opened a file since."""

    def __init__(self, folder: Path):
        self._folder, self._graphs, self.loaded = folder, {}, list[InJax]()

    def __call__(self, source: Path, *options: str) -> Path:
        file = self._folder / f"{source.name}.tflite"
        assert planted.cli.main(["convert", str(source), str(file), "--to=litert", *options]) == 0
        self.loaded.clear()
        return file

    def make(self, pretrained: Pretrained, reference: TrainingGraph, settings: Any, file: Path) -> dict[str, Any]:
        file.write_bytes(len(self._graphs).to_bytes(4, "little"))
        self._graphs[file.read_bytes()] = reference
        return {"operators": {}, "ports": {}}

    def load(self, file: Path, threads: int = 1) -> InJax:
        self.loaded.append(InJax(self._graphs[file.read_bytes()]))
        return self.loaded[-1]


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    exporter = Export(tmp_path)
    monkeypatch.setattr(formats, "_litert", exporter.make)
    monkeypatch.setattr(runtimes, "LiteRT", exporter.load)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(interleave, "memory_of_file", lambda *_: 1)
    return exporter
