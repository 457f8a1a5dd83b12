"""Vectors as int8 and as bits: their values, the comparison of a file with its model, and the options of convert."""

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


def one_step(x: np.ndarray) -> np.ndarray:
    return (x + np.where(x < 127, 1, -1)).astype(x.dtype)


def two_steps(x: np.ndarray) -> np.ndarray:
    x[..., 3] += np.where(x[..., 3] < 100, 2, -2).astype(x.dtype)
    return x


def flipped(x: np.ndarray) -> np.ndarray:
    x[..., 1] ^= 16
    return x


def wider(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int32)


@pytest.mark.parametrize(
    ("form", "change", "fits"),
    [
        ("int8", one_step, True),
        ("int8", two_steps, False),
        ("int8", wider, False),
        ("binary", flipped, False),
        ("binary", wider, False),
    ],
)
def test_what_a_file_may_change(form: str, change: Any, fits: bool) -> None:
    reference = training_graph(heads.shape_vectors(zoo.pretrained(BERT, SentenceEmbedding()), None, form))
    run = Changed(reference, change)
    if fits:
        verify.verify_outputs(run, reference, None, [9], "fp32")
        return
    with pytest.raises(ExportFailed, match=mentioning("output" if change is wider else "embedding")):
        verify.verify_outputs(run, reference, None, [9], "fp32")


def test_bits_of_tiny_numbers_may_differ() -> None:
    """A bit whose number is 1e-5 of the largest may flip, one whose number is 1e-2 may not."""
    made = zoo.pretrained(BERT, SentenceEmbedding(projection=8, normalise=False, output="binary"))
    made.params["projection/kernel"][:, 2] = 0
    for value, fits in ((1e-5, True), (0.5, False)):
        made.params["projection/bias"][2] = value
        reference = training_graph(made)

        def flip(x: np.ndarray) -> np.ndarray:
            return x ^ np.uint8(32)

        if fits:
            verify.verify_outputs(Changed(reference, flip), reference, None, [9], "fp32")
        else:
            with pytest.raises(ExportFailed, match=mentioning("embedding")):
                verify.verify_outputs(Changed(reference, flip), reference, None, [9], "fp32")


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
