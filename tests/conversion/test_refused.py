"""Models that Hugging Face's classes would compute differently are rejected, in both directions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentioning, mentions, refused
from zoo import CASES, pretrained

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import huggingface, pytorch
from bertzoo.core.errors import UserError
from bertzoo.heads import MaskedLanguageModel, NoHead, SequenceClassification, SpanExtraction, TokenClassification
from bertzoo.models import Albert, Bert, ConvBert, DistilBert, Electra, MobileBert, SqueezeBert
from bertzoo.models.attention import GroupedHeads
from bertzoo.runs import load_model

SMALL = {"vocab_size": 20, "hidden_size": 8, "layers": 1, "heads": 2, "feed_forward_size": 12, "max_positions": 9}
CONV = ConvBert(**SMALL, embedding_size=6, mask_padding=False, kernel_size=3)
MOBILE = MobileBert(**SMALL, embedding_size=6, bottleneck_size=4, mask_padding=False)

MASKED, RELU = MaskedLanguageModel(), SequenceClassification(hidden="relu", input_dropout=0.1)


def export(model: Any, head: Any, folder: Path, *options: str) -> int:
    (folder / "ours").mkdir()
    load_model.write_model(pretrained(model, head), folder / "ours")
    return main(["convert", str(folder / "ours"), str(folder / "hf"), "--to=huggingface", *options])


SQUEEZE = SqueezeBert(**SMALL, **{f"{name}_groups": 2 for name in ("query", "key", "value", "intermediate", "output")})
REFUSED = {
    "padding in a convolution": (replace(CONV, mask_padding=True), NoHead(), ("--leak_padding",)),
    "padding in a trigram": (replace(MOBILE, mask_padding=True), NoHead(), ("--leak_padding",)),
    "a hidden layer": (Bert(**SMALL), SequenceClassification(hidden="gelu"), ("BertFor", "hidden", "none", "gelu")),
    "no hidden layer": (Electra(**SMALL), SequenceClassification(), ("ElectraFor", "hidden", "gelu", "none")),
    "dropout before it": (DistilBert(**SMALL), RELU, ("input_dropout", 0.0, 0.1)),
    "dropout of a span": (Bert(**SMALL), SpanExtraction(dropout=0.1), ("BertFor", "dropout", 0.0, 0.1)),
    "dropout of tokens": (DistilBert(**SMALL), TokenClassification(dropout=0.3), ("dropout", 0.1, 0.3)),
    "no pooler": (Bert(**SMALL), MaskedLanguageModel(sentence=True, pooler=False), ("BertForPreTraining", "pooler")),
    "no pooler for its classes": (SQUEEZE, SequenceClassification(pooler=False), ("SqueezeBertFor", "pooler")),
    "a sentence head": (CONV, MaskedLanguageModel(sentence=True), ("convbert", "masked", "sentence")),
}
INEXPRESSIBLE = {
    "the generator's gelu": (Electra(**SMALL, activation="relu"), MASKED, ("gelu", "activation", "relu")),
    "ConvBERT's gelu": (replace(CONV, activation="relu"), MASKED, ("gelu", "activation", "relu")),
    "heads of another size": (replace(CONV, heads=1), MASKED, ("heads = 1", " 4 ", "hidden_size = 8")),
    "no span": (replace(CONV, convolution="dynamic"), NoHead(), ("convolution", "dynamic")),
    "IB-BERT": (replace(MOBILE, attention_input="stream"), NoHead(), ("attention_input", "stream")),
    "LayerNorm in MobileBERT": (replace(MOBILE, norm="layer_norm"), NoHead(), ("normalization_type", "layer_norm")),
    "an epsilon": (replace(SQUEEZE, norm_epsilon=1e-6), MASKED, ("layer_norm_eps", "1e-12", "1e-06")),
    "DistilBERT's epsilon": (DistilBert(**SMALL, norm_epsilon=1e-6), NoHead(), ("norm_epsilon", "1e-06")),
    "another attention": (replace(MOBILE, attention=GroupedHeads()), NoHead(), ("attention", "Dense", "Grouped")),
    "windows of keys": (replace(SQUEEZE, kernel_size=3), NoHead(), ("kernel_size", 1, 3)),
    "uneven layers": (replace(SQUEEZE, layers=2, feed_forward_size=(12, 8)), NoHead(), ("intermediate_size", "12, 8")),
    "no class": (CASES["schubert"][0], NoHead(), ("schubert",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path, capsys):
    model, head, parts = REFUSED[case]
    assert export(model, head, tmp_path) == 2
    refused(capsys, *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("case", INEXPRESSIBLE)
def test_a_model_without_a_class_is_written_with_its_own_module(case: str, tmp_path, capsys):
    model, head, parts = INEXPRESSIBLE[case]
    assert export(model, head, tmp_path) == 0
    said = capsys.readouterr().err
    assert mentions(said, *parts, "PyTorch") and said.count("\n") == 2
    assert mentions(said, tmp_path / "ours", "no tokenizer")
    files = {path.name for path in (tmp_path / "hf").iterdir()}
    assert files == {"README.md", "config.json", "model.safetensors", "modeling_bertzoo.py"}


@pytest.mark.parametrize("model", [CONV, MOBILE])
def test_leaking_padding_is_logged(model: Any, tmp_path):
    assert export(replace(model, mask_padding=True), NoHead(), tmp_path, "--leak_padding") == 0
    assert huggingface.read_huggingface(tmp_path / "hf").model == replace(model, mask_padding=False)


@pytest.mark.parametrize("model", [Bert(**SMALL), ConvBert(**SMALL, convolution="none")], ids=lambda model: model.kind)
def test_no_padding_leaks_without_windows(model: Any, tmp_path, capsys):
    assert export(model, NoHead(), tmp_path, "--leak_padding") == 2
    refused(capsys, "--leak_padding")


def test_reading_is_as_strict(tmp_path, capsys):
    assert export(Electra(**SMALL), MASKED, tmp_path) == 0
    config = tmp_path / "hf" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_act": "relu"}))
    assert main(["convert", str(tmp_path / "hf"), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    assert mentions(capsys.readouterr().err, "ElectraForMaskedLM", "gelu", "relu")


@pytest.mark.parametrize(
    "model", [Albert(**SMALL, embedding_size=6), CONV, MOBILE, replace(MOBILE, pooler=True), SQUEEZE]
)
@pytest.mark.parametrize("pooler", [True, False])
def test_every_tensor_round_trips(model: Any, pooler: bool, tmp_path):
    head = MaskedLanguageModel(pooler=pooler)
    made = pretrained(model, head)
    assert export(model, head, tmp_path) == 0
    back = huggingface.read_huggingface(tmp_path / "hf")
    assert back.model == model and back.params.keys() == made.params.keys()
    assert all(np.array_equal(made.params[name], back.params[name]) for name in made.params)
    assert bertzoo.load(tmp_path / "hf").tokenizer is None
    assert ("pooler/bias" in back.params) == (pooler and model not in (CONV, MOBILE))


def test_an_export_for_pytorch_is_named_as_such(tmp_path):
    pytorch.write_pytorch(pretrained(Bert(**SMALL), MASKED), tmp_path)
    with pytest.raises(UserError, match=mentioning(tmp_path, "PyTorch")):
        bertzoo.load(tmp_path)
