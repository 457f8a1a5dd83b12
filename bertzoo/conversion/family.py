"""What one architecture's file says about its Hugging Face side: names of tensors and of config attributes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bertzoo.conversion.table import Row, dense, norm, same
from bertzoo.core.errors import UserError


class Inexpressible(UserError):
    """Hugging Face's transformers has no class that computes what the model does; the message says why."""


# Attributes that say nothing about what a model computes at inference, or that the head or the tokenizer says.
IGNORED = frozenset(
    {
        "_name_or_path",
        "_num_labels",
        "architectures",
        "attn_implementation",
        "bos_token_id",
        "cls_token_id",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "label2id",
        "mask_token_id",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        "xla_device",
    }
)
# Attributes that would change what is computed; anything but these values is refused.
FIXED: Mapping[str, Any] = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "tie_word_embeddings": True,
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


@dataclass(frozen=True)
class Attribute:
    """One attribute of config.json: our field, the library's default where it is absent, their values for ours."""

    theirs: str
    ours: str
    default: Any
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadLayout:
    """One head: the class that holds it, its tensors, the attribute that holds its dropout, None where it has none."""

    architecture: str
    rows: Callable[[Any], Iterable[Row]]
    dropout: str | None = None
    needs_pooler: bool = False


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture.

    prefix: of the backbone's tensors under a head. rows: of the backbone without the pooler, by our model config.
    tied: a tensor that repeats another one. heads: by `kind`, with "masked_sentence" for the two heads of pretraining.
    hidden: the activation of the hidden layer in the sequence classification head, or none, by our model config;
    input_dropout: whether that layer has dropout before it. fixed: attributes with one possible value.
    sentence: what the head for sentence pairs was trained for.
    refuse: a sentence on a model under a head that Hugging Face's class would compute otherwise, or None.
    read_more, write_more: for what several attributes say together: attributes (named in `more`) -> fields, and back.
    """

    model_type: str
    config: type
    prefix: str
    attributes: tuple[Attribute, ...]
    rows: Callable[[Any], Iterable[Row]]
    pooler: str | None
    tied: Mapping[str, str]
    heads: Mapping[str, HeadLayout]
    hidden: Callable[[Any], str] = lambda model: "none"
    input_dropout: bool = False
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sentence: Literal["nsp", "sop"] = "nsp"
    ignored: frozenset[str] = frozenset()
    dropouts: Mapping[str, Any] = field(default_factory=dict)
    refuse: Callable[[Any, str], str | None] = lambda model, key: None
    more: frozenset[str] = frozenset()
    read_more: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda attributes: {}
    write_more: Callable[[Any], dict[str, Any]] = lambda model: {}


def bert_attributes(**defaults: Any) -> tuple[Attribute, ...]:
    """The attributes that BERT's descendants share; `defaults` are those of the library that are not BERT's."""
    table = (
        Attribute("vocab_size", "vocab_size", 30522),
        Attribute("hidden_size", "hidden_size", 768),
        Attribute("num_hidden_layers", "layers", 12),
        Attribute("num_attention_heads", "heads", 12),
        Attribute("intermediate_size", "feed_forward_size", 3072),
        Attribute("hidden_act", "activation", "gelu", ACTIVATIONS),
        Attribute("hidden_dropout_prob", "dropout", 0.1),
        Attribute("attention_probs_dropout_prob", "attention_dropout", 0.1),
        Attribute("max_position_embeddings", "max_positions", 512),
        Attribute("type_vocab_size", "token_types", 2),
        Attribute("initializer_range", "initializer_range", 0.02),
        Attribute("layer_norm_eps", "norm_epsilon", 1e-12),
    )
    changed = {a.theirs: Attribute(a.theirs, a.ours, defaults.pop(a.theirs, a.default), a.values) for a in table}
    return (*changed.values(), *(Attribute(theirs, theirs, default) for theirs, default in defaults.items()))


def bert_embeddings(model: Any) -> Iterable[Row]:
    """The tables and the norm, under the names that all of them use."""
    names = ["word", "position"] + (["token_type"] if model.token_types else [])
    for name in names:
        yield same(f"embedding/{name}/embedding", f"embeddings.{name}_embeddings.weight", "V E")
    yield from norm("embedding/norm", "embeddings.LayerNorm")


def bert_layers(model: Any) -> Iterable[Row]:
    """BERT's layers."""
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.self.{name}", "D", "H K")
        yield from dense(f"{ours}/attention/output", f"{theirs}.attention.output.dense", "H K", "D")
        yield from norm(f"{ours}/attention_norm", f"{theirs}.attention.output.LayerNorm")
        yield from dense(f"{ours}/feed_forward/intermediate", f"{theirs}.intermediate.dense", "D", "F")
        yield from dense(f"{ours}/feed_forward/output", f"{theirs}.output.dense", "F", "D")
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output.LayerNorm")


def pooler(theirs: str) -> Iterable[Row]:
    """The tanh pooler's dense map."""
    return dense("pooler", theirs, "D", "P")


def masked_head(dense_name: str, norm_name: str, bias_name: str) -> Iterable[Row]:
    """The masked language model head without its tied table."""
    yield from dense("masked_head/dense", dense_name, "D", "E")
    yield from norm("masked_head/norm", norm_name)
    yield same("masked_head/bias", bias_name, "V")


def bert_masked_head(model: Any) -> Iterable[Row]:
    """BERT's, under the name `cls`."""
    transform = "cls.predictions.transform"
    return masked_head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias")


def bert_pretraining_heads(model: Any) -> Iterable[Row]:
    """The masked language model head and that of the sentence pair."""
    yield from bert_masked_head(model)
    yield from dense("sentence_head", "cls.seq_relationship", "D", "C")


BERT_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def no_rows(model: Any) -> Iterable[Row]:
    """For a class without a head."""
    return ()


def plain(ours: str, theirs: str) -> Callable[[Any], Iterable[Row]]:
    """A head that is one dense map."""
    return lambda model: dense(f"{ours}/output", theirs, "D", "C")


def hidden(inner: str, outer: str) -> Callable[[Any], Iterable[Row]]:
    """A sequence classification head with a hidden layer."""
    return lambda model: (
        *dense("classifier/dense", inner, "D", "P"),
        *dense("classifier/output", outer, "P", "C"),
    )
