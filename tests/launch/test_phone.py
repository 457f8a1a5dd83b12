"""launch/phone.sh: time a file on a phone, and compare and score the phone's outputs here."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from clouds import HERE, LAUNCH, Cloud, page_commands
from messages import mentions
from phone_files import described

ROOT = {"PYTHONPATH": str(LAUNCH.parent)}


def program(cloud: Cloud, name: str) -> str:
    """The option that names a stand-in of a runtime's program."""
    path = cloud.folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{HERE / "fake_phone.py"}" {name} "$@"\n')
    return f"--{name}={path}"


@pytest.fixture
def tool(cloud: Cloud) -> str:
    return program(cloud, "benchmark_model")


@pytest.mark.slow
def test_it_is_timed_and_judged(cloud: Cloud, file: Path, tool: str):
    out = cloud.run("phone.sh", str(file), tool, "--delegates=xnnpack,cpu", "--threads=1,4", "--runs=9", **ROOT)
    timed = [line.split() for line in out.splitlines() if " length_" in line and not line.startswith("+")]
    assert timed == [
        [delegate, threads, f"length_{length}", "2.01", "2.00", "1.00", "7.25", operators, "my", "model.tflite"]
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


@pytest.mark.slow
def test_a_file_is_timed_beside_a_baseline(cloud: Cloud, file: Path, tool: str):
    base = shutil.copy(file, file.with_name("bert.tflite"))
    shutil.copy(described(file), described(base))
    shutil.copytree(file.with_name("my model.tflite.files"), file.with_name("bert.tflite.files"))
    out = cloud.run("phone.sh", str(file), tool, f"--baseline={base}", "--threads=1", "--rows=0", **ROOT)
    timed = [line.split() for line in out.splitlines() if " length_8" in line and not line.startswith("+")]
    assert [line[8:] for line in timed] == [["bert.tflite"], ["my", "model.tflite"]]
    assert [line[3:6] for line in timed] == [["2.01", "2.00", "1.00"]] * 2


@pytest.mark.slow
def test_wrong_outputs_of_a_phone_are_an_error(cloud: Cloud, file: Path, tool: str):
    cloud.set(error=0.5)  # of values up to 56: one hundredth
    out = cloud.run("phone.sh", str(file), tool, "--threads=1", "--rows=2", "--keep", code=1, **ROOT)
    assert mentions(out, "0.5", 56, "0.0001")
    assert mentions(out, "sst2", "dev", "2 of 9", "accuracy 100.00")
    assert (cloud.folder / "phone" / "bertzoo" / "0" / "given").exists()
    out = cloud.run("phone.sh", str(file), tool, "--threads=1", "--delegates=gpu", "--rows=0", **ROOT)
    assert mentions(out, "error 0.5") and "sst2" not in out  # a GPU computes in float16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "timed", "rows"),
    [
        ("fails", ("benchmark_model", "ERROR: Failed to apply GPU delegate."), "ERROR: Failed to apply"),
        ("unsupported", ("CPU", "WARN: GPU acceleration is unsupported on this"), None),
        ("not", ("CPU", "INFO: Though GPU delegate is explicitly applied, the"), None),
    ],
)
def test_a_missing_delegate_is_logged_and_the_others_run(cloud, file, tool, gpu, timed, rows):
    (cloud.folder / "gpu").write_text(gpu)
    out = cloud.run("phone.sh", str(file), tool, "--delegates=gpu,xnnpack", "--threads=2", code=1, **ROOT)
    for signature in ("length_8", "length_16"):
        (line,) = (line for line in out.splitlines() if f"gpu, 2 threads, {signature}" in line)
        assert mentions(line, *timed)
    computed = [line for line in out.splitlines() if "gpu: " in line]
    assert out.count("2 rows") == 1 and (mentions("\n".join(computed), rows) if rows else not computed)
    assert [line.split()[0] for line in out.splitlines() if "/640 " in line] == ["xnnpack"] * 2


@pytest.mark.slow
def test_how_much_of_a_model_a_delegate_takes(cloud: Cloud, file: Path, tool: str):
    for gpu, operators in (("", "640/640"), ("partly", "108/640")):
        (cloud.folder / "gpu").write_text(gpu)
        out = cloud.run("phone.sh", str(file), tool, "--delegates=gpu", "--threads=2", "--rows=0", **ROOT)
        assert [line.split()[7] for line in out.splitlines() if line.startswith("gpu ")] == [operators] * 2
    out = cloud.run("phone.sh", str(file), tool, "--delegates=nnapi", "--threads=2", "--rows=0", code=1, **ROOT)
    assert mentions(out, "nnapi, 2 threads, length_8", "CPU", "NNAPI acceleration is unsupported")


@pytest.mark.slow
def test_a_phone_without_outputs_is_an_error(cloud: Cloud, file: Path, tool: str):
    cloud.set(broken=True)
    for delegate in ("xnnpack", "gpu"):
        out = cloud.run("phone.sh", str(file), tool, f"--delegates={delegate}", "--threads=1", code=1, **ROOT)
        assert mentions(out, "logits", " 56 ", "1 times", "cosine 0.000000")


def test_a_dry_run_touches_no_phone(cloud: Cloud, file: Path, tool: str):
    out = cloud.run("phone.sh", str(file), tool, "--dry-run", "--serial=emulator-5554")
    assert "+ adb -s emulator-5554 push" in out and "--use_xnnpack=true" in out and not cloud.calls()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{file}"], ("--benchmark_model=PATH",)),
        (["{tool}"], ("NAME.tflite",)),
        (["nowhere.tflite", "{tool}"], ("nowhere.tflite",)),
        (["{file}", "{file}", "{tool}"], ("my model.tflite ", "twice")),
        (["{file}", "{here}/model.pte", "{tool}"], ("model.pte", "--to=litert")),
        (["{file}", "--baseline={file}", "{tool}"], ("my model.tflite ", "twice")),
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
def test_mistakes(cloud: Cloud, file: Path, tool: str, words: list[str], says: tuple[str, ...]):
    out = cloud.run("phone.sh", *(word.format(file=file, tool=tool, here=file.parent) for word in words), code=2)
    assert mentions(out, *says)
    assert not cloud.calls("adb")


def test_no_phone(cloud: Cloud, file: Path, tool: str):
    (cloud.folder / "state").write_text("error: more than one device/emulator")
    assert mentions(cloud.run("phone.sh", str(file), tool, code=1), "device/emulator")
    assert not cloud.calls("adb", "shell")


def test_a_model_without_a_tokenizer_raises_before_any_push(cloud: Cloud, file: Path, tool: str):
    known = json.loads(described(file).read_text())
    described(file).write_text(json.dumps(known | {"sentences": "random ids"}))
    shutil.rmtree(file.parent / "my model.tflite.files")  # a conversion writes none of them
    out = cloud.run("phone.sh", str(file), tool, code=2, **ROOT)
    assert mentions(out, "tokenizer")
    assert "Traceback" not in out and not cloud.calls("adb", "push")


def test_the_guide_s_commands_exist(cloud: Cloud):
    """Run the launcher's commands of docs/phone.md as a dry run."""
    commands = page_commands("phone")
    assert {argv[0] for argv in commands} == {"pip", "bertzoo", "launch/phone.sh"}
    for name in ("sst2.tflite", "bert_base.tflite", "android_aarch64_benchmark_model"):
        (cloud.folder / name).write_text("")
    for argv in commands:
        if argv[0].startswith("launch/"):
            assert "+ adb push" in cloud.run("phone.sh", *argv[1:], "--dry-run")
