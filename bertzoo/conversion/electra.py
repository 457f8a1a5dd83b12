"""ELECTRA at Hugging Face: discriminator and generator are one class of backbone under two heads."""

from collections.abc import Iterable

from bertzoo.conversion.family import (
    Family,
    HeadLayout,
    bert_attributes,
    bert_embeddings,
    bert_layers,
    hidden,
    masked_head,
    no_rows,
    plain,
)
from bertzoo.conversion.table import Row, dense
from bertzoo.models import ConvBert, Electra

TIED = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}


def projection(model: Electra | ConvBert) -> Iterable[Row]:
    """From the embeddings' width to the layers', where these differ."""
    if model.embedding_size != model.hidden_size:
        yield from dense("encoder/projection", "embeddings_project", "E", "D")


def generator_head(model: Electra | ConvBert) -> Iterable[Row]:
    """The masked language model head."""
    return masked_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")


def discriminator_head(model: Electra) -> Iterable[Row]:
    """The head of replaced token detection."""
    yield from dense("replaced_head/dense", "discriminator_predictions.dense", "D", "P")
    yield from dense("replaced_head/output", "discriminator_predictions.dense_prediction", "P", "C")


def refuse(model: Electra | ConvBert, key: str) -> str | None:
    """The generator's head has an exact gelu whatever hidden_act says."""
    if key == "masked" and model.activation != "gelu":
        return f"its masked language model head has gelu, but activation = {model.activation}"
    return None


FAMILY = Family(
    model_type="electra",
    config=Electra,
    prefix="electra.",
    attributes=bert_attributes(hidden_size=256, num_attention_heads=4, intermediate_size=1024, embedding_size=128),
    rows=lambda model: (*bert_embeddings(model), *projection(model), *bert_layers(model)),
    pooler=None,
    tied=TIED,
    heads={
        "none": HeadLayout("ElectraModel", no_rows),
        "masked": HeadLayout("ElectraForMaskedLM", generator_head),
        "replaced": HeadLayout("ElectraForPreTraining", discriminator_head),
        "sequence_classification": HeadLayout(
            "ElectraForSequenceClassification",
            hidden("classifier.dense", "classifier.out_proj"),
            "classifier_dropout",
        ),
        "token_classification": HeadLayout(
            "ElectraForTokenClassification", plain("token_classifier", "classifier"), "classifier_dropout"
        ),
        "span": HeadLayout("ElectraForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
    hidden=lambda model: "gelu",
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    # Of the multiple choice class alone.
    ignored=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    refuse=refuse,
)
