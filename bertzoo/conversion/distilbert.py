"""DistilBERT at Hugging Face, which has its own names for everything."""

from collections.abc import Iterable

from bertzoo.conversion.family import (
    ACTIVATIONS,
    Attribute,
    Family,
    HeadLayout,
    bert_embeddings,
    hidden,
    masked_head,
    no_rows,
    plain,
)
from bertzoo.conversion.table import Row, dense, norm
from bertzoo.models import DistilBert


def rows(model: DistilBert) -> Iterable[Row]:
    """Embeddings and layers."""
    yield from bert_embeddings(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"transformer.layer.{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.{name[0]}_lin", "D", "H K")
        yield from dense(f"{ours}/attention/output", f"{theirs}.attention.out_lin", "H K", "D")
        yield from norm(f"{ours}/attention_norm", f"{theirs}.sa_layer_norm")
        yield from dense(f"{ours}/feed_forward/intermediate", f"{theirs}.ffn.lin1", "D", "F")
        yield from dense(f"{ours}/feed_forward/output", f"{theirs}.ffn.lin2", "F", "D")
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output_layer_norm")


def masked(model: DistilBert) -> Iterable[Row]:
    """The masked language model head."""
    return masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")


def refuse(model: DistilBert, key: str) -> str | None:
    """Every norm has the same epsilon, which no attribute holds."""
    return None if model.norm_epsilon == 1e-12 else f"its norms have 1e-12, but norm_epsilon = {model.norm_epsilon}"


FAMILY = Family(
    model_type="distilbert",
    config=DistilBert,
    prefix="distilbert.",
    attributes=(
        Attribute("vocab_size", "vocab_size", 30522),
        Attribute("dim", "hidden_size", 768),
        Attribute("n_layers", "layers", 6),
        Attribute("n_heads", "heads", 12),
        Attribute("hidden_dim", "feed_forward_size", 3072),
        Attribute("activation", "activation", "gelu", ACTIVATIONS),
        Attribute("dropout", "dropout", 0.1),
        Attribute("attention_dropout", "attention_dropout", 0.1),
        Attribute("max_position_embeddings", "max_positions", 512),
        Attribute("initializer_range", "initializer_range", 0.02),
    ),
    rows=rows,
    pooler=None,
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    heads={
        "none": HeadLayout("DistilBertModel", no_rows),
        "masked": HeadLayout("DistilBertForMaskedLM", masked),
        "sequence_classification": HeadLayout(
            "DistilBertForSequenceClassification", hidden("pre_classifier", "classifier"), "seq_classif_dropout"
        ),
        "token_classification": HeadLayout(
            "DistilBertForTokenClassification", plain("token_classifier", "classifier"), "dropout"
        ),
        "span": HeadLayout("DistilBertForQuestionAnswering", plain("span_head", "qa_outputs"), "qa_dropout"),
    },
    hidden=lambda model: "relu",
    dropouts={"seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    fixed={"tie_weights_": True},
    # Sinusoidal positions are only how the table starts: they are stored like any other.
    ignored=frozenset({"sinusoidal_pos_embds"}),
    refuse=refuse,
)
