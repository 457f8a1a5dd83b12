"""`bertzoo benchmark` in LiteRT and PyTorch: files, directories, lengths, precisions, profiles; no time is asserted."""

import json
import os
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from comparing import needs
from messages import mentions

needs("litert_converter", "ai_edge_litert", "litert_quantizer", "torch", "onnx", "onnxscript", "onnxruntime")
from zoo import CASES, pretrained

from bertzoo.benchmarking import ablation, backends, interleave, models
from bertzoo.benchmarking import profile as shares
from bertzoo.benchmarking.worker import Load
from bertzoo.cli.main import main
from bertzoo.export.failure import ExportFailed
from bertzoo.export.litert import litert, tables
from bertzoo.models import Bert
from bertzoo.models.tasks import SequenceClassification
from bertzoo.runs import any_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's directory."""
    folder = tmp_path_factory.mktemp("models") / "small"
    folder.mkdir()
    any_model.write_model(pretrained(*CASES["mobilebert"], deviation=0.1), folder)
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


def test_runtimes_precisions_lengths_and_threads(model: Path, capsys: pytest.CaptureFixture) -> None:
    options = ["--backends=litert,torch", "--lengths=8,16", "--precision=fp32,int8-static", "--threads=2"]
    found = measured(capsys, model, *options)["rows"]
    settings = [(each["backend"], each["precision"], each["threads"], each["length"]) for each in found]
    assert settings == [
        (backend, precision, threads, length)
        for backend, precision in (("litert", "fp32"), ("litert", "int8-static"), ("torch", "fp32"))
        for threads in (2,)
        for length in (8, 16)
    ]
    by = dict(zip(settings, found, strict=True))
    sizes = {key[:2]: each["file_bytes"] for key, each in by.items()}
    assert len(set(sizes.values())) == 3
    for (_, precision, *_), each in by.items():
        assert each["peak_bytes"] > 0 and each["median_ms"] > 0 and each["version"]
        assert (each["speed"] == 1.0) == (precision == "fp32")
    whole = by["torch", "fp32", 2, 16]
    assert by["litert", "fp32", 2, 8]["flops"] < by["litert", "fp32", 2, 16]["flops"] < whole["flops"]


def test_every_runtime_runs_the_model_that_is_measured(model: Path, tmp_path: Path) -> None:
    """On the same row."""
    found = models.read(str(model), [], ()).pretrained
    outputs = {}
    for name, backend in backends.BACKENDS.items():
        if name == "executorch":
            continue  # of another Python
        written = backend.write(found, tmp_path / name, backends.Wanted([8], "fp32", Path(sys.executable)))
        with interleave.started([(name, Load(name, str(written.path), 1, 61))]) as (worker,):
            outputs[name] = worker.outputs(8)["logits"]
    assert len(outputs["jax"]) == 3 and max(map(abs, outputs["jax"])) > 1e-3
    for found in outputs.values():
        np.testing.assert_allclose(found, outputs["jax"], atol=1e-5)


def test_files(file: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (row,) = measured(capsys, file)["rows"]
    assert (row["backend"], row["length"], row["file_bytes"]) == ("litert", 16, file.stat().st_size)
    both = measured(capsys, file, model, "--lengths=8", "--backends=litert")
    # What is said beside the file is what is counted on the model.
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


def test_memory_is_the_model_s_and_not_what_its_runtime_imports(
    file: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Of files without a length of their own, at that of the model's positions."""
    files = [tmp_path / name for name in ("script.pt", "export.pt2", "small.onnx")]
    for to, made in zip(("torchscript", "torch-export", "onnx"), files, strict=True):
        assert main(["convert", str(model), str(made), f"--to={to}"]) == 0
    rows = measured(capsys, *files, file)["rows"]
    assert [each["length"] for each in rows] == [CASES["mobilebert"][0].max_positions] * 3 + [16]
    for each in rows:
        assert 0 < each["peak_bytes"] < 60e6, each["model"]


def test_a_file_s_memory_is_the_same_to_both_verbs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """As rows of both touch as much of a table, here of 41 MB."""
    wide = Bert(vocab_size=80_000, hidden_size=128, max_positions=128, layers=1, heads=2, feed_forward_size=16)
    folder, made = tmp_path / "wide", tmp_path / "wide.tflite"
    folder.mkdir()
    any_model.write_model(pretrained(wide, SequenceClassification()), folder)
    assert main(["convert", str(folder), str(made), "--to=litert"]) == 0
    said = json.loads(made.with_suffix(".json").read_text())["memory"]
    (row,) = measured(capsys, made)["rows"]
    assert row["peak_bytes"] == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize("precision", ["fp32", "int8-static"])
def test_a_profile_by_ablation(
    precision: str, model: Path, file: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model; a file beside it has no graph that could lack a part."""
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    options = ["--lengths=8", "--backends=litert", f"--precision={precision}", "--profile"]
    found = measured(capsys, model, file, *options)
    (profile,) = found["profiles"]
    assert len(found["rows"]) == 2 and profile["source"].startswith(
        "ablation: a run's time less that of the same graph without the part"
    )
    assert list(profile["flops"]) == list(profile["latency"]) == list(profile["quartiles"]) == list(ablation.PARTS)
    assert sum(profile["flops"].values()) == pytest.approx(1)
    for part, (low, high) in profile["quartiles"].items():
        assert low <= profile["latency"][part] <= high <= 1


def test_what_was_measured_is_said_where_a_profile_fails(
    model: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ExportFailed("no graph")

    monkeypatch.setattr("bertzoo.benchmarking.profile.shares", fails)
    assert main(["benchmark", str(model), "--lengths=8", "--profile", "--runs=2", "--rounds=1"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[1].startswith(f"{model}  litert   fp32") and said.err.endswith("no graph\n")


FAKE = """#!/usr/bin/env python3
import sys
assert "--num_threads=1" in sys.argv and "--signature_to_run_for=length_8" in sys.argv
assert "--enable_op_profiling=true" in sys.argv and any(word.startswith("--graph=/") for word in sys.argv)
print(open(__file__ + ".txt").read())
"""
HEAD = "\t[node type]\t[first]\t[avg ms]\t[%]\t[cdf%]\t[mem KB]\t[times called]\t[Name]\n"


@pytest.mark.parametrize("words", [["convert", "--to=litert"], ["benchmark", "--precision=int8-static"]])
def test_nothing_is_said_of_xnnpack(words: list[str], model: Path, tmp_path: Path) -> None:
    """In a process of its own, as LiteRT says it once."""
    verb, *options = words
    named = [str(model), str(tmp_path / "made.tflite")] if verb == "convert" else [str(model), "--runs=2", "--rounds=1"]
    command = [sys.executable, "-m", "bertzoo", verb, *named, "--lengths=8", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0 and "XNNPACK" not in done.stderr, done.stderr


def test_all_else_is_heard(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*_: object, **__: object) -> None:
        os.write(2, litert.ANNOUNCED + b"\nERROR: no thread\n")
        raise ValueError

    monkeypatch.setattr("ai_edge_litert.interpreter.Interpreter", says)
    litert.announce_unheard.__wrapped__()
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "ERROR: no thread\nlater\n"


def test_a_profile_by_benchmark_model(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profile is the tool's, stood in for; what it does not tell of this graph is measured by ablation."""
    graph = backends.rewritten(models.read(str(model), [], ()).pretrained)
    dense = ablation.of_weights(graph, tables.dense_weights(litert.convert(graph, [8])))

    def says(count: int) -> None:
        rows = "".join(f"\tFULLY_CONNECTED\t1\t{index + 1}\t1%\t1%\t0\t1\t[x]\n" for index in range(count))
        text = f"Operator-wise Profiling Info for Regular Benchmark Runs:\n== Run Order ==\n{HEAD}{rows}\n"
        (tmp_path / f"{shares.BINARY}.txt").write_text(text)

    tool = tmp_path / shares.BINARY
    tool.write_text(FAKE)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    says(len(dense))
    (profile,) = measured(capsys, model, "--lengths=8", "--profile")["profiles"]
    assert profile["source"] == "benchmark_model --enable_op_profiling" and profile["quartiles"] == {}
    total = len(dense) * (len(dense) + 1) / 2
    for part in ablation.PARTS:
        time = sum(index + 1 for index, each in enumerate(dense) if each == part)
        assert profile["latency"][part] == pytest.approx(time / total)
    says(3)
    assert main(["benchmark", str(model), "--lengths=8", "--profile", "--runs=2", "--rounds=1"]) == 0
    said = capsys.readouterr()
    assert mentions(said.err, "3 dense", len(dense), "ablation") and mentions(said.out, "ablation")


@pytest.mark.parametrize("name", ["bert", "mobilebert", "convbert-span", "bottleneck-grouped"])
def test_every_dense_operator_is_known_by_its_weights(name: str) -> None:
    """Wherever the converter has put it: by part as many operations as the graph's products with a parameter have."""
    graph = backends.rewritten(models.classifier(pretrained(*CASES[name])))
    weights = tables.dense_weights(litert.convert(graph, (8, 11)))
    found = ablation.of_weights(graph, weights)
    assert None not in found
    kernels = Counter(ablation._part(path) for path, leaf in flat(graph) if leaf.ndim == 2 and ".kernel" in path)
    assert Counter(found) == kernels


def flat(graph: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(graph)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in found]
