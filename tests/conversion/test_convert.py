"""`bertzoo convert` on a hand-made directory: accepted files, and errors for others."""

import doctest
import json
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tiny_bert
from damage import flip
from messages import mentioning, mentions, refused
from safetensors.numpy import load_file, save_file
from tiny_bert import convert

import bertzoo
from bertzoo.conversion import tensors
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.runs import load_model

Prepare = Callable[[Path], None]


def config(**changes) -> Prepare:
    def prepare(source: Path) -> None:
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return prepare


def weights(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Prepare:
    def prepare(source: Path) -> None:
        save_file(change(load_file(source / "model.safetensors")), source / "model.safetensors")

    return prepare


def text(name: str, content: str) -> Prepare:
    return lambda source: (source / name).write_text(content) and None


def words(*entries: str) -> Prepare:
    return text("vocab.txt", "\n".join(entries))


def stored(change: Callable[[bytes], bytes]) -> Prepare:
    def prepare(source: Path) -> None:
        file = source / "model.safetensors"
        file.write_bytes(change(file.read_bytes()))

    return prepare


QUERY = "bert.encoder.layer.0.attention.self.query.weight"
BIAS = "cls.predictions.bias"
DECODER = "cls.predictions.decoder.weight"
TABLE = "bert.embeddings.word_embeddings.weight"
NORM = "cls.predictions.transform.LayerNorm"
DAMAGED = ("model.safetensors", "damaged")
BAD: dict[str, tuple[Prepare, tuple]] = {
    "missing tensor": (
        weights(lambda t: {name: t[name] for name in t.keys() - {QUERY}}),
        (QUERY.removeprefix("bert."),),
    ),
    "extra tensor": (weights(lambda t: t | {"adapter.weight": t[BIAS]}), ("adapter.weight",)),
    "layer too many": (config(num_hidden_layers=2), ("lacks", "encoder.layer.1.")),
    "wrong shape": (weights(lambda t: t | {BIAS: t[BIAS][:9]}), ("cls.predictions.bias", "(9,)", "(24,)")),
    "not finite": (weights(lambda t: t | {BIAS: t[BIAS] * np.nan}), (BIAS, "finite")),
    "integers": (weights(lambda t: t | {BIAS: t[BIAS].astype(np.int64)}), (BIAS, "int64")),
    "doubles": (weights(lambda t: t | {BIAS: t[BIAS].astype(np.float64)}), (BIAS, "F64")),
    "untied": (weights(lambda t: t | {DECODER: t[TABLE] + 1}), (DECODER, "word_embeddings.weight")),
    "old and new": (weights(lambda t: t | {f"{NORM}.gamma": t[f"{NORM}.weight"]}), (NORM, "twice")),
    "truncated": (stored(lambda data: data[:-10]), DAMAGED),
    "corrupted": (stored(lambda data: data[:20] + bytes(20) + data[40:]), DAMAGED),
    "empty": (text("model.safetensors", " "), DAMAGED),
    "no weights": (lambda source: (source / "model.safetensors").unlink(), ("source", "weights")),
    "other architecture": (config(architectures=["BertForNextSentencePrediction"]), ("BertForNextSentencePrediction",)),
    "unknown model_type": (config(model_type="roberta"), ("model_type", "'roberta'", "convbert", "squeezebert")),
    "unknown attribute": (config(rotary=True), ("rotary", True)),
    "a tokenizer of pieces": (config(tokenizer_class="AlbertTokenizer"), ("'AlbertTokenizer'", "wordpiece")),
    "an unknown tokenizer": (config(tokenizer_class="RobertaTokenizer"), ("tokenizer_class", "'RobertaTokenizer'")),
    "a tokenizer's number": (config(tokenizer_class=3), ("config.json", "tokenizer_class", "3", "wordpiece")),
    "fixed attribute": (config(is_decoder=True), ("is_decoder", True, False)),
    "relative positions": (config(position_embedding_type="relative_key"), ("position_embedding_type", "relative_key")),
    "activation": (config(hidden_act="swish"), ("hidden_act", "'swish'", "gelu", "gelu_new")),
    "heads": (config(num_attention_heads=5), ("heads", 5, "hidden_size", 24)),
    "wrong type": (config(hidden_size="24"), ("hidden_size", "'24'")),
    "no json": (text("config.json", "{"), ("config.json", "line 1")),
    "no model_type": (text("config.json", "{}"), ("config.json", "no model_type")),
    "long vocabulary": (words(*tiny_bert.WORDS, *"lmnop"), ("vocabulary", " 25 ", " 24 ")),
    "short vocabulary": (words(*tiny_bert.WORDS[:6]), ("vocabulary", " 6 ", " 24 ")),
    "no mask": (words(*tiny_bert.WORDS[:4]), ("vocab.txt", "[MASK]")),
    "vocabulary and config": (config(vocab_size=32), ("word_embeddings.weight", "(24, 24)", "(32, 24)")),
    "no tokenizer": (text("tokenizer.json", "[]"), ("tokenizer.json", "damaged")),
    "another tokenizer": (text("tokenizer.json", '{"model": {"type": "WordLevel"}}'), ("model.type", "'WordLevel'")),
    "no merges": (text("tokenizer.json", '{"model": {"type": "BPE"}}'), ("tokenizer.json", "no tokenizer.json")),
    "no pieces": (text("tokenizer.json", '{"model": {"type": "Unigram"}}'), ("spiece.model",)),
}


@pytest.mark.parametrize(("case", "exists"), [*((case, False) for case in BAD), ("missing tensor", True)])
def test_bad_input_raises_one_error_and_leaves_no_files(case: str, exists: bool, tmp_path, capsys):
    prepare, parts = BAD[case]
    source = tiny_bert.write(tmp_path / "source")
    prepare(source)
    if exists:
        (tmp_path / "out").mkdir()
    before = sorted(tmp_path.iterdir())
    assert convert(source, tmp_path / "out") == 2
    refused(capsys, *parts)
    assert sorted(tmp_path.iterdir()) == before and (not exists or not any((tmp_path / "out").iterdir()))


def test_both_ways_to_the_bit(tmp_path):
    source = tiny_bert.write(tmp_path / "source")
    assert convert(source, tmp_path / "ours") == 0
    assert convert(tmp_path / "ours", tmp_path / "back", to="huggingface") == 0
    first, second = load_file(source / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert first.keys() == second.keys()
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    made = json.loads((tmp_path / "back" / "config.json").read_text())
    assert tiny_bert.CONFIG.items() <= (made | {"transformers_version": "4.8.2"}).items()
    # 10 entries for 16 rows are within a multiple of 8, which is left alone.
    assert (tmp_path / "back" / "vocab.txt").read_text() == (source / "vocab.txt").read_text()
    source_table = tomllib.loads((tmp_path / "ours" / "model.toml").read_text())["source"]
    assert source_table["format"] == "huggingface" and source_table["path"] == str(source)


def same(a: Path, b: Path) -> bool:
    first, second = (load_model.read_model(path).params for path in (a, b))
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def legacy(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    def old(name: str) -> str:
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    return {old(name): array for name, array in found.items()} | {
        "bert.embeddings.position_ids": np.arange(12)[None],
        DECODER: found[TABLE].copy(),
        "cls.predictions.decoder.bias": found[BIAS].copy(),
    }


@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "PreTrainedTokenizerFast", None])
def test_a_tokenizer_class_in_config_json(name: str | None, tmp_path, capsys):
    """It must match the kind of the vocabulary or, without a vocabulary, name a supported kind."""
    source = tiny_bert.write(tmp_path / "named")
    config(tokenizer_class=name)(source)
    assert same(tiny_bert.write(tmp_path / "plain"), source)
    if name is not None:
        (source / "vocab.txt").unlink()
        config(tokenizer_class="AlbertTokenizer")(source)
        assert bertzoo.load(source).tokenizer is None
        config(tokenizer_class="RobertaTokenizer")(source)
        assert convert(source, tmp_path / "out") == 2
        assert mentions(capsys.readouterr().err, "tokenizer_class", "'RobertaTokenizer'")


def test_old_names_and_repetitions(tmp_path):
    plain = tiny_bert.write(tmp_path / "plain")
    assert same(plain, tiny_bert.write(tmp_path / "old", legacy(tiny_bert.tensors())))
    only_decoder = {n.replace(BIAS, "cls.predictions.decoder.bias"): a for n, a in tiny_bert.tensors().items()}
    assert same(plain, tiny_bert.write(tmp_path / "decoder", only_decoder))


def test_both_heads_under_the_name_of_one(tmp_path):
    """As in the first release of BERT: architectures says BertForMaskedLM, and pooler and sentence head are there."""
    random = np.random.default_rng(1)
    more = {"bert.pooler.dense.weight": (24, 24), "bert.pooler.dense.bias": (24,)}
    more |= {"cls.seq_relationship.weight": (2, 24), "cls.seq_relationship.bias": (2,)}
    found = tiny_bert.tensors() | {n: random.normal(size=s).astype(np.float32) for n, s in more.items()}
    source = tiny_bert.write(tmp_path / "source", found)
    _, params, _ = bertzoo.load(source)
    np.testing.assert_array_equal(params["sentence_head"]["kernel"], found["cls.seq_relationship.weight"].T)
    assert convert(source, tmp_path / "back", to="huggingface") == 0
    assert json.loads((tmp_path / "back" / "config.json").read_text())["architectures"] == ["BertForPreTraining"]
    assert convert(source, tmp_path / "masked", "--head=masked", to="huggingface") == 0
    left = load_file(tmp_path / "masked" / "model.safetensors")
    assert left.keys() == found.keys() - {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}


def test_leaving_the_head_out(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    assert convert(source, tmp_path / "bare", "--head=none", to="huggingface") == 0
    assert capsys.readouterr().err.splitlines() == [
        f"left out: masked_head/{name}" for name in ("bias", "dense/bias", "dense/kernel", "norm/bias", "norm/scale")
    ]
    names = load_file(tmp_path / "bare" / "model.safetensors").keys()
    assert names == {n.removeprefix("bert.") for n in tiny_bert.tensors() if n.startswith("bert.")}
    assert convert(tmp_path / "bare", tmp_path / "again", "--head=masked") == 2
    assert mentions(capsys.readouterr().err, "masked", "none")


def test_a_config_without_architectures(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source", architectures=None)
    assert bertzoo.load(source).model.masked_head is not None
    classes = {f"classifier.{n}": np.zeros(s, np.float32) for n, s in {"weight": (2, 24), "bias": (2,)}.items()}
    trunk = {n: a for n, a in tiny_bert.tensors().items() if n.startswith("bert.")}
    source = tiny_bert.write(tmp_path / "unclear", trunk | classes, architectures=None)
    assert convert(source, tmp_path / "out") == 2
    assert mentions(capsys.readouterr().err, "BertForSequenceClassification", "BertForTokenClassification")


@pytest.mark.parametrize("kind,dtype", [("F16", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_half_precision_becomes_float32(kind: str, dtype: type, tmp_path):
    source = tiny_bert.write(tmp_path / "source")
    halves = {name: array.astype(dtype) for name, array in tiny_bert.tensors().items()}
    header, data = {}, b""
    for name, array in halves.items():
        place = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": place}
        data += array.tobytes()
    encoded = json.dumps(header).encode()
    (source / "model.safetensors").write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)
    _, params, _ = bertzoo.load(source)
    table = np.asarray(params["embedding"]["word"]["embedding"])
    assert table.dtype == np.float32
    np.testing.assert_array_equal(table, halves[TABLE].astype(np.float32))


@pytest.mark.parametrize("shapes", [{}, {"b/é": (2, 3), "a/kernel": (), "c": (0, 2)}])
def test_the_digest_is_the_hash_of_the_written_file(shapes: dict[str, tuple[int, ...]], tmp_path):
    arrays = {name: np.full(shape, index, np.float32) for index, (name, shape) in enumerate(shapes.items())}
    tensors.write_safetensors(arrays, tmp_path / "file")
    assert tensors.digest(arrays) == atomic.file_hash(tmp_path / "file")


def test_shards(tmp_path):
    """test_hostile.py has indexes that are wrong."""
    plain, source = tiny_bert.write(tmp_path / "plain"), tiny_bert.write(tmp_path / "source")
    found = tiny_bert.tensors()
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = {name: names[index % 2] for index, name in enumerate(found)}
    for file in names:
        save_file({name: array for name, array in found.items() if places[name] == file}, source / file)
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert same(plain, source)


def test_a_pickle_without_torch(tmp_path, capsys, monkeypatch):
    source = tiny_bert.write(tmp_path / "source")
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert convert(source, tmp_path / "out") == 2
    assert mentions(capsys.readouterr().err, "pytorch_model.bin", "torch ")


def test_a_pickle_with_compressed_entries_is_rejected_unread(tmp_path):
    """A deflate bomb: torch would unpack gigabytes from a megabyte before it finds that they are no tensors."""
    file = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", bytes(1 << 20))
    with pytest.raises(UserError, match=mentioning(file, "m/data.pkl", f"{1 << 20:,}")):
        tensors.read_pickled(file)


def test_existing_files_at_the_destination_stay(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, part in (("full", "empty"), ("file", "a file"), ("source", "DST")):
        assert convert(source, tmp_path / name) == 2
        assert mentions(capsys.readouterr().err, tmp_path / name, part)
    assert (tmp_path / "full" / "mine").read_text() == (tmp_path / "file").read_text() == "mine"
    assert convert(tmp_path / "nowhere", tmp_path / "out") == 2
    assert mentions(capsys.readouterr().err, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert convert(tmp_path / "empty", tmp_path / "out") == 2
    assert mentions(capsys.readouterr().err, tmp_path / "empty", "run")
    assert convert(source, tmp_path / "empty") == 0


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    from bertzoo.data.tokenizers import tokenizer

    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer, "save", interrupt)
    source = tiny_bert.write(tmp_path / "source")
    assert convert(source, tmp_path / "out") == 3
    assert sorted(tmp_path.iterdir()) == [source]


def test_a_damaged_model_directory(tmp_path, capsys):
    source = tiny_bert.write(tmp_path / "source")
    toml = {
        "hash": (lambda d: flip(d / "parameters.safetensors"), ("parameters.safetensors", "hash", "model.toml")),
        "gone": (lambda d: (d / "parameters.safetensors").unlink(), ("parameters.safetensors",)),
        "table": (lambda d: (d / "model.toml").write_text("x = "), ("model.toml", "is damaged")),
        "field": (lambda d: replace(d, "layers = 1", "layerz = 1"), ("layerz", "layers")),
        "size": (lambda d: replace(d, "layers = 1", "layers = 2"), ("model.toml", "encoder/layers_1")),
    }
    for name, (prepare, parts) in toml.items():
        assert convert(source, tmp_path / name) == 0
        prepare(tmp_path / name)
        capsys.readouterr()
        assert convert(tmp_path / name, tmp_path / "out", to="huggingface") == 2
        refused(capsys, *parts)
        assert not (tmp_path / "out").exists()


def replace(directory: Path, old: str, new: str) -> None:
    path = directory / "model.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_the_example_in_the_docstring(tmp_path, monkeypatch):
    tiny_bert.write(
        tmp_path / "tiny",
        {n.removeprefix("bert."): a for n, a in tiny_bert.tensors().items() if "bert." in n},
        architectures=["BertModel"],
    )
    monkeypatch.chdir(tmp_path)
    bertzoo.convert("tiny", "embedder", to="bertzoo", pooling="mean")
    result = doctest.testmod(bertzoo.api.models, extraglobs={"bertzoo": bertzoo}, report=True)
    assert result.attempted >= 6 and not result.failed
