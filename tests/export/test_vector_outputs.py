"""Vectors as int8 and as bits: their values, the comparison of a file with its model, and the options of convert."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
import pytest
import zoo
from messages import mentioning

from bertzoo.conversion import heads
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.export.check import verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import GraphRunner, training_graph
from bertzoo.export.options import ExportOptions
from bertzoo.heads import SentenceEmbedding, SequenceClassification
from bertzoo.heads.embedding import round_vectors
from bertzoo.models import Bert
from bertzoo.runs.runner import Runner

BERT = Bert(**zoo.SIZES, layers=1, heads=4, feed_forward_size=20)
FORMS = ("int8", "binary")


def expected(vectors: np.ndarray, form: str) -> np.ndarray:
    if form == "binary":
        return np.packbits(vectors > 0, axis=-1)
    return np.round(127 * vectors / np.abs(vectors).max(-1, keepdims=True)).astype(np.int8)


@pytest.mark.parametrize("form", FORMS)
def test_values(form: str) -> None:
    x = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    x[0, :3] = 0
    np.testing.assert_array_equal(jax.jit(round_vectors, static_argnums=1)(x, form), expected(x, form))
    kept = SentenceEmbedding(output=form).convert_outputs({"embedding": expected(x, form)})["embedding"]  # pyright: ignore[reportArgumentType]
    unit, ours = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (x, kept))
    if form == "int8":
        np.testing.assert_allclose(ours @ ours.T, unit @ unit.T, atol=0.02)
    else:
        hamming = (np.unpackbits(expected(x, form), axis=-1)[:, None] != (x > 0)).sum(-1)
        np.testing.assert_allclose(ours @ ours.T, 1 - 2 * hamming / 24, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_graph_of_a_file_rounds_as_the_model(form: str) -> None:
    made = heads.shape_vectors(zoo.pretrained(BERT, SentenceEmbedding(sizes=(8, 16))), 16, form)
    assert made.head == SentenceEmbedding(size=16, sizes=(8,), output=form)  # pyright: ignore[reportArgumentType]
    plain = training_graph(zoo.pretrained(BERT, SentenceEmbedding(size=16)))
    reference = training_graph(made)
    (row, *_) = verify.sample_rows(reference, None, 12)
    vectors = GraphRunner(plain)(row)["embedding"]
    for graph in (reference, build_graph(reference.model, reference.params)):
        np.testing.assert_array_equal(GraphRunner(graph)(row)["embedding"], expected(vectors, form))
    measured = verify.verify_outputs(GraphRunner(reference), reference, None, [8, 12], "fp32")
    assert measured["length_12"]["outputs"]["embedding"]["max_error"] == 0


class Changed(Runner):
    """A model's outputs with one change."""

    def __init__(self, graph: Any, change: Any):
        self._run, self._change = GraphRunner(graph), change

    def __call__(self, inputs: Any) -> Any:
        return {name: self._change(np.array(array)) for name, array in self._run(inputs).items()}


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one step": lambda x: (x + np.where(x < 127, 1, -1)).astype(x.dtype),
    "two steps": lambda x: x + (np.arange(24) == 3).astype(x.dtype) * np.where(x < 100, 2, -2).astype(x.dtype),
    "a flipped bit": lambda x: x ^ np.uint8([0, 16, 0]),
    "wider": lambda x: x.astype(np.int32),
}


def verifies(change: str, reference: Any, message: str = "") -> None:
    """Verify a changed file; without a message, it is right."""
    with pytest.raises(ExportFailed, match=mentioning(message)) if message else nullcontext():
        verify.verify_outputs(Changed(reference, CHANGES[change]), reference, None, [9], "fp32")


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ("int8", "one step", ""),
        ("int8", "two steps", "embedding"),
        ("int8", "wider", "output"),
        ("binary", "a flipped bit", "embedding"),
        ("binary", "wider", "output"),
    ],
)
def test_what_a_file_may_change(form: str, change: str, message: str) -> None:
    verifies(
        change, training_graph(heads.shape_vectors(zoo.pretrained(BERT, SentenceEmbedding()), None, form)), message
    )


@pytest.mark.parametrize(("value", "message"), [(1e-5, ""), (0.5, "embedding")])
def test_bits_of_tiny_numbers_may_differ(value: float, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit whose number is 1e-5 of the largest may flip, one whose number is 1e-2 may not."""
    made = zoo.pretrained(BERT, SentenceEmbedding(projection=8, normalise=False, output="binary"))
    made.params["projection/kernel"][:, 2] = 0
    made.params["projection/bias"][2] = value
    monkeypatch.setitem(CHANGES, "a flipped bit", lambda x: x ^ np.uint8(32))
    verifies("a flipped bit", training_graph(made), message)


def test_options_that_do_not_fit() -> None:
    made = zoo.pretrained(BERT, SentenceEmbedding())
    with pytest.raises(UserError, match=mentioning("--size", 25, 24)):
        heads.shape_vectors(made, 25, None)
    with pytest.raises(UserError, match=mentioning("--output", 12, 8)):
        heads.shape_vectors(made, 12, "binary")
    with pytest.raises(ConfigError, match=mentioning("binary", 12)):
        SentenceEmbedding(size=12, output="binary").build(BERT, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match=mentioning("--output", "sequence_classification")):
        heads.shape_vectors(zoo.pretrained(BERT, SequenceClassification()), None, "int8")
    with pytest.raises(UserError, match=mentioning("--size", 0)):
        ExportOptions(to="litert", size=0)
    with pytest.raises(UserError, match=mentioning("--output", "mediapipe")):
        ExportOptions(to="mediapipe", output="int8")
    with pytest.raises(UserError, match=mentioning("--output", "bits", "binary")):
        ExportOptions(to="onnx", output="bits")
