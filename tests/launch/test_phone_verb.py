"""`bertzoo phone`: pack a file's rows for a phone, and judge the outputs that the phone computed."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions
from phone_files import NAMES, described, row, timed_file

from bertzoo.cli.main import main


def said(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str]:
    code = main(["phone", *map(str, words)])
    return code, "".join(capsys.readouterr())


def test_the_verb(file: Path, tmp_path, capsys):
    packed, given = tmp_path / "packed", tmp_path / "given"
    code, out = said(capsys, "pack", file, packed, "--rows=1")
    assert code == 0 and mentions(out, packed, "3 rows", "2 golden", "1 of the task")
    assert (packed / "signatures").read_text().splitlines()[1].split() == [
        "length_16",
        ",".join(NAMES),
        "1,16:1,16:1,16",
    ]
    lying = np.frombuffer((packed / "rows" / "00002" / "input_ids").read_bytes(), "<i4")
    np.testing.assert_array_equal(lying, [7] * 3 + [0] * 5)
    code, out = said(capsys, "judge", file, packed, given)
    assert code == 2 and mentions(out, "row 0")
    given.mkdir()
    for number, values in enumerate([(35, 5), (56, 8), (1, 2)]):
        (given / f"{number:05}").write_bytes(np.array(values, "<f4").tobytes())
    code, out = said(capsys, "judge", file, packed, given, "--json")
    found = json.loads(out)
    assert (code, found["right"], found["exam"]["scores"]["phone"]) == (0, True, {"accuracy": 0.0})
    (given / "00001").write_bytes(np.array((56, np.nan), "<f4").tobytes())
    code, out = said(capsys, "judge", file, packed, given)
    assert code == 1 and mentions(out, "largest")
    (given / "00002").write_bytes(np.array((np.nan, 2), "<f4").tobytes())
    code, out = said(capsys, "judge", file, packed, given)
    assert code == 1 and mentions(out, "sst2")
    code, out = said(capsys, "judge", file, packed, given, "--json")
    found = json.loads(out, parse_constant=pytest.fail)
    assert code == 1 and found["golden"]["logits"]["max_error"] is found["exam"]["scores"]["phone"]["accuracy"] is None
    (given / "00001").write_bytes(b"12345")
    code, out = said(capsys, "judge", file, packed, given)
    assert code == 2 and mentions(out, 5, "row 1", 8)


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
        (["judge", "{file}", "{here}", "x", "--length=8"], ("--length", "judge", "pack")),
        (["pack", "{file}", "x", "--length=8"], ("--length=8", ".pt")),
        (["pack", "{here}/m.pt", "x", "--length=17"], ("--length=17", "4 to 16")),
        (["pack", "{here}/m.pt", "x", "--rows=1"], ("--rows=1", ".tflite")),
        (["judge", "{here}/m.pt", "x", "y"], ("m.pt", ".tflite")),
        (["judge", "{file}", "{here}", "x"], ("{here}", "`bertzoo phone pack`")),
    ],
)
def test_mistakes_of_the_verb(file: Path, capsys, words: list[str], says: tuple[str, ...]):
    timed_file(file.parent / "m.pt", b"weights")
    words, says = ([word.format(file=file, here=file.parent) for word in each] for each in (words, says))
    code, out = said(capsys, *words)
    assert code == 2 and mentions(out, *says)


def test_missing_examples_print_an_error(file: Path, tmp_path, capsys):
    """A scored file needs its examples, and an unscored one rejects them."""
    packed, exam = tmp_path / "packed", file.parent / "my model.tflite.files" / "exam.json"
    assert said(capsys, "pack", file, packed)[0] == 0
    whole = json.loads(exam.read_text())
    exam.write_text(json.dumps(whole | {"rows": whole["rows"][:3]}))
    code, out = said(capsys, "judge", file, packed, "x")
    assert code == 2 and mentions(out, "packed")
    for text in ("{}", "[]", json.dumps(whole | {"kind": "later"})):
        exam.write_text(text)
        code, out = said(capsys, "pack", file, tmp_path / "x")
        assert code == 2 and mentions(out, "exam.json")
    exam.unlink()
    for words in (("pack", file, tmp_path / "x"), ("judge", file, packed, tmp_path)):
        code, out = said(capsys, *words)
        assert code == 2 and mentions(out, "exam.json", "--to=litert`")
    known = json.loads(described(file).read_text())
    described(file).write_text(json.dumps(known | {"scores": None}))
    code, out = said(capsys, "pack", file, tmp_path / "x", "--rows=5")
    assert code == 2 and mentions(out, "--rows=5") and mentions(out, "scored")
    code, out = said(capsys, "pack", file, tmp_path / "golden")
    assert code == 0 and mentions(out, tmp_path / "golden", "2 rows", "2 golden", "0 of the task")


def test_the_row_of_a_file_that_is_only_timed(tmp_path, capsys):
    """The row is a golden row of the length, or ones; the default length is the file's nearest to 128."""
    file = timed_file(tmp_path / "m.onnx", b"weights")
    (tmp_path / "m.onnx.files").mkdir()
    (tmp_path / "m.onnx.files" / "golden.json").write_text(json.dumps([row(8, 5), row(16, 9)]))
    for words, length, ids in (
        ((), 16, [7] * 9 + [0] * 7),
        (("--length=8",), 8, [7] * 5 + [0] * 3),
        (("--length=4",), 4, [1] * 4),
    ):
        packed = tmp_path / f"packed{length}"
        code, out = said(capsys, "pack", file, packed, *words)
        assert code == 0 and mentions(out, packed, length)
        assert (packed / "signatures").read_text().split() == [
            f"length_{length}",
            ",".join(NAMES),
            ":".join([f"1,{length}"] * 3),
        ]
        raw = (packed / "timed" / f"length_{length}" / "input_ids").read_bytes()
        np.testing.assert_array_equal(np.frombuffer(raw, "<i4"), ids)
        proto = (packed / "timed" / f"length_{length}" / "input_0.pb").read_bytes()
        # onnx.proto's TensorProto: dims (1, length), data_type 6 (int32), name, raw_data
        assert proto == bytes([8, 1, 8, length, 16, 6, 66, 9]) + b"input_ids" + bytes([74, 4 * length]) + raw


@pytest.mark.parametrize("kind", ["token_classification", "span", "joint_span"])
def test_tags_and_questions_have_golden_rows_only(kind: str, file: Path, tmp_path, capsys):
    (file.parent / "my model.tflite.files" / "exam.json").unlink()
    known = json.loads(described(file).read_text())
    described(file).write_text(json.dumps(known | {"head": {"kind": kind}}))
    code, out = said(capsys, "pack", file, tmp_path / "packed", "--rows=5")
    assert code == 2 and mentions(out, "--rows=5", "classifier")
    code, out = said(capsys, "pack", file, tmp_path / "packed")
    assert code == 0 and mentions(out, "2 rows", "2 golden", "0 of the task")
    given = tmp_path / "given"
    given.mkdir()
    for number, values in enumerate([(35, 5), (56, 8)]):
        (given / f"{number:05}").write_bytes(np.array(values, "<f4").tobytes())
    code, out = said(capsys, "judge", file, tmp_path / "packed", given, "--json")
    assert code == 0 and json.loads(out)["exam"] is None


def test_companions_that_are_not_of_the_file(file: Path, capsys):
    file.write_bytes(b"other weights")
    code, out = said(capsys, "pack", file, "x")
    assert code == 2 and mentions(out, hashlib.sha256(b"other weights").hexdigest())
    file.write_bytes(b"weights")
    (file.parent / "my model.tflite.files" / "golden.json").write_text("[]")
    code, out = said(capsys, "pack", file, "x")
    assert code == 2 and mentions(out, "golden.json")
    (file.parent / "my model.tflite.files" / "golden.json").unlink()
    code, out = said(capsys, "pack", file, "x")
    assert code == 2 and mentions(out, "golden.json")
    described(file).write_text(json.dumps({"format": "onnx", "sha256": hashlib.sha256(b"weights").hexdigest()}))
    code, out = said(capsys, "pack", file, "x")
    assert code == 2 and mentions(out, "format")
    described(file).write_text("{")
    code, out = said(capsys, "pack", file, "x")
    assert code == 2 and mentions(out, "damaged")
