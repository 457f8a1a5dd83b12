"""Malformed directories: each prints one error and leaves no files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_bert
from messages import mentioning, mentions, refused
from safetensors.numpy import load_file, save_file
from tiny_bert import convert
from zoo import pretrained

from bertzoo.conversion import huggingface, tensors
from bertzoo.core import machine
from bertzoo.core.errors import UserError
from bertzoo.heads import MaskedLanguageModel, NoHead, ReplacedTokens, SentenceEmbedding, SequenceClassification
from bertzoo.models import Albert, Bert, ConvBert, MobileBert
from bertzoo.runs import load_model

SMALL = {"vocab_size": 20, "hidden_size": 8, "layers": 1, "heads": 2, "feed_forward_size": 12, "max_positions": 9}


def exported(model: Any, head: Any, folder: Path, **changes: Any) -> Path:
    """A Hugging Face directory of a random model, with attributes changed."""
    folder.mkdir()
    huggingface.write_huggingface(pretrained(model, head), folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


DEEP = 10**9
MASKED = {
    "labels in a list": ({"id2label": ["A", "B"]}, ("id2label", "['A', 'B']")),
    "labels as text": ({"id2label": "A"}, ("id2label", "'A'")),
    "labels without a number": ({"id2label": {"1": "A"}}, ("id2label", "'0'")),
    "a count as text": ({"num_labels": "2"}, ("num_labels", "'2'")),
    "no labels": ({"num_labels": 0}, ("num_labels", " 0 ")),
    "true labels": ({"num_labels": True}, ("num_labels", True)),
    "too many labels": ({"num_labels": DEEP}, ("num_labels", DEEP, "1,000,000")),
    "an activation in a list": ({"hidden_act": ["gelu"]}, ("hidden_act", "['gelu']")),
    "a type in a list": ({"model_type": ["bert"]}, ("model_type", "['bert']")),
    "a number of a class": ({"architectures": [1]}, ("architectures", "[1]")),
    "a class without its list": ({"architectures": "BertForMaskedLM"}, ("architectures", "'BertForMaskedLM'")),
    "words": ({"vocab_size": 10**9}, ("model.safetensors", "word_embeddings", 10**9)),
    "more words": ({"vocab_size": 10**12}, ("vocab_size", 10**12, 2**31 - 1)),
    "layers": ({"num_hidden_layers": 900}, ("model.safetensors", "encoder.layer.1.")),
    "more layers": ({"num_hidden_layers": DEEP}, ("num_hidden_layers", DEEP, 1000)),
    "no number": ({"layer_norm_eps": float("nan")}, ("config.json", "NaN", "finite")),
    "infinite": ({"layer_norm_eps": float("inf")}, ("config.json", "Infinity", "finite")),
    "width": ({"hidden_size": 3 * 10**7}, ("model.safetensors", 3 * 10**7)),
    "an epsilon of 0": ({"layer_norm_eps": 0}, ("norm_epsilon", 0.0, "layer_norm_eps")),
    "an epsilon that hides the text": ({"layer_norm_eps": 1e300}, ("norm_epsilon", 1e300, "layer_norm_eps")),
    "a prime width": ({"hidden_size": 2**31 - 1}, ("hidden_size", 2**31 - 1, "heads")),
    "no size": ({"hidden_size": None}, ("hidden_size", "integer")),
    "a list of sizes": ({"intermediate_size": [12]}, ("intermediate_size", "[12]")),
}
CLASSIFIER = {
    "numbers as labels": ({"id2label": {"0": 1, "1": 2}}, ("labels.0", "text", "1", "integer", "id2label")),
    "a problem": ({"problem_type": "foo"}, ("problem_type", "regression", "single_label_classification")),
    "a numbered problem": ({"problem_type": 5}, ("problem_type", "regression", "single_label_classification")),
    "a rate as text": ({"classifier_dropout": "x"}, ("dropout", "number", "'x'", "text", "classifier_dropout")),
    "a whole rate": ({"classifier_dropout": 1.0}, ("dropout", 1.0, 0.99, "classifier_dropout")),
}
TINY = MobileBert(**SMALL, embedding_size=8, bottleneck_size=4, attention_input="bottleneck", mask_padding=False)
MOBILE = {
    "stages": ({"num_feedforward_networks": DEEP}, ("num_feedforward_networks", DEEP, 1000)),
    "a few stages": ({"num_feedforward_networks": 200}, ("model.safetensors", "layer.0.ffn.")),
    "a width": ({"intra_bottleneck_size": 10**9}, ("model.safetensors", 10**9)),
    "a flag": ({"use_bottleneck": "false"}, ("use_bottleneck", "'false'")),
    "a shared bottleneck of no use": ({"key_query_shared_bottleneck": True}, ("key_query_shared_bottleneck", "true")),
}
ALBERT = Albert(**SMALL, embedding_size=6)
SHARED = {"more layers": ({"num_hidden_layers": DEEP}, ("num_hidden_layers", DEEP))}
SOURCES: dict[str, tuple[Callable[[Path], Path], dict]] = {  # a directory, and changes of its config.json
    "masked": (tiny_bert.write, MASKED),
    "classifier": (lambda folder: exported(Bert(**SMALL), SequenceClassification(), folder), CLASSIFIER),
    "mobilebert": (lambda folder: exported(TINY, NoHead(), folder), MOBILE),
    "albert": (lambda folder: exported(ALBERT, NoHead(), folder), SHARED),
}


def rejected(source: Path, capsys: pytest.CaptureFixture, *parts: object) -> str:
    """The error of converting a directory, after which it is alone in its folder."""
    assert convert(source, source.parent / "out") == 2
    said = refused(capsys, *parts)
    assert list(source.parent.iterdir()) == [source]
    return said


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, (_, cases) in SOURCES.items() for case in cases])
def test_attributes(kind: str, case: str, tmp_path, capsys):
    write, cases = SOURCES[kind]
    changes, parts = cases[case]
    config = write(tmp_path / "source") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    said = rejected(tmp_path / "source", capsys, *parts)
    assert kind != "classifier" or mentions(said, config)


def test_too_large_a_number(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    text = json.dumps(tiny_bert.CONFIG | {"layer_norm_eps": 7})
    (source / "config.json").write_text(text.replace(": 7", ": 1e999"))
    rejected(source, capsys, "config.json", "1e999", "finite")
    (source / "config.json").write_text("[" * 100_000)
    rejected(source, capsys, source / "config.json")


def test_labels_that_are_null_are_the_library_s(tmp_path):
    source = exported(Bert(**SMALL), SequenceClassification(), tmp_path / "source", id2label=None)
    assert huggingface.read_huggingface(source).head.labels == ("LABEL_0", "LABEL_1")


def test_more_layers_than_tensors_where_they_share_them(tmp_path):
    source = exported(ALBERT, NoHead(), tmp_path / "source", num_hidden_layers=40)
    assert huggingface.read_huggingface(source).model.layers == 40


def test_a_bottleneck_for_all_inputs(tmp_path):
    assert huggingface.read_huggingface(exported(TINY, NoHead(), tmp_path / "source")).model == TINY


SHARD = "a.safetensors"
INDEX = "model.safetensors.index.json"
PLACES: dict[str, tuple[Callable[[dict], Any], tuple]] = {
    "a number": (lambda places: places | {"x": 1}, (INDEX, "weight_map.x", 1)),
    "nowhere": (lambda places: places | {"x": None}, (INDEX, "weight_map.x", "null")),
    "not there": (lambda places: places | {"x": "b.safetensors"}, (INDEX, "b.safetensors")),
    "above": (lambda places: places | {"x": f"../{SHARD}"}, (INDEX, f"../{SHARD}")),
    "a list": (lambda places: [*places], (INDEX, "damaged")),
}


@pytest.mark.parametrize("case", PLACES)
def test_shards(case: str, tmp_path, capsys):
    change, parts = PLACES[case]
    source = tiny_bert.write(tmp_path / "source")
    (source / "model.safetensors").rename(source / SHARD)
    places = change(dict.fromkeys(tiny_bert.tensors(), SHARD))
    (source / INDEX).write_text(json.dumps({"weight_map": places}))
    rejected(source, capsys, *parts)


def test_integers_in_a_model_directory(tmp_path, capsys):
    made, name = pretrained(Bert(**SMALL), NoHead()), "embedding/norm/bias"
    made.params[name] = made.params[name].astype(np.int64)
    (tmp_path / "ours").mkdir()
    load_model.write_model(made, tmp_path / "ours")
    assert convert(tmp_path / "ours", tmp_path / "out", to="huggingface") == 2
    refused(capsys, name, "I64", "F32")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_an_empty_tensor(tmp_path):
    """MobileBertForMaskedLM's weights beyond its word embeddings, where those are as wide as the stream."""
    source = exported(TINY, MaskedLanguageModel(pooler=False), tmp_path / "source")
    found = load_file(source / "model.safetensors")
    save_file(found | {"cls.predictions.dense.weight": np.zeros((0, 20), np.float32)}, source / "model.safetensors")
    assert convert(source, tmp_path / "out") == 0
    assert "masked_head/extra/kernel" not in load_file(tmp_path / "out" / "parameters.safetensors")


def test_the_hint_for_a_head_without_a_class(tmp_path, capsys):
    (tmp_path / "ours").mkdir()
    made = pretrained(ConvBert(**SMALL, embedding_size=6, mask_padding=False, kernel_size=3), ReplacedTokens())
    load_model.write_model(made, tmp_path / "ours")
    assert convert(tmp_path / "ours", tmp_path / "out", to="huggingface") == 2
    refused(capsys, "convbert", "replaced", "--head=none", "--to=pytorch")
    assert convert(tmp_path / "ours", tmp_path / "bare", "--head=none", to="huggingface") == 0
    assert convert(tmp_path / "ours", tmp_path / "whole", to="pytorch") == 0


def sparse(path: Path, elements: int) -> None:
    """Replace a safetensors file by one whose header is right and whose values are a hole in the file."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [elements], "data_offsets": [0, 4 * elements]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 4 * elements)


def test_tensors_larger_than_memory_are_not_read(tmp_path, monkeypatch):
    sparse(tmp_path / "model.safetensors", 1000)
    monkeypatch.setattr(machine, "machine_memory", lambda: (3999, 3999))
    with pytest.raises(UserError, match=mentioning("model.safetensors", "memory")):
        tensors.read_safetensors(tmp_path / "model.safetensors")
    monkeypatch.setattr(machine, "machine_memory", lambda: (4000, 4000))
    assert tensors.read_safetensors(tmp_path / "model.safetensors")["w"].shape == (1000,)


EMBEDDER = SentenceEmbedding(projection=5, activation="tanh")
ENTRY = "sentence_transformers.models"


def changed(path: str, **changes: Any) -> Callable[[Path], None]:
    """A change of some options in a file of a directory; None removes an option."""

    def change(folder: Path) -> None:
        table = json.loads((folder / path).read_text()) | changes
        (folder / path).write_text(json.dumps({name: value for name, value in table.items() if value is not None}))

    return change


def listed(*modules: tuple[str, str], **more: Any) -> Callable[[Path], None]:
    """Other modules, each a class and a path."""
    entries = [{"idx": 0, "name": "0", "type": kind, "path": path} | more for kind, path in modules]
    return lambda folder: (folder / "modules.json").write_text(json.dumps(entries)) and None


def linked(path: str, target: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / path).unlink()
        (folder / path).symlink_to(target)

    return change


def dense_of(**arrays: tuple[int, ...]) -> Callable[[Path], None]:
    named = {f"linear.{name}": np.ones(shape, np.float32) for name, shape in arrays.items()}
    return lambda folder: save_file(named, folder / "2_Dense" / "model.safetensors")


FIRST, POOLED = (f"{ENTRY}.Transformer", ""), (f"{ENTRY}.Pooling", "1_Pooling")
POOLING, DENSE, ROWS = "1_Pooling/config.json", "2_Dense/config.json", "sentence_bert_config.json"
OPTIONS = "config_sentence_transformers.json"
SENTENCES: dict[str, tuple[Callable[[Path], Any], tuple]] = {
    "a path above": (listed(FIRST, (f"{ENTRY}.Pooling", "../1_Pooling")), ("modules.json", "../1_Pooling")),
    "a path from the root": (listed(FIRST, (f"{ENTRY}.Pooling", "/etc")), ("modules.json", "/etc")),
    "the path of the parent": (listed(FIRST, (f"{ENTRY}.Pooling", "..")), ("modules.json", "'..'")),
    "a path with a zero byte": (listed(FIRST, (f"{ENTRY}.Pooling", "a\0b")), ("a\\x00b",)),
    "no path": (listed(FIRST, (f"{ENTRY}.Pooling", "")), ("modules.json", "path = ''")),
    "a folder that is missing": (listed(FIRST, (f"{ENTRY}.Pooling", "9_Pooling")), ("9_Pooling", "config.json")),
    "another module": (listed(FIRST, POOLED, (f"{ENTRY}.LSTM", "2_LSTM")), ("modules.json", f"{ENTRY}.LSTM")),
    "another package": (listed(FIRST, ("os.system.Pooling", "1_Pooling")), ("modules.json", "os.system.Pooling")),
    "two poolings": (listed(FIRST, POOLED, POOLED), ("module 2", "Pooling")),
    "two layers": (listed(FIRST, POOLED, *[(f"{ENTRY}.Dense", "2_Dense")] * 2), ("module 3", "Dense")),
    "another order": (listed(POOLED, FIRST), ("module 1", "Transformer")),
    "no pooling": (listed(FIRST), ("modules.json", "Pooling")),
    "no modules": (listed(), ("modules.json", "Transformer")),
    "arguments": (listed(FIRST, POOLED, kwargs=["task"]), ("module 0", "kwargs", "task")),
    "a number as a type": (listed((7, "")), ("modules.json", "0.type", 7)),  # pyright: ignore[reportArgumentType]
    "an object": (lambda folder: (folder / "modules.json").write_text("{}"), ("modules.json", "list")),
    "deep": (lambda folder: (folder / "modules.json").write_text("[" * 10**5), ("modules.json",)),
    "a broken link": (linked("modules.json", "nowhere"), ("modules.json",)),
    "a link to itself": (linked(POOLING, "config.json"), (POOLING,)),
    "several modes": (changed(POOLING, pooling_mode_max_tokens=True), (POOLING, "Pooling", "'max', 'mean'")),
    "a mode": (changed(POOLING, pooling_mode="lasttoken"), (POOLING, "Pooling", "lasttoken")),
    "a mode as a number": (changed(POOLING, pooling_mode=[1]), (POOLING, "Pooling", 1)),
    "a flag as text": (changed(POOLING, pooling_mode_cls_token="yes"), (POOLING, "pooling_mode_cls_token", "yes")),
    "without the prompt": (changed(POOLING, include_prompt=False), (POOLING, "include_prompt", "false", "true")),
    "an unknown option": (changed(POOLING, weights=3), (POOLING, "weights", 3)),
    "an activation": (changed(DENSE, activation_function="os.abort"), (DENSE, "Dense", "os.abort")),
    "outputs": (changed(DENSE, out_features=10**15), ("2_Dense", "linear.weight", 10**15)),
    "a huge number": (changed(DENSE, out_features=10**30), (DENSE, "out_features", "bits")),
    "a residual": (changed(DENSE, use_residual=True), (DENSE, "use_residual", "true")),
    "tokens' states": (changed(DENSE, module_input_name="token_embeddings"), (DENSE, "token_embeddings")),
    "no outputs": (changed(DENSE, out_features=None), (DENSE, "out_features")),
    "a tensor too many": (dense_of(weight=(5, 8), bias=(5,), more=(1,)), ("2_Dense", "linear.more")),
    "a turned weight": (dense_of(weight=(8, 5), bias=(5,)), ("2_Dense", "linear.weight", "(8, 5)", "(5, 8)")),
    "no weights": (lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(), ("2_Dense", "no weights")),
    "tokens of a list": (changed("3_Normalize/config.json", module_input_name="x"), ("3_Normalize", "x")),
    "rows of nothing": (changed(ROWS, max_seq_length=0), (ROWS, 0, 3)),
    "a huge length": (changed(ROWS, max_seq_length=10**30), (ROWS, "max_seq_length", "bits")),
    "lower case": (changed(ROWS, do_lower_case=1), (ROWS, "do_lower_case", 1)),
    "another task": (changed(ROWS, transformer_task="fill-mask"), (ROWS, "fill-mask", "feature-extraction")),
    "code": (changed(ROWS, model_args={"trust_remote_code": True}), (ROWS, "model_args")),
    "a similarity": (changed(OPTIONS, similarity_fn_name="euclidean"), (OPTIONS, "euclidean", "cosine")),
    "a cut unit vector": (changed(OPTIONS, truncate_dim=3), (OPTIONS, "truncate_dim", 3)),
    "a cut to nothing": (changed(OPTIONS, truncate_dim=-1), ("truncate_dim", -1)),
    "a default": (changed(OPTIONS, default_prompt_name="query"), (OPTIONS, "default_prompt_name", "query")),
    "prompts": (changed(OPTIONS, prompts={"query": 3}), (OPTIONS, "prompts.query", 3)),
    "another kind of model": (changed(OPTIONS, model_type="SparseEncoder"), (OPTIONS, "SparseEncoder")),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_directories_of_sentence_transformers(case: str, tmp_path, capsys):
    change, parts = SENTENCES[case]
    source = exported(Bert(**SMALL), EMBEDDER, tmp_path / "source")
    assert huggingface.read_huggingface(source).head == EMBEDDER
    change(source)
    rejected(source, capsys, *parts)
