"""Declare how Hugging Face stores an architecture: the names of its tensors and of its config attributes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bertzoo.conversion.rules import TensorRule, Tensors, dense, norm, same
from bertzoo.core.errors import UserError


class Inexpressible(UserError):
    """Raised if Hugging Face's transformers has no class that computes the model; the message has the reason."""


# Attributes that do not change a model's outputs at inference, or that the head or the tokenizer reads.
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
        "thresholds",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        "xla_device",
    }
)
# Attributes that change a model's outputs, each with the only supported value.
FIXED: Mapping[str, Any] = {
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "position_embedding_type": "absolute",
    "pruned_heads": {},
    "tie_word_embeddings": True,
}
SENTENCE = "_sentence"  # end of the key of a head that also has a sentence head
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
Rules = Callable[[Any], Iterable[TensorRule]]  # model config -> rules of its tensors


@dataclass(frozen=True)
class Attribute:
    """An attribute in Hugging Face's config.json (`theirs`) and the field of our model config for it (`ours`)."""

    theirs: str
    ours: str
    default: Any  # transformers' value if the attribute is missing
    # {supported value in config.json: value in our config}; empty if both configs have the same values
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadLayout:
    """How Hugging Face stores a head."""

    architecture: str  # name of the class with this head
    rules: Rules
    dropout: str | None = None  # config attribute of the head's dropout rate, if any
    needs_pooler: bool = False  # whether the class always has a pooler


@dataclass(frozen=True, kw_only=True)
class Family:
    """How Hugging Face stores an architecture, whose model config class is `config`."""

    model_type: str  # the architecture's name in config.json
    config: type
    prefix: str  # start of the backbone's tensor names in a model with a head
    attributes: tuple[Attribute, ...]  # attributes of config.json that each hold one field of the model config
    rules: Rules  # returns the tensor rules of the backbone without the pooler
    pooler: str | None  # name of the pooler's tensors, if any
    tied: Mapping[str, str]  # {name of a tensor that repeats another tensor: name of the other tensor}
    # layout of each head by its kind; "masked_sentence" is a masked head with a sentence head
    heads: Mapping[str, HeadLayout]
    # returns the activation of the hidden layer in the sequence classification head, or "none"
    hidden: Callable[[Any], str] = lambda model: "none"
    token_hidden: Callable[[Any], str] = lambda model: "none"  # the same for the heads on every token
    # {classifier_pooling in config.json: pooling of our sequence classification head}
    poolings: Mapping[str, str] = field(default_factory=dict)
    input_dropout: bool = False  # whether dropout precedes this hidden layer
    # {end of the name of a layer whose weight joins several: names of these, in order}
    joined: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)  # {attribute: the only value that bertzoo supports}
    sentence: Literal["nsp", "sop"] = "nsp"  # the sentence head's objective
    # {attribute to write, with the id of a special token: field of `Specials`}
    token_ids: Mapping[str, str] = field(default_factory=lambda: {"pad_token_id": "pad"})
    ignored: frozenset[str] = frozenset()  # attributes without effect on the model
    # defaults of the attributes that hold a head's dropout rate
    dropouts: Mapping[str, Any] = field(default_factory=dict)
    # (model, head key) -> the reason why Hugging Face's class would compute other outputs, or None
    unsupported: Callable[[Any, str], str | None] = lambda model, key: None
    more: frozenset[str] = frozenset()  # attributes that set fields of the model config only in combination
    # computes these fields from all attributes
    read_more: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda attributes: {}
    # computes the attributes in `more` from the model config
    write_more: Callable[[Any], dict[str, Any]] = lambda model: {}

    def split(self, named: Tensors) -> Tensors:
        """Return the tensors with those of `joined` split along their first axis."""
        result: Tensors = {}
        for name, array in named.items():
            layer, dot, end = name.rpartition(".")
            joined = next((whole for whole in self.joined if layer.endswith(f".{whole}")), None)
            if joined is None:
                result[name] = array
                continue
            layers = self.joined[joined]
            if len(array) % len(layers):
                raise UserError(f"{name} has {len(array)} rows, which {len(layers)} layers cannot share evenly.")
            for split_name, weight in zip(layers, np.split(array, len(layers)), strict=True):
                result[f"{layer.removesuffix(joined)}{split_name}{dot}{end}"] = weight
        return result

    def join(self, named: Tensors) -> Tensors:
        """Undo `split`."""
        for whole, layers in self.joined.items():
            for first in [name for name in named if f".{layers[0]}." in name]:
                arrays = [named.pop(first.replace(f".{layers[0]}.", f".{layer}.")) for layer in layers]
                named[first.replace(f".{layers[0]}.", f".{whole}.")] = np.concatenate(arrays)
        return named


def bert_attributes(**defaults: Any) -> tuple[Attribute, ...]:
    """Return BERT's config attributes, which most architectures share.

    defaults: those of transformers that are not BERT's, by attribute, and attributes that BERT lacks.
    """
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


def standard_heads(
    name: str, dropout: str, masked: Rules, sentence: str = "", sequence: Rules | None = None, *, pooled: bool = False
) -> dict[str, HeadLayout]:
    """Return the layouts of the heads that all architectures have, by key in `Family.heads`.

    name: start of Hugging Face's class names, such as "Bert".
    dropout: config attribute of the classifiers' dropout rate.
    masked: rules of the masked language model head.
    sentence: name of the sentence head beside it; empty if Hugging Face has no class for both.
    sequence: rules of the sequence classification head, or None if it is a single dense layer.
    pooled: whether Hugging Face's class for sequence classification always has a pooler.
    """
    heads = {
        "none": HeadLayout(f"{name}Model", lambda model: ()),
        "sequence_classification": HeadLayout(
            f"{name}ForSequenceClassification", sequence or linear_head("classifier", "classifier"), dropout, pooled
        ),
        "token_classification": HeadLayout(
            f"{name}ForTokenClassification", linear_head("token_classifier", "classifier"), dropout
        ),
        "span": HeadLayout(f"{name}ForQuestionAnswering", linear_head("span_head", "qa_outputs")),
        "masked": HeadLayout(f"{name}ForMaskedLM", masked),
    }
    if sentence:
        heads[f"masked{SENTENCE}"] = HeadLayout(
            f"{name}ForPreTraining",
            lambda model: (*masked(model), *dense("sentence_head", sentence, "D", "C")),
            needs_pooler=True,
        )
    return heads


def linear_head(ours: str, theirs: str) -> Rules:
    """Return a function from the model config to the tensor rules of a head that is a single dense layer."""
    return lambda model: dense(f"{ours}/output", theirs, "D", "C")


def hidden_layer_head(inner: str, outer: str) -> Rules:
    """Return a function from the model config to the rules of a head of two dense layers, `inner` and `outer`."""
    return lambda model: (*dense("classifier/dense", inner, "D", "P"), *dense("classifier/output", outer, "P", "C"))


def masked_head(dense_name: str, norm_name: str, bias_name: str) -> Rules:
    """Return a function from the model config to the rules of a masked LM head, without the word embeddings."""
    return lambda model: (
        *dense("masked_head/dense", dense_name, "D", "E"),
        *norm("masked_head/norm", norm_name),
        same("masked_head/bias", bias_name, "V"),
    )


def embedding_rules(model: Any) -> Iterable[TensorRule]:
    """Yield the tensor rules of the embedding tables and norm, whose names all architectures share."""
    names = ["word", "position"] + (["token_type"] if model.token_types else [])
    for name in names:
        yield same(f"embedding/{name}/embedding", f"embeddings.{name}_embeddings.weight", "V E")
    yield from norm("embedding/norm", "embeddings.LayerNorm")


# The modules of a layer with norms after its sums: paths in bertzoo, and the axes of linear layers.
_LAYER = (
    *((f"attention/{name}", "D", "H K") for name in ("query", "key", "value")),
    ("attention/output", "H K", "D"),
    ("attention_norm",),
    ("feed_forward/intermediate", "D", "F"),
    ("feed_forward/output", "F", "D"),
    ("feed_forward_norm",),
)


def layer_rules(
    ours: str, theirs: str, names: Iterable[str], linear: Callable[..., Iterable[TensorRule]] = dense
) -> Iterable[TensorRule]:
    """Yield the tensor rules of a layer, or of its first modules.

    ours, theirs: the layer's prefix in our parameter paths and in the other project's tensor names.
    names: the other project's names of query, key, value, attention's output, the norm after it, both feed-forward
    layers and the norm after these; fewer names omit the last modules. linear: rules of a linear layer.
    """
    for (path, *axes), name in zip(_LAYER, names, strict=False):
        yield from (linear if axes else norm)(f"{ours}/{path}", f"{theirs}.{name}", *axes)


def backbone_rules(names: Sequence[str], theirs: str, linear: Callable[..., Iterable[TensorRule]] = dense) -> Rules:
    """Return a function from a model config to the rules of the embedding and all layers.

    names, linear: as in `layer_rules`. theirs: Hugging Face's prefix of all layers, which a layer's number follows.
    """
    return lambda model: (
        *embedding_rules(model),
        *(r for i in range(model.layers) for r in layer_rules(f"encoder/layers_{i}", f"{theirs}.{i}", names, linear)),
    )


BERT_ATTENTION = (
    *(f"attention.self.{name}" for name in ("query", "key", "value")),
    "attention.output.dense",
    "attention.output.LayerNorm",
)
BERT_BACKBONE = backbone_rules(
    (*BERT_ATTENTION, "intermediate.dense", "output.dense", "output.LayerNorm"), "encoder.layer"
)
_TRANSFORM = "cls.predictions.transform"
BERT_MASKED = masked_head(f"{_TRANSFORM}.dense", f"{_TRANSFORM}.LayerNorm", "cls.predictions.bias")
BERT_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
