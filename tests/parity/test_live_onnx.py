"""Exports to ONNX, run in onnxruntime: every part at two lengths of one file."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from comparing import installed, needs
from messages import mentioning, mentions

needs("torch", "onnx", "onnxscript", "onnxruntime")
import exported
import onnx
from zoo import CASES, pretrained

import bertzoo
from bertzoo.cli.main import main
from bertzoo.data.tokenizers.wordpiece import WordPieceTokenizer
from bertzoo.export import runtimes
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.pytorch import onnx_text, torch_files
from bertzoo.heads import SequenceClassification
from bertzoo.models import ModernBert
from bertzoo.runs import load_model


@pytest.mark.parametrize("name", CASES)
def test_every_model_and_head_at_two_lengths(name: str, tmp_path: Path) -> None:
    source, plain = exported.both(name)
    (example, *_) = verify.sample_rows(plain, None, 9)
    content, operators = torch_files.onnx(source, example, (4, 16))
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


@pytest.mark.slow
def test_a_row_of_8192_tokens(tmp_path: Path) -> None:
    sizes = {"vocab_size": 61, "hidden_size": 16, "layers": 2, "heads": 1, "feed_forward_size": 20}
    source = pretrained(ModernBert(**sizes), SequenceClassification(hidden="gelu"))
    plain = exported.graph(source)
    (example, *_) = verify.sample_rows(plain, None, 8192)
    (tmp_path / "model.onnx").write_bytes(torch_files.onnx(source, example, (8192,))[0])
    exported.same(runtimes.Onnx(tmp_path / "model.onnx"), plain, (8192,))


@pytest.mark.parametrize("name", ["schubert", "distilbert", "bert-one-segment", "distilbert-joint-span"])
def test_the_verb_runs_a_file_by_the_inputs_that_it_has(name: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    load_model.write_model(pretrained(*CASES[name], deviation=0.1), tmp_path / "model")
    words = [str(tmp_path / "model"), str(tmp_path / "model.onnx"), "--to=onnx", "--lengths=8"]
    assert main(["convert", *words]) == 0
    said = json.loads((tmp_path / "model.onnx.json").read_text())
    assert ("token_type_ids" in said["inputs"]) == (name in ("schubert", "distilbert-joint-span"))
    assert said["memory"] > 0


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
    source, run = load_model.read_model(text_file.parent / "model"), onnx_text.load_ids(text_file)
    assert isinstance(source.tokenizer, WordPieceTokenizer)
    entries = [source.tokenizer.token(index) for index in range(source.tokenizer.vocab_size)]
    cased = WordPieceTokenizer(dataclasses.replace(source.tokenizer.config, lowercase=False), entries, "test")
    with pytest.raises(ExportFailed, match=mentioning("onnxruntime-extensions", verify.TEXT[0])):
        onnx_text.check_texts(text_file, run, dataclasses.replace(source, tokenizer=cased), (32,), 32)

    class Shifted(runtimes.Runner):
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, inputs: runtimes.Inputs) -> dict[str, np.ndarray]:
            self.calls += 1
            return {name: array + 1e-3 * (self.calls == 2) for name, array in run(inputs).items()}

    with pytest.raises(ExportFailed, match=mentioning("0.001", "1e-05")):
        onnx_text.check_texts(text_file, Shifted(), source, (32,), 32)


def test_only_files_of_ids_are_timed(text_file: Path, capsys: pytest.CaptureFixture) -> None:
    capsys.readouterr()
    assert main(["benchmark", str(text_file), "--backends=onnx"]) == 2
    assert mentions(capsys.readouterr().err, text_file, "--to=onnx,")
