"""MobileBERT's tensor names and config attributes at Hugging Face; neither IB-BERT nor LayerNorm is supported."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion import family
from bertzoo.conversion.family import Attribute, Family
from bertzoo.conversion.rules import TensorRule, dense, norm, same
from bertzoo.core.errors import ConfigError
from bertzoo.models import MobileBert

# Attributes of the bottleneck, with transformers' defaults.
_FLAGS = {"use_bottleneck": True, "key_query_shared_bottleneck": True, "use_bottleneck_attention": False}


def _backbone(model: MobileBert) -> Iterable[TensorRule]:
    yield from family.embedding_rules(model)
    transformation = "embeddings.embedding_transformation"
    yield TensorRule("embedding/transformation/kernel", "W E D", f"{transformation}.weight", "D (W E)")
    yield same("embedding/transformation/bias", f"{transformation}.bias", "D")
    for i in range(model.layers):
        yield from _layer(model, f"encoder/layers_{i}", f"encoder.layer.{i}")


def _layer(model: MobileBert, ours: str, theirs: str) -> Iterable[TensorRule]:
    yield from family.attention_rules(ours, theirs)
    narrow = model.bottleneck_size is not None
    for j in range(model.feed_forwards):
        place, last = f"_{j}" if narrow else "", j == model.feed_forwards - 1
        stage = theirs if last else f"{theirs}.ffn.{j}"
        yield from dense(f"{ours}/feed_forward{place}/intermediate", f"{stage}.intermediate.dense", "D", "F")
        yield from dense(f"{ours}/feed_forward{place}/output", f"{stage}.output.dense", "F", "D")
        yield from norm(f"{ours}/feed_forward_norm{place}", f"{stage}.output.LayerNorm")
    if narrow:
        yield from _bottleneck(f"{ours}/bottleneck", f"{theirs}.bottleneck.input")
        yield from dense(f"{ours}/output", f"{theirs}.output.bottleneck.dense", "I", "D")
        yield from norm(f"{ours}/output_norm", f"{theirs}.output.bottleneck.LayerNorm")
    if model.attention_input == "shared":
        yield from _bottleneck(f"{ours}/attention_input", f"{theirs}.bottleneck.attention")


def _bottleneck(ours: str, theirs: str) -> Iterable[TensorRule]:
    yield from dense(f"{ours}/dense", f"{theirs}.dense", "D", "I")
    yield from norm(f"{ours}/norm", f"{theirs}.LayerNorm")


def _masked(model: MobileBert) -> Iterable[TensorRule]:
    """Yield the tensor rules of BERT's masked head and, if embedding_size < hidden_size, of extra output weights."""
    yield from family.bert_masked_head(model)
    if model.embedding_size < model.hidden_size:
        yield same("masked_head/extra/kernel", "cls.predictions.dense.weight", "I V")


def _pretraining(model: MobileBert) -> Iterable[TensorRule]:
    yield from _masked(model)
    yield from dense("sentence_head", "cls.seq_relationship", "D", "C")


def _read_more(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model config's bottleneck_size, attention_input and mask_padding from config.json's attributes."""
    fields: dict[str, Any] = {"mask_padding": False}
    flags = {name: attributes.get(name, default) for name, default in _FLAGS.items()}
    if wrong := next((name for name, value in flags.items() if not isinstance(value, bool)), None):
        raise ConfigError(f"{wrong} = {flags[wrong]!r} is neither true nor false. Use true or false.")
    narrow, shared, whole = flags.values()
    if not narrow:
        return fields | {"bottleneck_size": "none", "attention_input": "stream"}
    if shared and whole:  # true is transformers' default of key_query_shared_bottleneck
        raise ConfigError(
            "use_bottleneck_attention = true and key_query_shared_bottleneck = true (its default) leave the tensors "
            "bottleneck.attention unused. Set key_query_shared_bottleneck = false and save the model without these "
            "tensors."
        )
    source = "bottleneck" if whole else "shared" if shared else "stream"
    return fields | {"bottleneck_size": attributes.get("intra_bottleneck_size", 128), "attention_input": source}


def _write_more(model: MobileBert) -> dict[str, Any]:
    narrow = model.bottleneck_size is not None
    return {
        "use_bottleneck": narrow,
        "intra_bottleneck_size": model.bottleneck_size if narrow else model.hidden_size,
        "key_query_shared_bottleneck": model.attention_input == "shared",
        "use_bottleneck_attention": model.attention_input == "bottleneck",
    }


def _unsupported(model: MobileBert, key: str) -> str | None:
    if model.bottleneck_size not in (None, model.hidden_size) and model.attention_input == "stream":
        return "that class reads queries and keys from a bottleneck, but this model has attention_input = stream"
    return None


FAMILY = Family(
    model_type="mobilebert",
    config=MobileBert,
    prefix="mobilebert.",
    attributes=(
        *family.bert_attributes(
            hidden_size=512,
            num_hidden_layers=24,
            num_attention_heads=4,
            intermediate_size=512,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
            embedding_size=128,
        ),
        Attribute("num_feedforward_networks", "feed_forwards", 4),
        # Not layer_norm: at Hugging Face two LayerNorms ignore the attribute's epsilon.
        Attribute("normalization_type", "norm", "no_norm", {"no_norm": "no_norm"}),
        Attribute("classifier_activation", "pooler", True),
    ),
    rules=_backbone,
    pooler="pooler.dense",
    tied=family.BERT_TIED,
    heads=family.standard_heads("MobileBert", "classifier_dropout", _masked, _pretraining, pooled=True),
    dropouts={"classifier_dropout": None},
    fixed={"trigram_input": True},
    ignored=frozenset({"true_hidden_size"}),  # repeats other attributes
    unsupported=_unsupported,
    more=frozenset({*_FLAGS, "intra_bottleneck_size"}),
    read_more=_read_more,
    write_more=_write_more,
)
