"""`bertzoo phone`: pack a file's rows for a phone, and judge the outputs that the phone computed."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions
from phone_files import NAMES, described

from bertzoo.cli.main import main


def phone(capsys: pytest.CaptureFixture, *words: object, code: int = 0) -> str:
    """What `bertzoo phone` prints; it ends with a code."""
    assert main(["phone", *map(str, words)]) == code
    return "".join(capsys.readouterr())


def test_the_verb(file: Path, tmp_path, capsys):
    packed, given = tmp_path / "packed", tmp_path / "given"
    assert mentions(phone(capsys, "pack", file, packed, "--rows=1"), packed, "3 rows", "2 golden", "1 of the task")
    signature = (packed / "signatures").read_text().splitlines()[1].split()
    assert signature == ["length_16", ",".join(NAMES), "1,16:1,16:1,16"]
    lying = np.frombuffer((packed / "rows" / "00002" / "input_ids").read_bytes(), "<i4")
    np.testing.assert_array_equal(lying, [7] * 3 + [0] * 5)
    assert mentions(phone(capsys, "judge", file, packed, given, code=2), "row 0")
    given.mkdir()
    for number, values in enumerate([(35, 5), (56, 8), (1, 2)]):
        (given / f"{number:05}").write_bytes(np.array(values, "<f4").tobytes())
    report = json.loads(phone(capsys, "judge", file, packed, given, "--json"))
    assert (report["right"], report["exam"]["scores"]["phone"]) == (True, {"accuracy": 0.0})
    (given / "00001").write_bytes(np.array((56, np.nan), "<f4").tobytes())
    assert mentions(phone(capsys, "judge", file, packed, given, code=1), "largest")
    (given / "00002").write_bytes(np.array((np.nan, 2), "<f4").tobytes())
    assert mentions(phone(capsys, "judge", file, packed, given, code=1), "sst2")
    report = json.loads(phone(capsys, "judge", file, packed, given, "--json", code=1), parse_constant=pytest.fail)
    assert report["golden"]["logits"]["max_error"] is report["exam"]["scores"]["phone"]["accuracy"] is None
    (given / "00001").write_bytes(b"12345")
    assert mentions(phone(capsys, "judge", file, packed, given, code=2), 5, "row 1", 8)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pack", "{file}", "{here}"], ("{here} ", "new folder")),
        (["pack", "{here}/none.tflite", "x"], ("{here}/none.tflite", "file")),
        (["pack", "{file}", "x", "y"], ("OUTPUTS", "pack")),
        (["pack", "{file}", "x", "--limit=0"], ("--limit", "judge", "pack")),
        (["pack", "{file}", "x", "--float16"], ("--float16", "judge", "pack")),
        (["pack", "{file}", "x", "--rows=-1"], ("-1", "rows")),
        (["judge", "{file}", "{here}", "x", "--limit=nan"], ("--limit=nan", "number")),
        (["judge", "{file}", "{here}", "x", "--limit=-1"], ("--limit=-1", "number")),
        (["judge", "{file}", "{here}"], ("OUTPUTS", "FOLDER")),
        (["judge", "{file}", "{here}", "x", "--rows=1"], ("--rows", "judge", "pack")),
        (["judge", "{file}", "{here}", "x"], ("{here}", "`bertzoo phone pack`")),
    ],
)
def test_mistakes_of_the_verb(file: Path, capsys, words: list[str], says: tuple[str, ...]):
    words, says = ([word.format(file=file, here=file.parent) for word in each] for each in (words, says))
    assert mentions(phone(capsys, *words, code=2), *says)


def test_missing_examples_print_an_error(file: Path, tmp_path, capsys):
    """The examples are those that were packed, and an unscored file rejects them."""
    packed, exam = tmp_path / "packed", file.parent / "my model.tflite.files" / "exam.json"
    phone(capsys, "pack", file, packed)
    whole = json.loads(exam.read_text())
    exam.write_text(json.dumps(whole | {"rows": whole["rows"][:3]}))
    assert mentions(phone(capsys, "judge", file, packed, "x", code=2), "packed")
    for text in ("{}", "[]", json.dumps(whole | {"kind": "later"})):
        exam.write_text(text)
        assert mentions(phone(capsys, "pack", file, tmp_path / "x", code=2), "exam.json")
    exam.unlink()
    known = json.loads(described(file).read_text())
    described(file).write_text(json.dumps(known | {"scores": None}))
    assert mentions(phone(capsys, "pack", file, tmp_path / "x", "--rows=5", code=2), "--rows=5", "scored")
    out = phone(capsys, "pack", file, tmp_path / "golden")
    assert mentions(out, tmp_path / "golden", "2 rows", "2 golden", "0 of the task")


def test_tags_and_questions_have_golden_rows_only(file: Path, tmp_path, capsys):
    (file.parent / "my model.tflite.files" / "exam.json").unlink()
    assert mentions(phone(capsys, "pack", file, tmp_path / "packed", "--rows=5", code=2), "--rows=5", "classifier")
    assert mentions(phone(capsys, "pack", file, tmp_path / "packed"), "2 rows", "2 golden", "0 of the task")
    given = tmp_path / "given"
    given.mkdir()
    for number, values in enumerate([(35, 5), (56, 8)]):
        (given / f"{number:05}").write_bytes(np.array(values, "<f4").tobytes())
    assert json.loads(phone(capsys, "judge", file, tmp_path / "packed", given, "--json"))["exam"] is None


def test_companions_that_are_not_of_the_file(file: Path, capsys):
    file.write_bytes(b"other weights")
    assert mentions(phone(capsys, "pack", file, "x", code=2), hashlib.sha256(b"other weights").hexdigest())
    file.write_bytes(b"weights")
    (file.parent / "my model.tflite.files" / "golden.json").write_text("[]")
    assert mentions(phone(capsys, "pack", file, "x", code=2), "golden.json")
    (file.parent / "my model.tflite.files" / "golden.json").unlink()
    assert mentions(phone(capsys, "pack", file, "x", code=2), "golden.json")
    described(file).write_text(json.dumps({"format": "onnx", "sha256": hashlib.sha256(b"weights").hexdigest()}))
    assert mentions(phone(capsys, "pack", file, "x", code=2), "format")
    described(file).write_text("{")
    assert mentions(phone(capsys, "pack", file, "x", code=2), "damaged")
