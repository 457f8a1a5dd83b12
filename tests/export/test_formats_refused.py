"""Missing packages, errors of the PyTorch formats, and no files left after a failure; needs no torch."""

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
from bertzoo.export.litert import write
from bertzoo.export.pytorch import executorch, onnx_file
from bertzoo.runs import load_model

SUFFIXES = {"onnx": ".onnx", "executorch": ".pte"}
TORCH = ("torch", "onnx", "onnxscript", "onnxruntime")
PACKAGES = {  # (extra, packages) by format
    "litert": ("litert", write.PACKAGES),
    "mediapipe": ("mediapipe", ["mediapipe"]),
    "onnx": ("onnx", TORCH),
    "onnx-text": ("onnx", [*TORCH, "onnxruntime_extensions"]),
}


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


NEEDED = [(to, extra, package) for to, (extra, packages) in PACKAGES.items() for package in packages]


@pytest.mark.parametrize(("to", "extra", "package"), quick(NEEDED, NEEDED[0], NEEDED[-1]))
def test_a_missing_package_is_named(to: str, extra: str, package: str, sources: dict, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else name)
    message = (f"--to={to} ", f" {package},", f"`pip install -c constraints.txt -e '.[{extra}]'`")
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
def test_wrong_precisions_and_suffixes_are_rejected(to: str, sources: dict, tmp_path, capsys):
    file, message = tmp_path / f"model{SUFFIXES[to]}", ("--precision=fp16", "--to=litert", f"--to={to} ", "fp32")
    failed(capsys, 2, message, sources["mobilebert"], file, f"--to={to}", "--precision=fp16")
    failed(capsys, 2, ("end", SUFFIXES[to]), sources["mobilebert"], tmp_path / "model.bin", f"--to={to}")
    assert not list(tmp_path.iterdir())


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
