"""MobileBERT at Hugging Face, which can neither run IB-BERT nor give every LayerNorm one epsilon."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion.family import (
    BERT_TIED,
    Attribute,
    Family,
    HeadLayout,
    bert_attributes,
    bert_embeddings,
    bert_masked_head,
    no_rows,
    plain,
)
from bertzoo.conversion.table import Row, dense, norm, same
from bertzoo.core.errors import ConfigError
from bertzoo.models import MobileBert

# The flags of its bottleneck, with the library's defaults.
_FLAGS = {"use_bottleneck": True, "key_query_shared_bottleneck": True, "use_bottleneck_attention": False}


def rows(model: MobileBert) -> Iterable[Row]:
    """Embeddings and layers."""
    yield from bert_embeddings(model)
    transformation = "embeddings.embedding_transformation"
    yield Row("embedding/transformation/kernel", "W E D", f"{transformation}.weight", "D (W E)")
    yield same("embedding/transformation/bias", f"{transformation}.bias", "D")
    for i in range(model.layers):
        yield from _layer(model, f"encoder/layers_{i}", f"encoder.layer.{i}")


def _layer(model: MobileBert, ours: str, theirs: str) -> Iterable[Row]:
    for name in ("query", "key", "value"):
        yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.self.{name}", "D", "H K")
    yield from dense(f"{ours}/attention/output", f"{theirs}.attention.output.dense", "H K", "D")
    yield from norm(f"{ours}/attention_norm", f"{theirs}.attention.output.LayerNorm")
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


def _bottleneck(ours: str, theirs: str) -> Iterable[Row]:
    yield from dense(f"{ours}/dense", f"{theirs}.dense", "D", "I")
    yield from norm(f"{ours}/norm", f"{theirs}.LayerNorm")


def masked(model: MobileBert) -> Iterable[Row]:
    """BERT's head and, where the table is narrower than the stream, the weights of the rest."""
    yield from bert_masked_head(model)
    if model.embedding_size < model.hidden_size:
        yield same("masked_head/extra/kernel", "cls.predictions.dense.weight", "I V")


def pretraining(model: MobileBert) -> Iterable[Row]:
    """That, and the head of the sentence pair."""
    yield from masked(model)
    yield from dense("sentence_head", "cls.seq_relationship", "D", "C")


def read_more(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Where queries, keys and values are read from, and the width between."""
    fields: dict[str, Any] = {"mask_padding": False}
    flags = {name: attributes.get(name, default) for name, default in _FLAGS.items()}
    if wrong := next((name for name, value in flags.items() if not isinstance(value, bool)), None):
        raise ConfigError(f"{wrong} must be true or false, not {flags[wrong]!r}")
    narrow, shared, whole = flags.values()
    if not narrow:
        return fields | {"bottleneck_size": "none", "attention_input": "stream"}
    if shared and whole:  # the first is the library's default
        raise ConfigError(
            "use_bottleneck_attention = true leaves the tensors bottleneck.attention of every layer unused, which "
            "key_query_shared_bottleneck = true (the default) makes: save the model without them, and say false there"
        )
    source = "bottleneck" if whole else "shared" if shared else "stream"
    return fields | {"bottleneck_size": attributes.get("intra_bottleneck_size", 128), "attention_input": source}


def write_more(model: MobileBert) -> dict[str, Any]:
    """The way back."""
    narrow = model.bottleneck_size is not None
    return {
        "use_bottleneck": narrow,
        "intra_bottleneck_size": model.bottleneck_size if narrow else model.hidden_size,
        "key_query_shared_bottleneck": model.attention_input == "shared",
        "use_bottleneck_attention": model.attention_input == "bottleneck",
    }


def refuse(model: MobileBert, key: str) -> str | None:
    """What its code cannot do."""
    if model.bottleneck_size not in (None, model.hidden_size) and model.attention_input == "stream":
        return "its queries and keys are read from a bottleneck, but attention_input = stream"
    return None


FAMILY = Family(
    model_type="mobilebert",
    config=MobileBert,
    prefix="mobilebert.",
    attributes=(
        *bert_attributes(
            hidden_size=512,
            num_hidden_layers=24,
            num_attention_heads=4,
            intermediate_size=512,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
            embedding_size=128,
        ),
        Attribute("num_feedforward_networks", "feed_forwards", 4),
        # Of its LayerNorms two have the library's epsilon and the others the attribute's.
        Attribute("normalization_type", "norm", "no_norm", {"no_norm": "no_norm"}),
        Attribute("classifier_activation", "pooler", True),
    ),
    rows=rows,
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads={
        "none": HeadLayout("MobileBertModel", no_rows),
        "masked": HeadLayout("MobileBertForMaskedLM", masked),
        "masked_sentence": HeadLayout("MobileBertForPreTraining", pretraining, needs_pooler=True),
        "sequence_classification": HeadLayout(
            "MobileBertForSequenceClassification",
            plain("classifier", "classifier"),
            "classifier_dropout",
            needs_pooler=True,
        ),
        "token_classification": HeadLayout(
            "MobileBertForTokenClassification", plain("token_classifier", "classifier"), "classifier_dropout"
        ),
        "span": HeadLayout("MobileBertForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
    dropouts={"classifier_dropout": None},
    fixed={"trigram_input": True},
    ignored=frozenset({"true_hidden_size"}),  # says what others say
    refuse=refuse,
    more=frozenset({*_FLAGS, "intra_bottleneck_size"}),
    read_more=read_more,
    write_more=write_more,
)
