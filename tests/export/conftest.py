"""Model directories of every head, and their export to a file whose runtime is JAX (in_jax.py)."""

from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
import quiz
from in_jax import Export

from bertzoo.finetuning.question_answering import squad_notes
from bertzoo.heads import (
    JointSpanExtraction,
    MaskedLanguageModel,
    MultiTaskHead,
    NoHead,
    SequenceClassification,
    SpanExtraction,
    TokenClassification,
)
from bertzoo.heads.multi_task import NamedHead
from bertzoo.runs import load_model
from bertzoo.tasks.squad_tasks import SquadOptions

TAGS, PLACES = TokenClassification(labels=("O", "B-X", "I-X")), {"kind": "entities", "labels": ["X"]}
MOOD = SequenceClassification(labels=("good", "bad"))
JOINT = SquadOptions(joint=True, candidates=4, stride=8, max_question=4, threshold=0)
HEADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "rte": (SequenceClassification(labels=("not_entailment", "entailment")), {"task": "rte", "max_length": 24}),
    "several": (
        SequenceClassification(labels=("good", "bad", "long"), problem_type="multi_label_classification"),
        {"task": "own", "max_length": 24, "own": {"kind": "multi_label", "labels": ["bad", "long", "good"]}},
    ),
    "stsb": (
        SequenceClassification(labels=("number",), problem_type="regression"),
        {"task": "stsb", "scale": "5", "max_length": 16},
    ),
    "tags": (TAGS, {}),
    "spans": (TAGS, {"task": "own", "max_length": 24, "own": PLACES}),
    "heads": (
        MultiTaskHead(heads=(NamedHead(name="mood", head=MOOD), NamedHead(name="places", head=TAGS))),
        {"task": "own", "max_length": 24, "own": {"heads": [{"name": "mood"}, {"name": "places", **PLACES}]}},
    ),
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
    base = load_model.read_model(folder / "model")
    for name, (head, source) in HEADS.items():
        planted.write(folder / name, base.model, head, base.tokenizer, **source)
    planted.fill_pairs(folder / "RTE", "RTE", np.random.default_rng(2))
    (folder / "quiz").mkdir()
    quiz.fill(folder / "quiz")
    return folder


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    exporter = Export(tmp_path)
    exporter.stand_in(monkeypatch)
    return exporter
