"""Errors of the PyTorch formats before any conversion, and no files left after a failure; needs no torch."""

import importlib.util
import sys
from pathlib import Path

import pytest
from messages import mentions
from tiers import quick
from zoo import CASES, pretrained

from bertzoo.cli.main import main
from bertzoo.export import convert as exporting
from bertzoo.export import failure, options, runtimes
from bertzoo.export.pytorch import executorch, onnx_file
from bertzoo.runs import load_model

SUFFIXES = {"onnx": ".onnx", "executorch": ".pte"}
PACKAGES = {"onnx": ["torch", "onnx", "onnxscript", "onnxruntime"]}
PACKAGES["onnx-text"] = [*PACKAGES["onnx"], "onnxruntime_extensions"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The directories of a classifier and of a model with a joint head."""
    folders = {name: tmp_path_factory.mktemp("formats") for name in ("mobilebert", "convbert-joint-span")}
    for name, folder in folders.items():
        load_model.write_model(pretrained(*CASES[name]), folder)
    return folders


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(executorch, "check_python", lambda python: {})


def failed(capsys: pytest.CaptureFixture, code: int, message: tuple[object, ...], *words: object) -> None:
    assert main(["convert", *map(str, words)]) == code
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if "not measured" not in line]
    assert said.out == "" and len(lines) == 1 and mentions(lines[0], *message), said.err


NEEDED = [(to, package) for to, names in PACKAGES.items() for package in names]


@pytest.mark.parametrize(("to", "package"), quick(NEEDED, NEEDED[0], NEEDED[-1]))
def test_a_missing_torch_package_is_named(to: str, package: str, sources: dict, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else name)
    message = (f"--to={to} ", f" {package},", "`pip install -c constraints.txt -e '.[onnx]'`")
    failed(capsys, 2, message, sources["mobilebert"], tmp_path / f"model{options.SUFFIXES[to]}", f"--to={to}")
    assert not list(tmp_path.iterdir())


def test_a_python_without_executorch_is_rejected(sources: dict, tmp_path, capsys, monkeypatch):
    words = (sources["mobilebert"], tmp_path / "model.pte", "--to=executorch", "--lengths=8")
    for python, message in {
        "nowhere/python": ("--python=nowhere/python", "No such file"),
        "false": ("--python=false", "executorch", "`make .venv-executorch/stamp`"),
    }.items():
        failed(capsys, 2, message, *words, f"--python={python}")
    monkeypatch.setattr(executorch, "PACKAGES", ("json", "no_such_package"))
    failed(capsys, 2, ("--to=executorch", "no_such_package", sys.executable), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("to", quick(SUFFIXES, "onnx"))
def test_wrong_options_and_destinations_are_rejected(to: str, sources: dict, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "write_file", lambda *_: pytest.fail("it was not refused"))
    file, source = tmp_path / f"model{SUFFIXES[to]}", sources["mobilebert"]
    for option, message in {
        "--lengths=17": ("--lengths=17 ", 16),
        "--lengths=3": ("--lengths=3 ", 4),
        "--precision=fp16": ("--precision=fp16", "--to=litert", f"--to={to} ", "fp32"),
        "--precision=int4-dynamic": ("--precision=int4-dynamic", "--to=litert", f"--to={to} ", "fp32"),
        "--precision=int8": ("--precision=int8 ", "int8-dynamic?"),
        "--precision=int4": ("--precision=int4 ", "int4-dynamic?"),
        "--pooling=first": ("sequence_classification", "--head=none"),
    }.items():
        failed(capsys, 2, message, source, file, f"--to={to}", option)
    failed(capsys, 2, ("end", SUFFIXES[to]), source, tmp_path / "model.bin", f"--to={to}")
    nowhere = f"/proc/nowhere/model{SUFFIXES[to]}"
    failed(capsys, 2, (f"{nowhere} ",), source, nowhere, f"--to={to}")
    assert not list(tmp_path.iterdir())
    (tmp_path / f"{file.name}.json").write_text("mine")
    failed(capsys, 2, (f"{file.name}.json", "exists"), source, file, f"--to={to}")
    assert [path.name for path in tmp_path.iterdir()] == [f"{file.name}.json"]


@pytest.mark.usefixtures("installed")
def test_executorch_takes_one_length(sources: dict, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "write_file", lambda *_: pytest.fail("it was not refused"))
    words = (sources["mobilebert"], tmp_path / "model.pte", "--to=executorch", "--lengths=8,16")
    failed(capsys, 2, ("--lengths: ", "ExecuTorch", "one length", " 2"), *words)
    words = (sources["mobilebert"], tmp_path / "model.onnx", "--to=onnx", "--python=python3")
    failed(capsys, 2, ("--python ", "--to=executorch", "--to=onnx"), *words)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [("mobilebert", ("WordPiece", "none", "--to=onnx,")), ("convbert-joint-span", ("joint_span", "--to=onnx,"))],
)
def test_a_model_whose_text_is_not_enough_is_rejected(name, message, sources, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "write_file", lambda *_: pytest.fail("it was not refused"))
    failed(capsys, 2, ("--to=onnx-text", *message), sources[name], tmp_path / "model.onnx", "--to=onnx-text")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("to", SUFFIXES)
def test_a_failing_converter_leaves_no_files(to: str, sources: dict, tmp_path, capsys, monkeypatch):
    def fails(*_: object) -> None:
        with failure.tool_errors("the converter"):
            print("a page of reasons")
            raise KeyError("no\nsuch operator")

    monkeypatch.setattr(onnx_file, "onnx", fails)
    monkeypatch.setattr(executorch, "write_pte", fails)
    words = (sources["mobilebert"], tmp_path / "new" / f"model{SUFFIXES[to]}", f"--to={to}", "--lengths=8")
    failed(capsys, 1, ("the converter", r"'no\nsuch operator'"), *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ('print(\'{"error": "no such\\\\noperator"}\')', ("ExecuTorch", "no such operator")),
        ("import os; os.abort()", ("ExecuTorch", "process")),
    ],
)
def test_a_failing_process_leaves_no_files(program, message, sources, tmp_path, capsys, monkeypatch):
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(runtimes, "EXECUTORCH", tmp_path / "program.py")
    words = (sources["mobilebert"], tmp_path / "new" / "model.pte", "--to=executorch", "--lengths=8")
    failed(capsys, 1, message, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


@pytest.mark.parametrize(("to", "nearest"), [("tflit", "tflite"), ("tf", "tflite"), ("hugging", "huggingface")])
def test_an_unknown_format_names_the_nearest(to: str, nearest: str, capsys):
    failed(capsys, 2, (f"--to={to} ", f" {nearest}?"), "runs/x", "model.tflite", f"--to={to}")
