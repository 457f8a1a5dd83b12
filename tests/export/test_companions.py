"""Files beside an exported file: their names, and errors for those of other files."""

import hashlib
import json
from pathlib import Path

import pytest
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.export.companions import companions, read_metadata

CONTENT = b"weights"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sst2.tflite"
    path.write_bytes(CONTENT)
    return path


def describe(path: Path, content: bytes = CONTENT) -> dict[str, object]:
    document = {"format": "litert", "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(document))
    return document


def test_formats_of_one_model_stand_side_by_side(tmp_path: Path) -> None:
    names = [name for suffix in (".tflite", ".onnx", ".pte") for name in companions(tmp_path / f"sst2{suffix}")]
    assert companions(Path("runs/sst2.tflite")) == ("sst2.tflite.json", "sst2.tflite.files")
    assert len(set(names)) == 6


def test_metadata_belongs_to_its_file(file: Path) -> None:
    assert read_metadata(file) is None
    path = file.with_name("sst2.tflite.json")
    assert describe(path) == read_metadata(file)
    describe(path, b"other")
    hashes = (hashlib.sha256(content).hexdigest() for content in (b"other", CONTENT))
    with pytest.raises(UserError, match=mentioning("sst2.tflite.json", *hashes)):
        read_metadata(file)
    for damaged in ("{", "[]", "{}"):
        path.write_text(damaged)
        with pytest.raises(UserError, match=mentioning("sst2.tflite.json", "damaged")):
            read_metadata(file)
