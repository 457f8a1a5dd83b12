"""Exports to ONNX, run in onnxruntime: every part at two lengths of one file."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from comparing import installed, needs
from messages import mentioning, mentions

needs("torch", "onnx", "onnxscript", "onnxruntime")
import exported
import onnx
import torch
from zoo import CASES, TORCH_CASES, pretrained

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers.wordpiece import WordPieceTokenizer
from bertzoo.export import runtimes
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.pytorch import onnx_file
from bertzoo.heads import JointSpanExtraction, SequenceClassification
from bertzoo.models import Bert, ModernBert
from bertzoo.runs import load_model


@pytest.mark.parametrize("name", [name for name in TORCH_CASES if name != "squeezebert-stride"])
def test_every_model_and_head_at_two_lengths(name: str) -> None:
    source, plain = exported.both(name)
    content, operators = onnx_file.onnx(source, verify.sample_rows(plain, None, 9)[0], (4, 16))
    exported.same(runtimes.Onnx(content), plain, (8, 11))
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == list(plain.inputs)
    sizes = {
        value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert all(size == ([1, 1] if name == "masked_positions" else [1, "length"]) for name, size in sizes.items())
    assert operators.get("Erf", 0) == operators.get("Pow", 0) == 0  # gelu is one, and norms
    assert operators.get("Softmax", 0) >= (name in CASES)


def assert_same(source: Pretrained, span: Sequence[int], lengths: Sequence[int]) -> None:
    """Compare a file for the lengths `span` with its model at `lengths`."""
    plain = training_graph(source)
    content, _ = onnx_file.onnx(source, verify.sample_rows(plain, None, span[-1])[0], span)
    exported.same(runtimes.Onnx(content), plain, lengths)


@pytest.mark.slow
def test_a_row_of_8192_tokens() -> None:
    sizes = {"vocab_size": 61, "hidden_size": 16, "layers": 2, "heads": 1, "feed_forward_size": 20}
    assert_same(pretrained(ModernBert(**sizes), SequenceClassification(hidden="gelu")), (8192,), (8192,))


@pytest.mark.parametrize("name", ["schubert", "distilbert", "distilbert-joint-span"])
def test_the_verb_runs_a_file_by_the_inputs_that_it_has(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    load_model.write_model(pretrained(*CASES[name], deviation=0.1), tmp_path / "model")
    words = [str(tmp_path / "model"), str(tmp_path / "model.onnx"), "--to=onnx", "--lengths=8"]
    assert main(["convert", *words]) == 0
    said = json.loads((tmp_path / "model.onnx.json").read_text())
    assert ("token_type_ids" in said["inputs"]) == (name in ("schubert", "distilbert-joint-span"))
    assert said["memory"] > 0


def test_a_stride_of_keys_at_one_length() -> None:
    assert_same(exported.both("squeezebert-stride")[0], (11,), (11,))


def test_rows_with_as_many_tokens_as_starts() -> None:
    """The shortest row of a graph for any length has as many tokens as the head's starts."""
    model = Bert(vocab_size=61, hidden_size=24, layers=1, heads=4, feed_forward_size=20, max_positions=16)
    assert_same(pretrained(model, JointSpanExtraction(hidden_size=14, beam=7)), (7, 16), (7, 11))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's directory, with a tokenizer that knows the sentences."""
    return exported.classifier(tmp_path_factory.mktemp("torch"))


def test_the_verb(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "new" / "model.onnx"
    assert exported.convert(source, file, "onnx") == 0
    out = capsys.readouterr().out
    assert mentions(out, "length_4: logits", "length_32: logits", "fp32")
    said = json.loads((file.parent / f"{file.name}.json").read_text())
    assert said["format"] == "onnx"
    assert said["lengths"] == {"shortest": 4, "longest": 32} and list(said["signatures"]) == ["length_4", "length_32"]
    assert said["operators"]["LayerNormalization"] >= 3
    assert said["flops"]["length_32"] > 8 * said["flops"]["length_4"] > 0
    assert said["source"].get("path") in (None, source.name)  # and not where on this machine
    assert "FLOPs" in (file.parent / f"{file.name}.files" / "README.md").read_text()
    read, run = load_model.read_model(source), runtimes.Onnx(file)
    module, params = read.module()
    (row, *_) = verify.sample_rows(training_graph(read), read.tokenizer, 23)
    expected = module.apply({"params": params}, **row).logits
    np.testing.assert_allclose(run(row)["logits"], expected, atol=1e-5)
    for ours, theirs in zip(*(bertzoo.predict(path, [*verify.TEXT]) for path in (source, file)), strict=True):
        assert theirs["label"] == ours["label"]
        assert theirs["probabilities"] == pytest.approx(ours["probabilities"], abs=1e-5)


def test_rows_of_one_length(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    assert exported.convert(source, file, "onnx", "--lengths=16") == 0
    assert json.loads(file.with_name(f"{file.name}.json").read_text())["lengths"] == {"shortest": 16, "longest": 16}
    ids = np.full((1, 12), 5, np.int32)
    with pytest.raises(Exception, match=r"Expected: 16"):
        runtimes.Onnx(file)({"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1})


def test_no_file_names_this_machine() -> None:
    """torch adds the source lines of its graph."""
    source, plain = exported.both("bert")
    content, _ = onnx_file.onnx(source, verify.sample_rows(plain, None, 8)[0], (4, 16))
    assert not re.search(rb"/[\w/.-]+\.py\b", content)


def test_a_file_that_no_runtime_takes(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"neither")
    with pytest.raises(ExportFailed, match=mentioning("onnxruntime", "the file")):
        runtimes.Onnx(tmp_path / "model")


def test_a_model_that_torch_does_not_take(source: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch.nn.functional, "layer_norm", lambda x, *_: torch.tensor(x.tolist()))
    assert exported.convert(source, tmp_path / "model.onnx", "onnx") == 1
    error = capsys.readouterr().err
    assert mentions(error, "torch's ONNX exporter") and error.count("bertzoo:") == 1
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
        pointwise = sum(part.kernel.shape[0] == part.stride == 1 and not part.padding for part in parts)
        module = phone_module.Phone(model, plain.inputs)
        assert sum(parameter.numel() for parameter in module.parameters()) == count
        kinds = Counter(type(part).__name__ for part in module.modules())
        assert not kinds.keys() & {"Dense", "Grouped", "Trigram"}
        assert (kinds["SplitGroups"], kinds["Convolution"]) == (pointwise, len(parts) - pointwise)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier's file that takes texts, of 4 to 32 tokens."""
    installed("onnxruntime_extensions")
    folder = tmp_path_factory.mktemp("text")
    assert exported.convert(exported.classifier(folder / "model"), folder / "text.onnx", "onnx-text") == 0
    return folder / "text.onnx"


def test_a_text_gives_the_outputs_of_its_ids(text_file: Path) -> None:
    run, rows = runtimes.OnnxText(text_file), json.loads((text_file.parent / "text.onnx.files/golden.json").read_text())
    assert {len(row["texts"]) for row in rows} == {1, 2}
    for row in rows:
        (logits,) = run.run(row["texts"])["logits"]
        np.testing.assert_allclose(logits, row["expected"]["logits"], atol=1e-5, err_msg=str(row["texts"]))
    # Words behind the longest row change nothing, and a text of no words is a row, too.
    shortest, whole, longer = (run.run([" ".join(verify.TEXT * times)])["logits"] for times in (0, 1, 2))
    assert np.array_equal(whole, longer) and not np.allclose(whole, shortest)
    # The predicted label is that of bertzoo's tokenizer.
    texts = list(verify.TEXT[:2])
    named = bertzoo.predict(text_file, texts)
    assert [one["label"] for one in named] == [("no", "yes")[run.run([text])["logits"][0].argmax()] for text in texts]


def test_the_json_lists_the_texts_with_other_tokens(text_file: Path) -> None:
    said = json.loads((text_file.parent / "text.onnx.json").read_text())["text"]
    tokenizer = load_model.read_model(text_file.parent / "model").tokenizer
    assert tokenizer is not None and said["largest_difference"] <= 1e-5
    differences = {one["text"]: one for one in said["differences"]}
    assert "Žluťoučký kůň, ŁÓDŹ" in differences and differences.keys() < {*golden.TRICKY}
    assert "Žluťoučký kůň, ŁÓDŹ" not in {one["text"] for one in said["prepared_differences"]}
    for text, one in differences.items():
        ours = [tokenizer.token(index) for index in golden.cut_texts(tokenizer, [text], 32)[0]]
        assert one["ours"] == ours != one["theirs"]


def test_a_text_file_with_another_tokenizer_or_other_outputs_fails(text_file: Path) -> None:
    source, run = load_model.read_model(text_file.parent / "model"), runtimes.Onnx(onnx_file.split(text_file)[1])
    assert isinstance(source.tokenizer, WordPieceTokenizer)
    entries = [source.tokenizer.token(index) for index in range(source.tokenizer.vocab_size)]
    cased = WordPieceTokenizer(dataclasses.replace(source.tokenizer.config, lowercase=False), entries, "test")
    with pytest.raises(ExportFailed, match=mentioning("onnxruntime-extensions", verify.TEXT[0])):
        onnx_file.check_texts(text_file, run, dataclasses.replace(source, tokenizer=cased), (32,), 32)

    class Shifted(runtimes.Runner):
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, inputs: runtimes.Inputs) -> dict[str, np.ndarray]:
            self.calls += 1
            return {name: array + 1e-3 * (self.calls == 2) for name, array in run(inputs).items()}

    with pytest.raises(ExportFailed, match=mentioning("0.001", "1e-05")):
        onnx_file.check_texts(text_file, Shifted(), source, (32,), 32)


def test_only_files_of_ids_are_timed(text_file: Path, capsys: pytest.CaptureFixture) -> None:
    capsys.readouterr()
    assert main(["benchmark", str(text_file), "--backends=onnx"]) == 2
    assert mentions(capsys.readouterr().err, text_file, "--to=onnx.")
