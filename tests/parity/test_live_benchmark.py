"""`bertzoo benchmark` in LiteRT and ONNX Runtime: files, lengths, precisions, parts; no time is asserted."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparing import needs
from messages import mentions

needs("litert_converter", "ai_edge_litert", "litert_quantizer", "torch", "onnx", "onnxscript", "onnxruntime")
from zoo import CASES, pretrained

from bertzoo.benchmarking import benchmark, interleave
from bertzoo.benchmarking.benchmark import COMPONENTS, write_timed
from bertzoo.benchmarking.worker import LoadRequest, random_row
from bertzoo.cli.main import main
from bertzoo.export.formats import targets
from bertzoo.export.graph.reference import GraphRunner, training_graph
from bertzoo.heads import SequenceClassification
from bertzoo.models import Bert
from bertzoo.runs import load_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's directory."""
    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    load_model.write_model(pretrained(*CASES["mobilebert"], deviation=0.1), folder)
    return folder


@pytest.fixture(scope="module")
def file(model: Path) -> Path:
    made = model.with_suffix(".tflite")
    assert main(["convert", str(model), str(made), "--to=litert", "--lengths=8,16"]) == 0
    return made


def measured(capsys: pytest.CaptureFixture, *words: object) -> Any:
    capsys.readouterr()
    assert main(["benchmark", *map(str, words), "--runs=4", "--rounds=2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_runtimes_precisions_lengths_and_threads(model: Path, capsys):
    options = ["--backends=litert,onnx", "--lengths=8,16", "--precision=fp32,int8-static", "--threads=2"]
    found = measured(capsys, model, *options)["rows"]
    settings = [(each["backend"], each["precision"], each["threads"], each["length"]) for each in found]
    assert settings == [
        (backend, precision, threads, length)
        for backend, precision in (("litert", "fp32"), ("litert", "int8-static"), ("onnx", "fp32"))
        for threads in (2,)
        for length in (8, 16)
    ]
    by = dict(zip(settings, found, strict=True))
    sizes = {key[:2]: each["file_bytes"] for key, each in by.items()}
    assert len(set(sizes.values())) == 3
    for (_, precision, *_), each in by.items():
        assert each["peak_bytes"] > 0 and each["median_ms"] > 0 and each["version"]
        assert (each["speed"] == 1.0) == (precision == "fp32")
    whole = by["onnx", "fp32", 2, 16]
    assert by["litert", "fp32", 2, 8]["flops"] < by["litert", "fp32", 2, 16]["flops"] < whole["flops"]


def test_every_runtime_runs_the_model_that_is_measured(model: Path, tmp_path):
    """On the same row."""
    found = benchmark.read_model(str(model)).pretrained
    assert found is not None
    plain = training_graph(found)
    row = random_row(dict.fromkeys(plain.inputs, (1, 8)), 61)
    expected = GraphRunner(plain)({name: array.astype(np.int32) for name, array in row.items()})["logits"][0]
    assert len(expected) == 3 and np.abs(expected).max() > 1e-3
    for name in ("litert", "onnx"):  # ExecuTorch is in another Python
        target, file = targets(Path(sys.executable))[name], tmp_path / name
        write_timed(target, found, file, [8], "fp32")
        with interleave.start_workers([(name, LoadRequest(name, str(file), 1, 61, plain.inputs))]) as (worker,):
            np.testing.assert_allclose(worker.outputs(8)["logits"], expected, atol=1e-5)


def test_files(file: Path, model: Path, tmp_path, capsys):
    (row,) = measured(capsys, file)["rows"]
    assert (row["backend"], row["length"], row["file_bytes"]) == ("litert", 16, file.stat().st_size)
    both = measured(capsys, file, model, "--lengths=8", "--backends=litert")
    # The JSON beside the file has the model's counts.
    for column in ("precision", "head", "parameters", "flops"):
        assert both["rows"][0][column] == both["rows"][1][column] is not None, column
    assert row["flops"] > both["rows"][0]["flops"]
    assert [each["length"] for each in both["rows"]] == [8, 8] and both["speed_of"] == str(file)
    assert main(["benchmark", str(file), "--lengths=9"]) == 2
    assert mentions(capsys.readouterr().err, "--lengths=9", file, "8, 16")
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"no model")
    assert main(["benchmark", str(broken)]) == 1
    assert mentions(capsys.readouterr().err, broken, "litert", "ValueError")


def test_memory_excludes_the_runtimes_imports(file: Path, model: Path, tmp_path, capsys):
    """Files without a length run at the model's number of positions."""
    assert main(["convert", str(model), str(tmp_path / "small.onnx"), "--to=onnx"]) == 0
    rows = measured(capsys, tmp_path / "small.onnx", file)["rows"]
    assert [each["length"] for each in rows] == [CASES["mobilebert"][0].max_positions, 16]
    for each in rows:
        assert 0 < each["peak_bytes"] < 60e6, each["model"]


def test_a_file_s_memory_is_the_same_to_both_verbs(tmp_path, capsys):
    """As rows of both touch as much of a table, here of 41 MB."""
    wide = Bert(vocab_size=80_000, hidden_size=128, max_positions=128, layers=1, heads=2, feed_forward_size=16)
    folder, made = tmp_path / "wide", tmp_path / "wide.tflite"
    folder.mkdir()
    load_model.write_model(pretrained(wide, SequenceClassification()), folder)
    assert main(["convert", str(folder), str(made), "--to=litert"]) == 0
    said = json.loads(made.with_name(f"{made.name}.json").read_text())["memory"]
    (row,) = measured(capsys, made)["rows"]
    assert row["peak_bytes"] == pytest.approx(said, rel=0.1)


def test_the_operations_of_parts(model: Path, file: Path, capsys):
    """A model has operations by part; a file has no graph."""
    (profile,) = measured(capsys, model, file, "--lengths=8", "--backends=litert", "--profile")["profiles"]
    assert (profile["model"], profile["length"]) == (str(model), 8)
    assert set(profile["flops"]) == set(COMPONENTS) and sum(profile["flops"].values()) == pytest.approx(1)
