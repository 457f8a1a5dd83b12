"""Exports to ONNX, run in onnxruntime: every part at two lengths of one file."""

import json
from pathlib import Path

import pytest
from comparing import needs

needs("torch", "onnx", "onnxscript", "onnxruntime")
import exported
import onnx
from onnx import numpy_helper
from zoo import CASES, pretrained

from bertzoo.cli.main import main
from bertzoo.export import runtimes
from bertzoo.export.check import verify
from bertzoo.export.pytorch import torch_files
from bertzoo.runs import any_model


@pytest.mark.parametrize("name", CASES)
def test_every_model_and_head_at_two_lengths(name: str, tmp_path: Path) -> None:
    source, plain = exported.both(name)
    (example, *_) = verify.sample_rows(plain, None, 9)
    content, operators = torch_files.onnx(source, example, "mean", (4, 16))
    (tmp_path / "model.onnx").write_bytes(content)
    exported.same(runtimes.Onnx(tmp_path / "model.onnx"), plain, (8, 11))
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == list(plain.inputs)
    sizes = {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert all(size == ([1, 1] if name == "masked_positions" else [1, "length"]) for name, size in sizes.items())
    assert (
        operators["Softmax"] >= 1 and operators.get("Erf", 0) == operators.get("Pow", 0) == 0
    )  # gelu is one, and norms


@pytest.mark.parametrize("name", ["schubert", "distilbert", "bert-one-segment", "distilbert-joint-span"])
def test_the_verb_runs_a_file_by_the_inputs_that_it_has(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    any_model.write_model(pretrained(*CASES[name], deviation=0.1), tmp_path / "model")
    words = [str(tmp_path / "model"), str(tmp_path / "model.onnx"), "--to=onnx", "--lengths=8"]
    assert main(["convert", *words]) == 0
    said = json.loads((tmp_path / "model.onnx.json").read_text())
    assert ("token_type_ids" in said["inputs"]) == (name in ("schubert", "distilbert-joint-span"))
    assert said["memory"] > 0
    # The packed row, as onnxruntime_perf_test reads it, is one of the file.
    assert main(["phone", "pack", words[1], str(tmp_path / "packed")]) == 0
    pairs = [
        (proto.name, numpy_helper.to_array(proto))
        for path in sorted((tmp_path / "packed/timed/length_8").glob("*.pb"))
        if (proto := onnx.TensorProto.FromString(path.read_bytes()))
    ]
    assert [name for name, _ in pairs] == list(said["inputs"])
    assert runtimes.Onnx(tmp_path / "model.onnx")(dict(pairs))
