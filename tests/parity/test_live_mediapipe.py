"""`bertzoo convert --to=mediapipe`: files that MediaPipe's own text tasks run on strings."""

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparing import needs
from messages import mentioning

needs("litert_converter", "ai_edge_litert", "litert_quantizer", "mediapipe")
from zoo import pretrained

import bertzoo
from bertzoo.cli.main import main
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.litert import mediapipe
from bertzoo.export.runtimes import LiteRT
from bertzoo.heads import SentenceEmbedding, SequenceClassification
from bertzoo.models import Bert, DistilBert, SqueezeBert
from bertzoo.runs import load_model

LENGTH = 48
SIZES = {"hidden_size": 16, "layers": 2, "heads": 2, "feed_forward_size": 32, "max_positions": 64}
SENTENCES = [*verify.TEXT[:4], "Good.", "a dull film", "Who wrote the letter?", ""]


def source(folder: Path, kind: Any = Bert, head: Any = None, **options: Any) -> Path:
    """A model directory with a tokenizer that knows the golden sentences; its logits are far apart."""
    folder.mkdir()
    tokenizer = tokenizers.build(WordPiece(vocab_size=500, **options), lambda: iter(verify.TEXT * 20))
    head = head or SequenceClassification(labels=("no", "yes", "maybe"))
    model = pretrained(kind(vocab_size=tokenizer.vocab_size, **SIZES), head, 1.0)
    load_model.write_model(dataclasses.replace(model, tokenizer=tokenizer), folder)
    return folder


def run_task(file: Path, task: str, texts: list[str]) -> np.ndarray:
    (results,) = mediapipe._run_tasks([(task, file, texts)])["results"]
    return np.array(results)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A classifier's directory and its file."""
    folder = tmp_path_factory.mktemp("mediapipe")
    file = folder / "model.tflite"
    model = source(folder / "model")
    assert main(["convert", str(model), str(file), "--to=mediapipe", f"--lengths={LENGTH}"]) == 0
    return model, file


def test_a_task_scores_strings_as_predict_scores_texts(classifier: tuple[Path, Path]):
    """MediaPipe's scores are the model's probabilities, and `predict` reads the same ones from the file."""
    model, file = classifier
    scores = run_task(file, "classifier", SENTENCES)
    np.testing.assert_allclose(scores.sum(-1), 1, atol=1e-5)
    assert scores.std(0).max() > 0.01  # another text has other scores
    for path in (model, file):
        predictions = bertzoo.predict(path, SENTENCES)
        labels = [("no", "yes", "maybe")[row.argmax()] for row in scores]
        assert [one["label"] for one in predictions] == labels and len(set(labels)) > 1
        np.testing.assert_allclose([one["probability"] for one in predictions], scores.max(-1), atol=1e-5)


def test_the_file_holds_its_vocabulary_and_labels(classifier: tuple[Path, Path]):
    _, file = classifier
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == ["labels.txt", "vocab.txt"]
        assert archive.read("labels.txt").decode().split() == ["no", "yes", "maybe"]
    document = json.loads(file.with_name(f"{file.name}.json").read_text())
    assert document["mediapipe"]["task"] == "classifier" and document["mediapipe"]["largest_difference"] <= 1e-6
    assert "ÉCOLE ÜBER ÆON" in {one["text"] for one in document["mediapipe"]["differences"]}
    assert document["mediapipe"]["prepared_differences"] == []
    rows = json.loads((file.with_name(f"{file.name}.files") / "golden.json").read_text())
    assert all(len(row["texts"]) == 1 for row in rows)


SEVERAL = SequenceClassification(labels=("a", "b"), problem_type="multi_label_classification")


@pytest.mark.parametrize(("head", "precision"), [(SentenceEmbedding(), "int8-dynamic"), (SEVERAL, "int4-dynamic")])
def test_an_embedder_without_token_types_and_independent_labels(head: Any, precision: str, tmp_path, monkeypatch):
    """DistilBERT has no token types, and MediaPipe always gives them. The int4 file has a scale per 32 weights."""
    monkeypatch.setitem(SIZES, "hidden_size", 32)
    model, file = source(tmp_path / "model", DistilBert, head), tmp_path / "model.tflite"
    options = ["--to=mediapipe", f"--lengths={LENGTH}", f"--precision={precision}"]
    assert main(["convert", str(model), str(file), *options]) == 0
    task = "embedder" if isinstance(head, SentenceEmbedding) else "classifier"
    results = run_task(file, task, SENTENCES)
    tokenizer, run = load_model.read_model(model).tokenizer, LiteRT(file)
    for text, result in zip(SENTENCES, results, strict=True):
        ids, types = golden.encode_texts(tokenizer, (text,))
        row = {"input_ids": ids, "token_type_ids": types, "attention_mask": ids**0}
        (output,) = run({name: np.pad(array, (0, LENGTH - len(ids)))[None] for name, array in row.items()}).values()
        np.testing.assert_allclose(result, output[0], atol=1e-6)
    if head is SEVERAL:
        assert abs(results.sum(-1) - 1).max() > 0.01
        predictions = bertzoo.predict(file, SENTENCES)
        np.testing.assert_allclose([[*one["probabilities"].values()] for one in predictions], results, atol=1e-5)


def test_a_file_of_another_model_or_vocabulary_fails_the_proof(classifier: tuple[Path, Path], tmp_path):
    model, file = classifier
    right = load_model.read_model(model)
    mediapipe.check_task(file, LiteRT(file), right, LENGTH)
    labels = dataclasses.replace(right, head=SequenceClassification(labels=("yes", "no", "maybe")))
    with pytest.raises(ExportFailed, match=mentioning("'yes', 'no'", "'no', 'yes'")):
        mediapipe.check_task(file, LiteRT(file), labels, LENGTH)
    other = source(tmp_path / "other", SqueezeBert)
    assert main(["convert", str(other), str(tmp_path / "other.tflite"), "--to=mediapipe", f"--lengths={LENGTH}"]) == 0
    with pytest.raises(ExportFailed, match=mentioning("differ by", mediapipe.TOLERANCE)):
        mediapipe.check_task(file, LiteRT(tmp_path / "other.tflite"), right, LENGTH)
    tokenizer = tokenizers.build(WordPiece(vocab_size=120), lambda: iter(verify.TEXT * 20))
    with pytest.raises(ExportFailed):
        mediapipe.check_task(file, LiteRT(file), dataclasses.replace(right, tokenizer=tokenizer), LENGTH)
