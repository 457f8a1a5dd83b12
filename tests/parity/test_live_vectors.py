# pyright: reportMissingImports=false
"""Vectors of texts in every format of files but ExecuTorch's, whole and rounded; run by `make test-all`."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from exported import convert

needs("torch", "onnx", "onnxruntime", "ai_edge_litert", "litert_converter", "mediapipe")

import zoo

from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.check import verify
from bertzoo.export.file_model import open_embedding_model
from bertzoo.heads import SentenceEmbedding
from bertzoo.models import SqueezeBert
from bertzoo.runs import load_model

TEXTS = list(verify.TEXT[:4])
FORMATS = ("litert", "onnx", "onnx-text")
SUFFIXES = {"litert": "tflite", "mediapipe": "tflite"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer and vectors of 24 dimensions."""
    folder = tmp_path_factory.mktemp("embedder")
    tokenizer = tokenizers.build(WordPiece(vocab_size=120), lambda: iter(verify.TEXT * 20))
    sizes = {"hidden_size": 24, "layers": 1, "heads": 4, "feed_forward_size": 32, "max_positions": 64}
    made = zoo.pretrained(SqueezeBert(vocab_size=tokenizer.vocab_size, **sizes), SentenceEmbedding(sizes=(8, 16)))
    load_model.write_model(dataclasses.replace(made, tokenizer=tokenizer), folder)
    return folder


def vectors(path: Path) -> np.ndarray:
    return open_embedding_model(path).embed(TEXTS)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def exported(source: Path, folder: Path, to: str, *options: str) -> Path:
    file = folder / f"model.{SUFFIXES.get(to, 'onnx')}"
    assert convert(source, file, to, *(["--lengths=64"] if to in ("litert", "mediapipe") else []), *options) == 0
    return file


@pytest.mark.parametrize("to", [*FORMATS, "mediapipe"])
def test_a_cut_vector(to: str, source: Path, tmp_path: Path) -> None:
    """The first dimensions, normalised again, as the model's."""
    file = exported(source, tmp_path, to, "--size=16")
    np.testing.assert_allclose(vectors(file), unit(vectors(source)[:, :16]), atol=1e-5)
    head = json.loads(file.with_name(f"{file.name}.json").read_text())["head"]
    assert head["size"] == 16 and head["sizes"] == [8]


@pytest.mark.parametrize("to", FORMATS)
def test_int8(to: str, source: Path, tmp_path: Path) -> None:
    whole = vectors(source)
    steps = np.round(127 * whole / np.abs(whole).max(-1, keepdims=True))
    np.testing.assert_allclose(vectors(exported(source, tmp_path, to, "--output=int8")), steps, atol=1)


@pytest.mark.parametrize("to", FORMATS)
def test_bits(to: str, source: Path, tmp_path: Path) -> None:
    whole = vectors(source)
    file = exported(source, tmp_path, to, "--output=binary", "--size=16")
    signs = np.where(whole[:, :16] > 0, 1, -1)
    tiny = np.abs(whole[:, :16]) < 1e-4 * np.abs(whole).max()
    assert ((vectors(file) == signs) | tiny).all()
    row = json.loads((tmp_path / f"{file.name}.files" / "golden.json").read_text())[0]
    assert len(row["outputs"]["embedding"]) == 2 and row["outputs"] == row["expected"]


@pytest.mark.parametrize("form", ["float32", "int8", "binary"])
def test_int8_weights(form: str, source: Path, tmp_path: Path) -> None:
    file = exported(source, tmp_path, "litert", f"--output={form}", "--precision=int8-dynamic")
    ports = json.loads(file.with_name(f"{file.name}.json").read_text())["ports"]["length_64"]["outputs"]
    kind = {"binary": "uint8"}.get(form, form)
    assert ports == [["embedding", kind, [1, 3 if form == "binary" else 24]]]
    least = 0.5 if form == "binary" else 0.97
    assert (np.sum(unit(vectors(file)) * unit(vectors(source)), -1) > least).all()
