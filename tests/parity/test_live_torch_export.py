"""Exports by PyTorch, run in their own runtimes: every part through torch.export and TorchScript; the verb."""

import json
import re
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from comparing import needs
from messages import mentioning, mentions

needs("torch", "onnx", "onnxscript", "onnxruntime")
import exported
import torch
from zoo import TORCH_CASES, pretrained

import bertzoo
from bertzoo.export import runtimes
from bertzoo.export.check import verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.pytorch import torch_files
from bertzoo.heads import JointSpanExtraction
from bertzoo.models import Bert
from bertzoo.runs import load_model

RUNTIMES = {"torch-export": runtimes.TorchExport, "torchscript": runtimes.TorchScript, "onnx": runtimes.Onnx}
SUFFIXES = {"torch-export": ".pt2", "torchscript": ".pt", "onnx": ".onnx"}


@pytest.mark.parametrize("name", [name for name in TORCH_CASES if name != "squeezebert-stride"])
def test_every_model_and_head_at_two_lengths(name: str, tmp_path: Path) -> None:
    source, plain = exported.both(name)
    (example, *_) = verify.sample_rows(plain, None, 9)
    (tmp_path / "model.pt2").write_bytes(torch_files.torch_export(source, example, (4, 16))[0])
    (tmp_path / "model.pt").write_bytes(torch_files.torchscript(source, example)[0])
    for suffix, runtime in ((".pt2", runtimes.TorchExport), (".pt", runtimes.TorchScript)):
        exported.same(runtime(tmp_path / f"model{suffix}"), plain, (8, 11))


def test_a_stride_of_keys_at_one_length(tmp_path: Path) -> None:
    source, plain = exported.both("squeezebert-stride")
    (example, *_) = verify.sample_rows(plain, None, 11)
    (tmp_path / "model.pt2").write_bytes(torch_files.torch_export(source, example, (11,))[0])
    (tmp_path / "model.pt").write_bytes(torch_files.torchscript(source, example)[0])
    exported.same(runtimes.TorchExport(tmp_path / "model.pt2"), plain, (11,))
    exported.same(runtimes.TorchScript(tmp_path / "model.pt"), plain, (8, 11))


def test_rows_with_as_many_tokens_as_starts(tmp_path: Path) -> None:
    """The shortest row of a graph for any length has as many tokens as the head's starts."""
    model = Bert(vocab_size=61, hidden_size=24, layers=1, heads=4, feed_forward_size=20, max_positions=16)
    source = pretrained(model, JointSpanExtraction(hidden_size=14, beam=7))
    plain = exported.graph(source)
    (example, *_) = verify.sample_rows(plain, None, 16)
    (tmp_path / "model.pt2").write_bytes(torch_files.torch_export(source, example, (7, 16))[0])
    exported.same(runtimes.TorchExport(tmp_path / "model.pt2"), plain, (7, 11))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's directory, with a tokenizer that knows the sentences."""
    return exported.classifier(tmp_path_factory.mktemp("torch"))


@pytest.mark.parametrize("to", RUNTIMES)
def test_the_verb(to: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "new" / f"model{SUFFIXES[to]}"
    assert exported.convert(source, file, to) == 0
    out = capsys.readouterr().out
    assert mentions(out, "length_4: logits", "length_32: logits", "fp32")
    assert sorted(path.name for path in file.parent.iterdir()) == sorted(
        [file.name, f"{file.name}.files", f"{file.name}.json"]
    )
    said = json.loads((file.parent / f"{file.name}.json").read_text())
    assert said["format"] == to and said["bytes"] == file.stat().st_size and said["head"]["labels"] == ["no", "yes"]
    assert said["lengths"] == {"shortest": 4, "longest": 32} and list(said["signatures"]) == ["length_4", "length_32"]
    norm = {"onnx": "LayerNormalization", "torchscript": "aten::layer_norm", "torch-export": "aten.layer_norm.default"}
    assert said["operators"][norm[to]] >= 3 and said["flops"]["length_32"] > 8 * said["flops"]["length_4"] > 0
    assert said["source"].get("path") in (None, source.name)  # and not where on this machine
    card = (file.parent / f"{file.name}.files" / "README.md").read_text()
    assert "FLOPs" in card
    read, run = load_model.read_model(source), RUNTIMES[to](file)
    module, params = read.module()
    (row, *_) = verify.sample_rows(TrainingGraph(params=params, model=module), read.tokenizer, 23)
    expected = module.apply({"params": params}, **row).logits
    np.testing.assert_allclose(run(row)["logits"], expected, atol=1e-5)
    for ours, theirs in zip(*(bertzoo.predict(path, [*verify.TEXT]) for path in (source, file)), strict=True):
        assert theirs["label"] == ours["label"]
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)
    golden = json.loads((file.parent / f"{file.name}.files" / "golden.json").read_text())
    assert {each["signature"] for each in golden} == {"length_4", "length_32"}
    for each in golden:
        found = run({name: np.array([ids], np.int32) for name, ids in each["inputs"].items()})["logits"][0]
        np.testing.assert_allclose(found, each["expected"]["logits"], atol=1e-5)


@pytest.mark.parametrize("to", ["torch-export", "onnx"])
def test_rows_of_one_length(to: str, source: Path, tmp_path: Path) -> None:
    file = tmp_path / f"model{SUFFIXES[to]}"
    assert exported.convert(source, file, to, "--lengths=16") == 0
    assert json.loads(file.with_name(f"{file.name}.json").read_text())["lengths"] == {"shortest": 16, "longest": 16}
    ids = np.full((1, 12), 5, np.int32)
    with pytest.raises(Exception, match=r"== 16|Expected: 16"):
        RUNTIMES[to](file)({"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1})


@pytest.mark.parametrize("to", ["torchscript"])
def test_sentence_embeddings_of_the_first_token(to: str, source: Path, tmp_path: Path) -> None:
    file = tmp_path / f"model{SUFFIXES[to]}"
    assert exported.convert(source, file, to, "--head=none", "--pooling=first", "--lengths=16") == 0
    read = load_model.read_model(source)
    module, params = read.module()
    row = verify.sample_rows(TrainingGraph(params=params, model=module), read.tokenizer, 16)[2]
    pooled = module.apply({"params": params}, **row).pooled
    np.testing.assert_allclose(RUNTIMES[to](file)(row)["embedding"], pooled, atol=1e-5)


@pytest.mark.parametrize("to", RUNTIMES)
def test_no_file_names_this_machine(to: str, tmp_path: Path) -> None:
    """torch adds the source lines of its graph; check the members of a zip one by one."""
    source, plain = exported.both("bert")
    (example, *_) = verify.sample_rows(plain, None, 8)
    made = {
        "torch-export": lambda: torch_files.torch_export(source, example, (4, 16))[0],
        "torchscript": lambda: torch_files.torchscript(source, example)[0],
        "onnx": lambda: torch_files.onnx(source, example, (4, 16))[0],
    }[to]()
    (tmp_path / "file").write_bytes(made)
    parts = [made]
    if to != "onnx":
        with zipfile.ZipFile(tmp_path / "file") as archive:
            parts += [archive.read(name) for name in archive.namelist()]
    assert not any(re.search(rb"/[\w/.-]+\.py\b", part) for part in parts)


def test_a_file_that_no_runtime_takes(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"neither")
    for to, runtime in RUNTIMES.items():
        with pytest.raises(ExportFailed, match=mentioning("onnxruntime" if to == "onnx" else "torch ", "the file")):
            runtime(file)


def test_a_model_that_torch_does_not_take(source: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "layer_norm", lambda x, *_: torch.tensor(x.tolist()))
    assert exported.convert(source, tmp_path / "model.pt2", "torch-export") == 1
    error = capsys.readouterr().err
    assert mentions(error, "torch.export") and error.count("bertzoo:") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_with_wrong_outputs_is_not_written(source: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    real = torch.nn.functional.gelu
    monkeypatch.setattr(torch.nn.functional, "gelu", lambda x, **settings: real(x, **settings) + 0.01)
    from bertzoo.conversion import modeling_bertzoo

    monkeypatch.setitem(modeling_bertzoo.FUNCTIONS, "gelu", torch.nn.functional.gelu)
    assert exported.convert(source, tmp_path / "model.pt", "torchscript") == 1
    limits = (f"{limit:g}" for limit in verify.LIMITS["fp32"])
    assert mentions(capsys.readouterr().err, "logits at length 4", *limits)
    assert not list(tmp_path.iterdir())


def test_a_head_without_outputs_raises() -> None:
    """It is not exported as an embedding."""
    from bertzoo.conversion import modeling_bertzoo

    class Unfinished(modeling_bertzoo.Encoding):
        pass

    model, x = modeling_bertzoo.Encoding.__new__(modeling_bertzoo.Encoding), torch.zeros(1, 2, 3)
    assert model.exported(x, x[:, 0], {}) == {}
    with pytest.raises(NotImplementedError, match="Unfinished"):
        Unfinished.__new__(Unfinished).exported(x, x[:, 0], {})


def test_layouts_equal_the_modules() -> None:
    """Kernels are turned once, and no parameter is there twice; pointwise groups are dense maps."""
    from bertzoo.conversion import pytorch
    from bertzoo.export.pytorch import phone_module

    for name in TORCH_CASES:
        source, plain = exported.both(name)
        tensors = {path.replace("/", "."): torch.from_numpy(array) for path, array in source.params.items()}
        model = pytorch.modeling().make(pytorch.describe_module(plain.model), tensors.pop, "")
        count = sum(parameter.numel() for parameter in model.parameters())
        parts = [part for part in model.modules() if type(part).__name__ == "Grouped"]
        pointwise = sum(map(phone_module.is_pointwise, parts))
        module = phone_module.phone(model, plain.inputs)
        assert sum(parameter.numel() for parameter in module.parameters()) == count
        kinds = Counter(type(part).__name__ for part in module.modules())
        assert not kinds.keys() & {"Dense", "Grouped", "Trigram"}
        assert (kinds["SplitGroups"], kinds["Convolution"]) == (pointwise, len(parts) - pointwise)
