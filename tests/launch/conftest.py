"""Fixtures of launcher tests: fake clouds, and arguments that a careless shell breaks."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud
from phone_files import NAMES, described, row


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Fake clouds in a folder; the fakes that a test leaves running end with the test."""
    fakes = Cloud(tmp_path)
    yield fakes
    fakes.set(over=True)


# Arguments that every launcher must bring to `bertzoo pretrain` unharmed.
@pytest.fixture
def hostile() -> list[str]:
    return [
        "my config.toml",
        '--run_dir=gs://bucket/it\'s "a" run',
        "--data.source=text/*.txt",
        "--x=$(touch broken) `touch broken` $HOME ${PATH}",
        "--y=a;b & c | d > e \\ # ! ~ {1,2}",
        "--z=",
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the companions that a conversion leaves, of a model that always says class 0."""
    path = tmp_path / "my model.tflite"
    path.write_bytes(b"weights")
    ports = {
        f"length_{length}": {
            "inputs": [[name, "int32", [1, length]] for name in NAMES],
            "outputs": [["logits", "float32", [1, 2]]],
        }
        for length in (8, 16)
    }
    record = {"format": "litert", "precision": "fp32", "sha256": hashlib.sha256(b"weights").hexdigest()}
    record |= {"sentences": ["Good."], "ports": ports, "scores": {"of": 9}}
    described(path).write_text(json.dumps(record))
    folder = tmp_path / "my model.tflite.files"
    folder.mkdir()
    (folder / "golden.json").write_text(json.dumps([row(8, 5), row(8, 8)]))
    rows = [row(8, 3, 0), row(16, 9, 0), row(16, 10, 1), row(8, 4, 0)]
    exam = {"task": "sst2", "split": "dev", "of": 9, "kind": "classification", "metrics": ["accuracy"], "scale": 1.0}
    (folder / "exam.json").write_text(json.dumps(exam | {"rows": rows}))
    return path
