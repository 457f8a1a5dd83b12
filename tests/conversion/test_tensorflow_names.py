"""TensorFlow 1 checkpoints without TensorFlow: names, axes, sizes, configs and errors; the reader is a fake."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_layouts as layouts
from messages import mentioning, refused

import bertzoo
from bertzoo.cli.main import main
from bertzoo.conversion import huggingface, tensorflow1
from bertzoo.conversion.rules import to_theirs
from bertzoo.core.config import load, shipped
from bertzoo.core.errors import UserError
from bertzoo.runs import load_model, warm_start
from bertzoo.runs.configs import Pretrain
from tests.planning.test_sizes import EXACT

SMALL = {"vocab": 20, "hidden": 12, "layers": 2, "heads": 3, "inner": 10, "positions": 9}
FIELDS = {  # the layouts' names of sizes, and ours
    **{"vocab": "vocab_size", "embedding": "embedding_size", "hidden": "hidden_size", "layers": "layers"},
    **{"heads": "heads", "inner": "feed_forward_size", "positions": "max_positions"},
}
BERT = {
    "vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 10, "max_position_embeddings": 9, "type_vocab_size": 2,
}  # fmt: skip
MOBILE = {**SMALL, "embedding": 5, "narrow": 6, "stages": 3, "norm": "no_norm", "input": "shared", "pooler": False}
RELEASED = {  # what every released MobileBERT has
    "hidden_act": "relu", "trigram_input": True, "use_bottleneck": True, "key_query_shared_bottleneck": True,
    "normalization_type": "no_norm", "classifier_activation": False,
}  # fmt: skip
MOBILEBERT = {**BERT, **RELEASED, "embedding_size": 5, "intra_bottleneck_size": 6, "num_feedforward_networks": 3}
TINY = {"use_bottleneck_attention": True, "key_query_shared_bottleneck": False}
TEACHER = {**BERT, "embedding_size": 5, "trigram_input": True, "use_bottleneck": True, "intra_bottleneck_size": 18}
IB = {**MOBILE, "narrow": 18, "stages": 1, "norm": "layer_norm", "input": "stream", "pooler": True}
WITH_BOTH = "bert/pooler/", "cls/seq_relationship/"


def without(*starts: str) -> list[layouts.Variable]:
    return [v for v in layouts.bert(SMALL) if not v.name.startswith(starts)]


# The variables, the bert_config.json, and some expected fields of the model and its head.
CASES: dict[str, tuple[list[layouts.Variable], dict[str, Any], dict[str, Any]]] = {
    "bert": (without(), BERT, {"activation": "gelu_tanh", "heads": 3, "sentence": True, "pooler": True}),
    "bert, one head": (without(*WITH_BOTH), BERT, {"sentence": False, "pooler": False}),
    "bert alone": (without("cls/"), BERT | {"hidden_act": "relu"}, {"activation": "relu", "pooler": True}),
    "mobilebert": ([*layouts.mobilebert(MOBILE)], MOBILEBERT, {"attention_input": "shared", "feed_forwards": 3}),
    "tiny": (
        [*layouts.mobilebert(MOBILE | {"input": "bottleneck"})],
        MOBILEBERT | TINY,
        {"attention_input": "bottleneck", "norm": "no_norm", "mask_padding": False},
    ),
    "the teacher": (
        [*layouts.mobilebert(IB)],
        TEACHER,
        {"attention_input": "stream", "norm": "layer_norm", "bottleneck_size": 18, "activation": "gelu_tanh"},
    ),
    "no bottleneck": (
        [*layouts.mobilebert(IB | {"narrow": None, "embedding": 12})],
        BERT | {"trigram_input": True},
        {"bottleneck_size": None, "embedding_size": 12},
    ),
}
ELECTRA = {**SMALL, "embedding": 6, "hidden": 128, "heads": 2, "inner": 20}
CONVBERT = {**ELECTRA, "heads": 4, "groups": 2, "window": 5}
# The discriminator and the generator; of the first the embeddings are as wide as the layers.
TOWERS = {
    "electra": (ELECTRA | {"embedding": 128}, ELECTRA | {"embedding": 128, "hidden": 64, "heads": 1, "inner": 16}),
    "convbert": (CONVBERT, CONVBERT | {"hidden": 32, "heads": 1, "inner": 8}),
}


def place(folder: Path, found: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, config: Any = None) -> Path:
    """A checkpoint of these variables, as far as anything but TensorFlow can see."""
    folder.mkdir(exist_ok=True)
    (folder / "model.ckpt.index").touch()
    if config is not None:
        (folder / "bert_config.json").write_text(config if isinstance(config, str) else json.dumps(config))

    def read(prefix: Path, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
        assert prefix == folder / "model.ckpt"
        return {name: array for name, array in found.items() if wanted(name)}

    monkeypatch.setattr(tensorflow1, "read_variables", read)
    return folder


def assert_same(params: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert params.keys() == expected.keys()
    for path, array in expected.items():
        assert np.array_equal(params[path], array), path


@pytest.mark.parametrize("case", CASES)
def test_bert_and_mobilebert(case: str, tmp_path, monkeypatch):
    listed, config, wanted = CASES[case]
    found = layouts.values(listed)
    beside = {f"{scope}/LayerNorm/beta": np.ones(3) for scope in ("teacher/bert/embeddings", "hidden_distill_0")}
    made = load_model.read_model(place(tmp_path, found | beside, monkeypatch, config))
    assert_same(made.params, layouts.expected(listed, found))
    for name, value in wanted.items():
        holder = made.head if name == "sentence" or (name == "pooler" and made.model.kind == "bert") else made.model
        assert getattr(holder, name) == value, name
    table = tensorflow1.variable_rules(tensorflow1.FAMILIES[made.model.kind], made.model, made.head, "bert")
    assert_same(to_theirs(table, made.params, "model"), {v.name: found[v.name] for v in listed})


@pytest.mark.parametrize("place_in", ["", "model.ckpt"], ids=["directory", "prefix"])
def test_a_run_starts_from_one(place_in: str, tmp_path, monkeypatch):
    listed = without()
    found = layouts.values(listed)
    path = place(tmp_path, found, monkeypatch, BERT) / place_in
    changes = {f"model.{FIELDS[size]}": str(number) for size, number in SMALL.items()}
    changes["model.activation"] = "gelu_tanh"
    changes |= {"data.tokenizer.vocab_size": "20"}
    changes |= {f"stages.{i}.{n}": str(size) for i in (0, 1) for n, size in (("max_length", 9), ("max_predictions", 2))}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    begun = warm_start.read_warm_start(path, load(Pretrain, ["bert_base"], [*changes.items()]))
    assert begun.report == [f"taken from {path}: embedding, encoder, masked_head, pooler, sentence_head"]
    assert_same(begun.params, layouts.expected(listed, found))
    assert [begun.tokenizer.token(i) for i in range(20)] == words and begun.record["path"] == str(path)


@pytest.mark.parametrize("kind", TOWERS)
def test_discriminator_and_generator(kind: str, tmp_path, monkeypatch):
    first, second = (
        list(part(c)) for part, c in zip((layouts.discriminator, layouts.generator), TOWERS[kind], strict=True)
    )
    temperature = {"generator_predictions/temperature": np.ones((), np.float32)}
    found = layouts.values([*{v.name: v for v in (*first, *second)}.values()]) | temperature
    made = bertzoo.load(place(tmp_path, found, monkeypatch))
    assert made.model.embedding.word.features == TOWERS[kind][0]["embedding"]
    both = load_model.read_model(tmp_path)
    assert both.generator is not None
    assert (both.model.kind, both.head.kind, both.model.activation) == (kind, "replaced", "gelu")
    for read, listed, scope, c in zip(
        (both, both.generator), (first, second), ("electra", "generator"), TOWERS[kind], strict=True
    ):
        assert_same(read.params, layouts.expected(listed, found))
        assert (read.model.heads, read.model.layers) == (c["heads"], 2)
        table = tensorflow1.variable_rules(tensorflow1.FAMILIES[kind], read.model, read.head, scope)
        assert_same(to_theirs(table, read.params, "model"), {v.name: found[v.name] for v in listed})
    for head, read in ((), both), (("--head=masked",), both.generator):
        out = tmp_path / f"out{len(head)}"
        assert main(["convert", str(tmp_path / "model.ckpt"), str(out), "--to=bertzoo", *head]) == 0
        back = load_model.read_model(out)
        assert (back.model, back.head) == (read.model, read.head)
        assert_same(back.params, read.params)


def test_one_tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without replaced token detection ELECTRA's code gives the head to the only encoder.
    listed = [v._replace(name=v.name.replace("generator/", "electra/")) for v in layouts.generator(ELECTRA)]
    found = layouts.values(listed)
    made = load_model.read_model(place(tmp_path, found, monkeypatch))
    assert (made.head.kind, made.generator) == ("masked", None)
    assert_same(made.params, layouts.expected(listed, found))
    told = load_model.read_model(place(tmp_path, found, monkeypatch, {"num_attention_heads": 4})).model
    assert (made.model.heads, told) == (2, replace(made.model, heads=4))
    bare = {name: array for name, array in found.items() if name.startswith("electra/")}
    assert load_model.read_model(place(tmp_path, bare, monkeypatch)).head.kind == "none"


OFFICIAL: dict[str, dict[str, Any]] = {}
OFFICIAL["bert_base"] = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
    "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
OFFICIAL["ib_bert_large"] = OFFICIAL["bert_base"] | {
    "hidden_size": 512, "intermediate_size": 4096, "num_attention_heads": 4, "num_hidden_layers": 24,
    "embedding_size": 128, "trigram_input": True, "use_bottleneck": True, "intra_bottleneck_size": 1024,
}  # fmt: skip
OFFICIAL["mobilebert"] = OFFICIAL["ib_bert_large"] | RELEASED | {
    "hidden_dropout_prob": 0.0, "intermediate_size": 512, "intra_bottleneck_size": 128, "num_feedforward_networks": 4,
}  # fmt: skip
OFFICIAL["mobilebert_tiny"] = OFFICIAL["mobilebert"] | TINY | {"num_feedforward_networks": 2}


def shipped_model(name: str) -> Any:
    """A shipped config's model, as it computes with released weights: its windows see padding."""
    model = load(Pretrain, [shipped()[name]]).model
    return replace(model, mask_padding=False) if hasattr(model, "mask_padding") else model


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_configs_are_the_shipped_ones(name: str):
    kind, told = tensorflow1.complete_bert_config(OFFICIAL[name])
    model = shipped_model(name)
    # docs/fidelity.md: the config's is the exact one
    changes = {"activation": "gelu_tanh"} if name == "bert_base" else {}
    assert huggingface.read_model_config(tensorflow1.FAMILIES[kind], told, "json") == replace(model, **changes)


@pytest.mark.parametrize(
    "name", ["electra_small", "electra_base", "convbert_small", "convbert_medium_small", "convbert_base"]
)
def test_released_sizes_follow_from_shapes(name: str):
    recipe = load(Pretrain, [shipped()[name]])
    model, width = shipped_model(name), recipe.objective.generator_width
    more = {"groups": model.feed_forward_groups, "window": 9} if model.kind == "convbert" else {}
    hidden = round(model.hidden_size * width)
    heads = max(1, round(model.heads * width)) if more else max(1, hidden // 64)
    first = {size: getattr(model, field) for size, field in FIELDS.items()} | more
    listed = {"electra": [*layouts.discriminator(first)]}
    second = first | {"hidden": hidden, "heads": heads, "inner": 4 * hidden}
    listed["generator"] = [*layouts.generator(second)]
    shapes = {v.name: v.shape for scope in listed.values() for v in scope}
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == EXACT[name][2]
    found = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
    family = tensorflow1.FAMILIES[model.kind]
    made = {scope: tensorflow1.infer_electra_config(Path("x"), found, scope) for scope in listed}
    assert huggingface.read_model_config(family, made["electra"], "x") == model
    small = {"hidden_size": hidden, "heads": heads, "feed_forward_size": 4 * hidden}
    assert huggingface.read_model_config(family, made["generator"], "x") == replace(model, **small)


def test_where_a_checkpoint_is(tmp_path):
    assert tensorflow1.find_checkpoint(tmp_path) is None and tensorflow1.find_checkpoint(tmp_path / "none") is None
    for step in (5, 10):
        (tmp_path / f"model.ckpt-{step}.index").touch()
    assert tensorflow1.find_checkpoint(tmp_path / "model.ckpt-5") == tmp_path / "model.ckpt-5"
    with pytest.raises(UserError, match=mentioning(tmp_path, "2 TensorFlow checkpoints")):
        tensorflow1.find_checkpoint(tmp_path)
    state = 'model_checkpoint_path: "gs://there/model.ckpt-5"\nall_model_checkpoint_paths: "gs://there/model.ckpt-10"\n'
    (tmp_path / "checkpoint").write_text(state)
    assert tensorflow1.find_checkpoint(tmp_path) == tmp_path / "model.ckpt-5"


@pytest.mark.parametrize("word", ["word", "Word"])
def test_case_of_the_vocabulary(word: str, tmp_path, monkeypatch):
    listed = without()
    place(tmp_path, layouts.values(listed), monkeypatch, BERT)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", word, *"abcdefghijklmn"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    tokenizer = bertzoo.load(tmp_path).tokenizer
    assert tokenizer.config.lowercase == (word == "word")
    assert list(tokenizer.encode_batch(["Word"])[0]) == [words.index(word)]
    (tmp_path / "vocab.txt").write_text("\n".join(words[:-3]) + "\n")
    with pytest.raises(UserError, match=mentioning("vocabulary", 17)):
        load_model.read_model(tmp_path)


def changed(**changes: Any) -> dict[str, np.ndarray]:
    """BERT's variables, some replaced, or left out by None."""
    found = layouts.values(without()) | {name.replace("__", "/"): array for name, array in changes.items()}
    return {name: array for name, array in found.items() if array is not None}


QUERY = "bert/encoder/layer_0/attention/self/query/kernel"
ADDED = {"output_weights": np.ones((3, 12), np.float32)}
REFUSED: dict[str, tuple[dict[str, np.ndarray], Any, tuple]] = {
    "missing": (changed(bert__pooler__dense__bias=None), BERT, ("lacks", "bert/pooler/dense/bias")),
    "more": (changed() | ADDED, BERT, ("output_weights", "model.ckpt")),
    "a layer more": (changed(), BERT | {"num_hidden_layers": 1}, ("holds", "bert/encoder/layer_1/")),
    "another shape": (changed() | {QUERY: np.ones((10, 12), np.float32)}, BERT, (QUERY, "(10, 12)", "(12, 12)")),
    "integers": (changed() | {QUERY: np.ones((12, 12), np.int32)}, BERT, (QUERY, "int32")),
    "no config": (changed(), None, ("bert_config.json",)),
    "no size": (changed(), {"hidden_size": 12}, ("bert_config.json", "vocab_size")),
    "damaged": (changed(), "{", ("bert_config.json", "line 1")),
    "a list": (changed(), "[1]", ("bert_config.json", "a list")),
    "an unknown attribute": (changed(), BERT | {"colour": 1}, ("colour", "1")),
    "heads": (changed(), BERT | {"num_attention_heads": 5}, ("heads", "5", 12, "num_attention_heads")),
    "token types": (changed(), {**BERT, "type_vocab_size": None}, ("token_type_embeddings", "(2, 12)", "(16, 12)")),
    "activation": (changed(), BERT | {"hidden_act": "relu6"}, ("hidden_act", "'relu6'", "gelu, relu")),
    "no trigrams": (changed(), BERT | {"use_bottleneck": True}, ("trigram_input", False)),
    "norm": (changed(), MOBILEBERT | {"normalization_type": "manual"}, ("'manual'", "layer_norm, no_norm")),
    "something else": (ADDED, BERT, ("BERT", "MobileBERT", "ELECTRA", "ConvBERT")),
    "electra without": ({"electra/x": np.ones(1)}, None, ("lacks", "electra/embeddings/word_embeddings")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path, monkeypatch, capsys):
    found, config, parts = REFUSED[case]
    place(tmp_path / "tf", found, monkeypatch, config)
    assert main(["convert", str(tmp_path / "tf"), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    refused(capsys, *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["tf"]


def test_a_missing_head_prints_an_error(tmp_path, monkeypatch, capsys):
    found = layouts.values([*layouts.discriminator(ELECTRA)])
    place(tmp_path, found, monkeypatch)
    assert main(["convert", str(tmp_path), str(tmp_path / "out"), "--to=bertzoo", "--head=masked"]) == 2
    refused(capsys, "masked", "replaced")


def test_without_tensorflow(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "model.ckpt.index").touch()
    assert main(["convert", str(tmp_path), str(tmp_path / "out"), "--to=bertzoo"]) == 2
    refused(capsys, "tensorflow", "pip install -c constraints.txt -e '.[tf]'")
