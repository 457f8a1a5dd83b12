"""DistilBERT's tensor names and config attributes at Hugging Face, which mostly differ from BERT's."""

from collections.abc import Iterable

from bertzoo.conversion import family
from bertzoo.conversion.family import Attribute, Family, HeadLayout
from bertzoo.conversion.rules import TensorRule, dense, norm
from bertzoo.models import DistilBert


def _backbone(model: DistilBert) -> Iterable[TensorRule]:
    yield from family.embedding_rules(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"transformer.layer.{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.{name[0]}_lin", "D", "H K")
        yield from dense(f"{ours}/attention/output", f"{theirs}.attention.out_lin", "H K", "D")
        yield from norm(f"{ours}/attention_norm", f"{theirs}.sa_layer_norm")
        yield from dense(f"{ours}/feed_forward/intermediate", f"{theirs}.ffn.lin1", "D", "F")
        yield from dense(f"{ours}/feed_forward/output", f"{theirs}.ffn.lin2", "F", "D")
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output_layer_norm")


def _masked(model: DistilBert) -> Iterable[TensorRule]:
    return family.masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")


def _unsupported(model: DistilBert, key: str) -> str | None:
    """Return why Hugging Face's class cannot compute a model, or None if it can.

    The class supports only norm_epsilon = 1e-12.
    """
    return (
        None
        if model.norm_epsilon == 1e-12
        else f"that class has norm_epsilon = 1e-12, but this model has {model.norm_epsilon}"
    )


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
        Attribute("activation", "activation", "gelu", family.ACTIVATIONS),
        Attribute("dropout", "dropout", 0.1),
        Attribute("attention_dropout", "attention_dropout", 0.1),
        Attribute("max_position_embeddings", "max_positions", 512),
        Attribute("initializer_range", "initializer_range", 0.02),
    ),
    rules=_backbone,
    pooler=None,
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    heads={
        **family.standard_heads("DistilBert", "dropout", _masked),
        "sequence_classification": HeadLayout(
            "DistilBertForSequenceClassification",
            family.hidden_layer_head("pre_classifier", "classifier"),
            "seq_classif_dropout",
        ),
        "span": HeadLayout(
            "DistilBertForQuestionAnswering", family.linear_head("span_head", "qa_outputs"), "qa_dropout"
        ),
    },
    hidden=lambda model: "relu",
    dropouts={"seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    fixed={"tie_weights_": True},
    # Sinusoidal positions only initialise the table, which is stored like any other.
    ignored=frozenset({"sinusoidal_pos_embds"}),
    unsupported=_unsupported,
)
