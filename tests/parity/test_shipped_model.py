"""examples/weights/search.tflite: a whole file, the recorded vectors, and answers to the sample's questions."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from comparing import needs

needs("ai_edge_litert", "mediapipe")

import bertzoo
from bertzoo.export.litert import mediapipe

EXAMPLES = Path(__file__).parents[2] / "examples"
FILE = EXAMPLES / "weights" / "search.tflite"
LARGEST = 8_000_000  # bytes
ANSWERS = {
    "I cannot sign in": "password",
    "How long until my package comes?": "Parcels take",
    "Does it work outdoors in rain?": "may stay outside",
    "how do I delete my account": "To close your account",
    "When are you open?": "Shops open",
}


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def encoder():
    return bertzoo.TextEncoder(FILE)


def test_the_file_is_the_one_that_its_record_describes():
    record = json.loads(Path(f"{FILE}.json").read_text())
    assert hashlib.sha256(FILE.read_bytes()).hexdigest() == record["sha256"]
    assert FILE.stat().st_size == record["bytes"] < LARGEST
    assert record["source"]["license"] == "apache-2.0"


def test_vectors_are_those_of_the_golden_texts(encoder):
    rows = json.loads((Path(f"{FILE}.files") / "golden.json").read_text())
    texts = [row["texts"][0] for row in rows]
    wanted = np.array([row["outputs"]["embedding"] for row in rows])
    (task,) = mediapipe._run_tasks([("embedder", FILE, texts)])["results"]
    for vectors in (encoder.encode(texts), np.array(task)):
        assert (unit(vectors) * unit(wanted)).sum(-1).min() > 0.999  # int8 kernels differ between processors


def test_questions_find_their_answers(encoder):
    texts = (EXAMPLES / "texts.txt").read_text().splitlines()
    cosines = unit(encoder.encode(list(ANSWERS))) @ unit(encoder.encode(texts)).T
    for row, answer in zip(cosines, ANSWERS.values(), strict=True):
        assert answer in "\n".join(texts[place] for place in np.argsort(-row)[:3])
