"""Exports for ExecuTorch with XNNPACK, run in its runtime: one layer mostly, as the partitioner takes long."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from messages import mentioning, mentions

needs("torch", "executorch")
import exported
from zoo import CASES, pretrained

import bertzoo
from bertzoo.benchmarking import interleave
from bertzoo.benchmarking.benchmark import write_timed
from bertzoo.benchmarking.worker import LoadRequest, random_row
from bertzoo.cli.main import main
from bertzoo.export import formats, runtimes
from bertzoo.export.check import verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.reference import GraphRunner, training_graph
from bertzoo.export.pytorch import executorch
from bertzoo.heads import SentenceEmbedding
from bertzoo.runs import load_model

PYTHON = Path(sys.executable)


@pytest.mark.parametrize(
    "name", ["albert", "mobilebert", "squeezebert", "convbert-joint-span", "schubert", "modernbert"]
)
def test_models_and_heads(name: str, tmp_path: Path) -> None:
    (source, plain), file = exported.both(name), tmp_path / "model.pte"
    said = executorch.write_pte(PYTHON, source, verify.sample_rows(plain, None, 8)[0], file)
    assert said["delegated"] >= 0.5 * said["nodes"] and said["delegates"] > 0
    assert sum(said["not_delegated"].values()) == said["nodes"] - said["delegated"]
    exported.same(runtimes.ExecuTorch(PYTHON, file), plain, (8,))


@pytest.mark.parametrize("form", ["float32", "int8", "binary"])
def test_vectors_of_texts(form: str, tmp_path: Path) -> None:
    head = SentenceEmbedding(pooling="weighted_mean", size=16, output=form)  # pyright: ignore[reportArgumentType]
    source, file = pretrained(CASES["bert"][0], head), tmp_path / "model.pte"
    plain = training_graph(source)
    executorch.write_pte(PYTHON, source, verify.sample_rows(plain, None, 8)[0], file)
    exported.same(runtimes.ExecuTorch(PYTHON, file), plain, (8,))


@pytest.mark.parametrize("name", ["albert", "mobilebert"])
def test_int8(name: str, tmp_path: Path) -> None:
    """A large vocabulary has a byte per weight, and a second one if the masked head shares the table."""
    model, head = CASES[name]
    source = pretrained(dataclasses.replace(model, layers=1, vocab_size=8000, embedding_size=24), head)
    file = tmp_path / "model.pte"
    plain = training_graph(source)
    said = executorch.write_pte(PYTHON, source, verify.sample_rows(plain, None, 8)[0], file, "int8-dynamic")
    assert said["delegated"] >= 0.5 * said["nodes"]
    assert file.stat().st_size < 0.8 * 4 * source.parameter_count
    with runtimes.ExecuTorch(PYTHON, file) as run:
        measured = verify.verify_outputs(run, plain, None, (8,), "int8-dynamic")
    for output in measured["length_8"]["outputs"].values():
        assert output["cosine"] > 0.99 and output["max_error"] > 1e-5 * output["largest"]


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source, file = exported.classifier(tmp_path / "source"), tmp_path / "new" / "model.pte"
    assert exported.convert(source, file, "executorch", "--lengths=16", f"--python={PYTHON}") == 0
    out = capsys.readouterr().out
    said = json.loads((file.parent / "model.pte.json").read_text())
    assert said["lengths"] == {"shortest": 16, "longest": 16} and said["delegated"] < said["nodes"]
    assert mentions(out, "length_16: logits", 4, "XNNPACK", said["delegated"], said["nodes"], said["delegates"])
    read = load_model.read_model(source)
    module, params = read.module()
    row = verify.sample_rows(training_graph(read), read.tokenizer, 16)[1]
    with runtimes.ExecuTorch(PYTHON, file) as run:
        found = run(row)["logits"]
        with pytest.raises(ExportFailed, match=mentioning("ExecuTorch", "the row")):
            run({name: array[:, :9] for name, array in row.items()})
    np.testing.assert_allclose(found, module.apply({"params": params}, **row).logits, atol=1e-5)
    assert found.dtype == np.float32
    ours, theirs = (bertzoo.predict(path, [verify.TEXT[0][:20]])[0]["probabilities"] for path in (source, file))
    assert theirs == pytest.approx(ours, abs=1e-5)
    file.write_bytes(b"nothing")
    with pytest.raises(ExportFailed, match=mentioning("ExecuTorch", "the file")):
        runtimes.ExecuTorch(PYTHON, file)


def test_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """It writes a file for one length with the model's outputs, and times a given file."""
    (source, plain), file = exported.both("distilbert"), tmp_path / "model.pte"
    assert write_timed(formats.targets(PYTHON)["executorch"], source, file, [8], "fp32")["flops"]["length_8"] > 0
    load = LoadRequest("executorch", str(file), 1, 61)
    with interleave.start_workers([("executorch", load)], str(PYTHON)) as (worker,):
        outputs = np.array(worker.outputs(8)["logits"])
    row = random_row(dict.fromkeys(plain.inputs, (1, 8)), 61)
    expected = GraphRunner(plain)({name: array.astype(np.int32) for name, array in row.items()})["logits"].ravel()
    np.testing.assert_allclose(outputs, expected, atol=1e-5 * np.abs(expected).max())
    assert main(["benchmark", str(file), "--runs=2", "--rounds=1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["backend"], row["length"], row["file_bytes"]) == ("executorch", 8, file.stat().st_size)
    assert row["peak_bytes"] > 0
