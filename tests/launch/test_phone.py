"""launch/phone.sh: time a file on a phone, and compare and score the phone's outputs here."""

import hashlib
import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from clouds import HERE, LAUNCH, Cloud
from messages import mentions
from tiers import quick

from bertzoo.cli import main as cli
from bertzoo.cli.main import main

NAMES = ("input_ids", "token_type_ids", "attention_mask")
ROOT = {"PYTHONPATH": str(LAUNCH.parent)}


def described(file: Path) -> Path:
    """The metadata JSON of a file."""
    return file.with_name(f"{file.name}.json")


def row(length: int, tokens: int, label: int | None = None) -> dict:
    """A golden row, or with a label a row of the task, with the outputs of the fake phone's model."""
    ids, mask = [7] * tokens + [0] * (length - tokens), [1] * tokens + [0] * (length - tokens)
    made = {"signature": f"length_{length}", "inputs": dict(zip(NAMES, (ids, [0] * length, mask), strict=True))}
    logits = [float(7 * tokens), float(tokens)]
    return made | ({"outputs": {"logits": logits}} if label is None else {"label": label, "logits": logits})


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
    said = {
        "format": "litert",
        "precision": "fp32",
        "sha256": hashlib.sha256(b"weights").hexdigest(),
        "sentences": ["Good."],
        "ports": ports,
        "scores": {"of": 9},
    }
    described(path).write_text(json.dumps(said))
    folder = tmp_path / "my model.tflite.files"
    folder.mkdir()
    (folder / "golden.json").write_text(json.dumps([row(8, 5), row(8, 8)]))
    rows = [row(8, 3, 0), row(16, 9, 0), row(16, 10, 1), row(8, 4, 0)]
    exam = {"task": "sst2", "split": "dev", "of": 9, "kind": "classification", "metrics": ["accuracy"], "scale": 1.0}
    (folder / "exam.json").write_text(json.dumps(exam | {"rows": rows}))
    return path


@pytest.fixture
def tool(cloud: Cloud) -> str:
    path = cloud.folder / "benchmark_model"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{HERE / "fake_phone.py"}" benchmark_model "$@"\n')
    return f"--benchmark_model={path}"


def test_it_is_timed_and_judged(cloud: Cloud, file: Path, tool: str) -> None:
    out = cloud.run("phone.sh", str(file), tool, "--delegates=xnnpack,cpu", "--threads=1,4", "--runs=9", **ROOT)
    timed = [line.split() for line in out.splitlines() if " length_" in line and not line.startswith("+")]
    assert timed == [
        [delegate, threads, f"length_{length}", "2.01", "2.00", "7.25", operators]
        for delegate, operators in (("xnnpack", "602/640"), ("cpu", "-"))
        for threads in "14"
        for length in (8, 16)
    ]
    golden = [line for line in out.splitlines() if "logits" in line and "cosine" in line]
    assert len(golden) == 2 and all(mentions(line, "error 0 ", 56, "cosine 1.000000", "2 rows") for line in golden)
    scored = [line for line in out.splitlines() if "sst2" in line]
    assert len(scored) == 2 and all(mentions(line, "dev", "4 of 9", "accuracy 75.00", "here 75.00") for line in scored)
    calls = cloud.calls("benchmark_model")
    assert sum("--num_runs=9" in call for call in calls) == 8 and sum("--num_threads=4" in call for call in calls) == 4
    computed = [call for call in calls if any(word.startswith("--output_filepath") for word in call)]
    assert len(computed) == 2 * 6 and sum("--use_xnnpack=false" in call for call in computed) == 6
    assert list((cloud.folder / "phone").iterdir()) == []  # it leaves nothing


def test_wrong_outputs_of_a_phone_are_an_error(cloud: Cloud, file: Path, tool: str) -> None:
    cloud.set(error=0.5)  # of values up to 56: one hundredth
    out = cloud.run("phone.sh", str(file), tool, "--threads=1", "--rows=2", "--keep", code=1, **ROOT)
    assert mentions(out, "0.5", 56, "0.0001")
    assert mentions(out, "sst2", "dev", "2 of 9", "accuracy 100.00")
    assert (cloud.folder / "phone" / "bertzoo" / "given").exists()
    out = cloud.run("phone.sh", str(file), tool, "--threads=1", "--delegates=gpu", "--rows=0", **ROOT)
    assert mentions(out, "error 0.5") and "sst2" not in out  # a GPU computes in float16


DELEGATES = [
    (
        "fails",
        ("benchmark_model", "ERROR: Failed to apply GPU delegate."),
        "ERROR: Failed to apply",
    ),
    ("unsupported", ("CPU", "WARN: GPU acceleration is unsupported on this"), None),
    ("not", ("CPU", "INFO: Though GPU delegate is explicitly applied, the"), None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "timed", "rows"), quick(DELEGATES, DELEGATES[0]))
def test_a_missing_delegate_is_logged_and_the_others_run(
    cloud: Cloud, file: Path, tool: str, gpu: str, timed: tuple[str, ...], rows: str | None
) -> None:
    (cloud.folder / "gpu").write_text(gpu)
    out = cloud.run("phone.sh", str(file), tool, "--delegates=gpu,xnnpack", "--threads=2", code=1, **ROOT)
    for signature in ("length_8", "length_16"):
        (line,) = (line for line in out.splitlines() if f"gpu, 2 threads, {signature}" in line)
        assert mentions(line, *timed)
    computed = [line for line in out.splitlines() if "gpu: " in line]
    assert out.count("2 rows") == 1 and (mentions("\n".join(computed), rows) if rows else not computed)
    assert [line.split()[0] for line in out.splitlines() if line.endswith("/640")] == ["xnnpack"] * 2


@pytest.mark.slow
def test_how_much_of_a_model_a_delegate_takes(cloud: Cloud, file: Path, tool: str) -> None:
    for gpu, operators in (("", "640/640"), ("partly", "108/640")):
        (cloud.folder / "gpu").write_text(gpu)
        out = cloud.run("phone.sh", str(file), tool, "--delegates=gpu", "--threads=2", "--rows=0", **ROOT)
        assert [line.split()[-1] for line in out.splitlines() if line.startswith("gpu ")] == [operators] * 2
    out = cloud.run("phone.sh", str(file), tool, "--delegates=nnapi", "--threads=2", "--rows=0", code=1, **ROOT)
    assert mentions(out, "nnapi, 2 threads, length_8", "CPU", "NNAPI acceleration is unsupported")


@pytest.mark.slow
def test_a_phone_without_outputs_is_an_error(cloud: Cloud, file: Path, tool: str) -> None:
    cloud.set(broken=True)
    for delegate in ("xnnpack", "gpu"):
        out = cloud.run("phone.sh", str(file), tool, f"--delegates={delegate}", "--threads=1", code=1, **ROOT)
        assert mentions(out, "logits", "by 56 ", "to 56 ", "cosine 0.0000")


def test_a_dry_run_touches_no_phone(cloud: Cloud, file: Path, tool: str) -> None:
    out = cloud.run("phone.sh", str(file), tool, "--dry-run", "--serial=emulator-5554")
    assert "+ adb -s emulator-5554 push" in out and "--use_xnnpack=true" in out and not cloud.calls()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{file}"], ("--benchmark_model=PATH",)),
        (["{tool}"], ("NAME.tflite",)),
        (["nowhere.tflite", "{tool}"], ("nowhere.tflite",)),
        (["{file}", "{file}", "{tool}"], ("my model.tflite and ", "one file")),
        (["{file}", "{tool}", "--delegates=npu"], ("npu", "cpu, xnnpack, gpu and nnapi")),
        (["{file}", "{tool}", "--threads=1,x"], ("--threads=x",)),
        (["{file}", "{tool}", "--threads=1,,4"], ("--threads= ", "whole number")),
        (["{file}", "{tool}", "--threads="], ("--threads= ", "1,4")),
        (["{file}", "{tool}", "--delegates="], ("--delegates= ", "cpu, xnnpack, gpu and nnapi")),
        (["{file}", "{tool}", "--delegates=", "--dry-run"], ("--delegates= ", "cpu, xnnpack, gpu and nnapi")),
        (["{file}", "{tool}", "--delegates=gpu,,cpu"], ("--delegates: ", "commas", "cpu, xnnpack, gpu and nnapi")),
        (["{file}", "{tool}", "--folder=/data/local/tmp/.."], ("--folder=/data/local/tmp/.. ", "in /data/local/tmp,")),
        (["{file}", "{tool}", "--folder=/sdcard"], ("--folder=/sdcard", "/data/local/tmp")),
        (["{file}", "{tool}", "--thread=1"], ("option --thread=1", "--help")),
    ],
)
def test_mistakes(cloud: Cloud, file: Path, tool: str, words: list[str], says: tuple[str, ...]) -> None:
    out = cloud.run("phone.sh", *(word.format(file=file, tool=tool) for word in words), code=2)
    assert mentions(out, *says)
    assert not cloud.calls("adb")


def test_no_phone(cloud: Cloud, file: Path, tool: str) -> None:
    (cloud.folder / "state").write_text("error: more than one device/emulator")
    assert mentions(cloud.run("phone.sh", str(file), tool, code=1), "device/emulator")
    assert not cloud.calls("adb", "shell")


def test_a_model_without_a_tokenizer_raises_before_any_push(cloud: Cloud, file: Path, tool: str) -> None:
    known = json.loads(described(file).read_text())
    described(file).write_text(json.dumps(known | {"sentences": "random ids"}))
    shutil.rmtree(file.parent / "my model.tflite.files")  # a conversion writes none of them
    out = cloud.run("phone.sh", str(file), tool, code=2, **ROOT)
    assert mentions(out, "tokenizer")
    assert "Traceback" not in out and not cloud.calls("adb", "push")


def said(capsys: pytest.CaptureFixture, *words: object) -> tuple[int, str]:
    code = main(["phone", *map(str, words)])
    return code, "".join(capsys.readouterr())


def test_the_verb(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
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
        (["judge", "{file}", "{here}", "x", "--limit=nan"], ("nan", "share")),
        (["judge", "{file}", "{here}", "x", "--limit=-1"], ("-1", "share")),
        (["judge", "{file}", "{here}"], ("OUTPUTS", "FOLDER")),
        (["judge", "{file}", "{here}", "x", "--rows=1"], ("--rows", "judge", "pack")),
        (["judge", "{file}", "{here}", "x"], ("{here}", "`bertzoo phone pack`")),
    ],
)
def test_mistakes_of_the_verb(
    file: Path, capsys: pytest.CaptureFixture, words: list[str], says: tuple[str, ...]
) -> None:
    words, says = ([word.format(file=file, here=file.parent) for word in each] for each in (words, says))
    code, out = said(capsys, *words)
    assert code == 2 and mentions(out, *says)


def test_missing_examples_print_an_error(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
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


@pytest.mark.parametrize("kind", ["token_classification", "span", "joint_span"])
def test_tags_and_questions_have_golden_rows_only(
    kind: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
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


def test_companions_that_are_not_of_the_file(file: Path, capsys: pytest.CaptureFixture) -> None:
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


def test_the_guide_s_commands_exist(cloud: Cloud, file: Path, tool: str) -> None:
    """Parse every bertzoo command of docs/phone.md, and run the launcher's as a dry run."""
    blocks = re.findall(r"```bash\n(.*?)```", (LAUNCH.parent / "docs/phone.md").read_text(), re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()]
    assert {argv[0] for argv in commands} == {"pip", "bertzoo", "launch/phone.sh"}
    (cloud.folder / "sst2.tflite").write_bytes(file.read_bytes())
    (cloud.folder / "android_aarch64_benchmark_model").write_text("")
    for argv in commands:
        if argv[0] == "bertzoo":
            verb, parser = importlib.import_module(f"bertzoo.cli.{argv[1]}"), cli.Parser()
            verb.arguments(parser)
            own, _ = cli.split(argv[2:], parser.flags(), verb)
            parser.parse_intermixed_args(own)
        elif argv[0].startswith("launch/"):
            assert "+ adb push" in cloud.run("phone.sh", *argv[1:], "--dry-run")
