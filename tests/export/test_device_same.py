"""`bertzoo phone judge` accepts the rounding of another device's kernels and rejects wrong outputs."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

from bertzoo.cli.main import main
from bertzoo.export.check.device import LIMITS, judge, read_companions

ROWS, EXAMPLES = 6, 50
RANDOM = np.random.default_rng(0)
GOLDEN, EXAM = RANDOM.normal(0, 1, (ROWS, 2)), RANDOM.normal(0, 1, (EXAMPLES, 2))


def written(folder: Path, precision: str, golden: list[dict], exam: dict | None, outputs: list) -> Path:
    """A file and its companions."""
    file, files = folder / "model.tflite", folder / "model.tflite.files"
    file.write_bytes(b"weights")
    files.mkdir()
    said = {
        "format": "litert",
        "precision": precision,
        "sha256": hashlib.sha256(b"weights").hexdigest(),
        "sentences": ["Good."],
        "scores": exam and {"of": 90},
    }
    port = {"inputs": [["input_ids", "int32", [1, 4]]], "outputs": outputs}
    file.with_name("model.tflite.json").write_text(json.dumps(said | {"ports": {"length_4": port}}))
    (files / "golden.json").write_text(json.dumps(golden))
    if exam:
        (files / "exam.json").write_text(json.dumps(exam))
    return file


def classifier(folder: Path, precision: str) -> Path:
    """A classifier of two classes that gets all examples right."""
    row = {"signature": "length_4", "inputs": {"input_ids": [1, 2, 3, 4]}}
    golden = [row | {"outputs": {"logits": logits.tolist()}} for logits in GOLDEN]
    rows = [row | {"label": int(logits.argmax()), "logits": logits.tolist()} for logits in EXAM]
    exam = {"task": "sst2", "split": "dev", "of": 90, "kind": "classification", "metrics": ["accuracy"], "scale": 1.0}
    return written(folder, precision, golden, exam | {"rows": rows}, [["logits", "float32", [1, 2]]])


def computed(folder: Path, *groups: np.ndarray) -> Path:
    given = folder / "given"
    given.mkdir(exist_ok=True)
    for number, outputs in enumerate(np.concatenate(groups).astype("<f4")):
        (given / f"{number:05}").write_bytes(outputs.tobytes())
    return given


@pytest.mark.parametrize("float16", [False, True])
@pytest.mark.parametrize("precision", LIMITS)
def test_judge_rejects_outputs_of_other_inputs(tmp_path: Path, precision: str, float16: bool) -> None:
    """Zeros, the same outputs for every row, those of other rows, and half of the outputs."""
    file = classifier(tmp_path, precision)
    for broken in (0 * GOLDEN, 0 * GOLDEN + GOLDEN.mean(0), GOLDEN[::-1], GOLDEN * [1, 0]):
        found = judge(file, computed(tmp_path, broken, EXAM), ROWS + EXAMPLES, float16=float16)
        assert not found["right"] and mentions(found["wrong"][0], "logits"), broken
    assert not judge(file, computed(tmp_path, np.full_like(GOLDEN, np.nan), EXAM), ROWS + EXAMPLES)["right"]


@pytest.mark.parametrize("precision", LIMITS)
def test_judge_accepts_rounding(tmp_path: Path, precision: str) -> None:
    """A millionth for float32, and for int8 the steps measured in docs/phone.md."""
    file, noise = classifier(tmp_path, precision), np.random.default_rng(1).uniform(-1, 1, GOLDEN.shape)
    share = {"int8-dynamic": 0.05, "int8-static": 0.4, "int4-dynamic": 0.05}.get(precision, 4e-6)
    found = judge(file, computed(tmp_path, GOLDEN + noise * share * np.abs(GOLDEN).max(), EXAM), ROWS + EXAMPLES)
    assert found["right"] and not found["wrong"], found


@pytest.mark.parametrize(
    ("precision", "outputs", "right"),
    [("fp32", GOLDEN + 0.005 * np.abs(GOLDEN).max(), False), ("int8-static", GOLDEN * 1.3, True)],
)
def test_float16_has_the_wider_of_both_limits(tmp_path: Path, precision: str, outputs: np.ndarray, right: bool) -> None:
    file, given = classifier(tmp_path, precision), computed(tmp_path, outputs, EXAM)
    assert judge(file, given, float16=True)["right"] and judge(file, given)["right"] == right


@pytest.mark.parametrize(("fallen", "code"), [(3, 0), (8, 1), (50, 1)])
def test_judge_rejects_a_lower_score(tmp_path: Path, capsys: pytest.CaptureFixture, fallen: int, code: int) -> None:
    """On 50 examples int8-static may lose 5 points and two examples."""
    file, exam = classifier(tmp_path, "int8-static"), EXAM.copy()
    exam[:fallen] = exam[:fallen, ::-1]
    assert main(["phone", "pack", str(file), str(tmp_path / "packed")]) == 0
    given = computed(tmp_path, GOLDEN, exam)
    assert main(["phone", "judge", str(file), str(tmp_path / "packed"), str(given)]) == code
    out = capsys.readouterr().out
    assert not code or mentions(out, "accuracy", f"{2 * fallen:.2f}", " 9 ", " 50 ")


def test_exam_json_counts_where_a_file_has_it(tmp_path: Path) -> None:
    file = classifier(tmp_path, "fp32")
    exam = read_companions(file).exam
    assert exam is not None and len(exam["rows"]) == EXAMPLES
    (tmp_path / "model.tflite.files" / "exam.json").unlink()
    assert read_companions(file).exam is None


BEAM, LENGTH = 3, 5
STARTS = RANDOM.normal(0, 1, LENGTH).astype(np.float32)
ENDS = RANDOM.normal(0, 1, (BEAM, LENGTH)).astype(np.float32)


def answering(
    folder: Path, ends: object, start_logits: np.ndarray = STARTS, last: int = 2, precision: str = "fp32"
) -> Path:
    """A file with a joint head that looks for ends at the starts 4, 0 and `last`."""
    outputs = {"start_logits": start_logits.tolist(), "starts": [4, 0, last], "end_logits": ends, "null_logit": [0.5]}
    row = {"signature": "length_4", "inputs": {"input_ids": [1, 2, 3, 4]}, "outputs": outputs}
    shapes = {"start_logits": [LENGTH], "starts": [BEAM], "end_logits": [BEAM, LENGTH], "null_logit": [1]}
    ports = [[name, "int32" if name == "starts" else "float32", [1, *shape]] for name, shape in shapes.items()]
    return written(folder, precision, [row], None, ports)


def answered(folder: Path, starts: list[int], ends: np.ndarray, start_logits: np.ndarray = STARTS) -> Path:
    given = folder / "given"
    given.mkdir(exist_ok=True)
    arrays = (start_logits, np.array(starts, np.int32), ends, np.array([0.5], np.float32))
    (given / "00000").write_bytes(b"".join(array.tobytes() for array in arrays))
    return given


def test_a_joint_head_may_reorder_its_starts(tmp_path: Path) -> None:
    file = answering(tmp_path, ENDS.tolist())
    assert judge(file, answered(tmp_path, [4, 0, 2], ENDS))["right"]
    assert judge(file, answered(tmp_path, [0, 4, 2], ENDS[[1, 0, 2]]))["right"]
    assert not judge(file, answered(tmp_path, [0, 4, 2], ENDS))["right"]
    assert not judge(file, answered(tmp_path, [1, 1, 1], ENDS))["right"]
    assert not judge(file, answered(tmp_path, [0, 0, 0], 0 * ENDS, 0 * STARTS))["right"]


@pytest.mark.parametrize("precision", ["fp32", "int8-dynamic", "int8-static"])
def test_excluded_positions_do_not_hide_errors(tmp_path: Path, precision: str) -> None:
    """Their logits are a thousand lower, so that noise on the others would be a small share."""
    far = np.array([0, 0, -1000, -1000, 0], np.float32)
    file, draw = answering(tmp_path, (ENDS + far).tolist(), STARTS + far, 1, precision), np.random.default_rng(3)
    assert judge(file, answered(tmp_path, [4, 0, 1], ENDS + far, STARTS + far))["right"]
    noisy = ENDS + far + draw.normal(0, 5, ENDS.shape).astype(np.float32)
    found = judge(file, answered(tmp_path, [4, 0, 1], noisy, STARTS + far))
    assert not found["right"] and "end_logits" in found["wrong"][0]
    assert not judge(file, answered(tmp_path, [4, 0, 1], ENDS + far, (10 * STARTS[::-1]) + far))["right"]
    allowed = judge(file, answered(tmp_path, [4, 0, 1], ENDS + far, STARTS))  # where none may be
    assert not allowed["right"] and allowed["golden"]["start_logits"]["largest"] < 10


def test_large_outputs_are_compared_at_the_likeliest_values(tmp_path: Path) -> None:
    """golden.json holds only these."""
    best = np.argsort(-ENDS.reshape(-1))[:2]
    kept = {"shape": [BEAM, LENGTH], "likeliest": best.tolist(), "values": ENDS.reshape(-1)[best].tolist()}
    file = answering(tmp_path, kept)
    assert judge(file, answered(tmp_path, [4, 0, 2], ENDS))["right"]
    assert not judge(file, answered(tmp_path, [4, 0, 2], 0 * ENDS))["right"]
    found = judge(file, answered(tmp_path, [0, 4, 2], ENDS[[1, 0, 2]]))
    assert found["right"] and "end_logits" not in found["golden"]
