"""ELECTRA's tensor names and config attributes at Hugging Face; generator and discriminator differ in their heads."""

from collections.abc import Iterable

from bertzoo.conversion import family
from bertzoo.conversion.family import Family, HeadLayout
from bertzoo.conversion.rules import TensorRule, dense
from bertzoo.models import ConvBert, Electra

TIED = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}


def projection_rules(model: Electra | ConvBert) -> Iterable[TensorRule]:
    """Yield the tensor rules of the projection from the embeddings to the layers, if their widths differ."""
    if model.embedding_size != model.hidden_size:
        yield from dense("encoder/projection", "embeddings_project", "E", "D")


def generator_head(model: Electra | ConvBert) -> Iterable[TensorRule]:
    """Return the tensor rules of the generator's masked language model head."""
    names = "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
    return family.masked_head(*names)


def discriminator_head(model: Electra) -> Iterable[TensorRule]:
    """Yield the tensor rules of the discriminator's head, for replaced token detection."""
    yield from dense("replaced_head/dense", "discriminator_predictions.dense", "D", "P")
    yield from dense("replaced_head/output", "discriminator_predictions.dense_prediction", "P", "C")


def unsupported_generator(model: Electra | ConvBert, key: str) -> str | None:
    """Return why Hugging Face's class cannot compute the head `key` of a model, or None if it can.

    The class with the masked language model head always uses gelu in this head.
    """
    if key == "masked" and model.activation != "gelu":
        return f"that class has gelu in its head, but this model has activation = {model.activation}"
    return None


FAMILY = Family(
    model_type="electra",
    config=Electra,
    prefix="electra.",
    attributes=family.bert_attributes(
        hidden_size=256, num_attention_heads=4, intermediate_size=1024, embedding_size=128
    ),
    rules=lambda model: (*family.embedding_rules(model), *projection_rules(model), *family.bert_layer_rules(model)),
    pooler=None,
    tied=TIED,
    heads={
        **family.standard_heads(
            "Electra",
            "classifier_dropout",
            generator_head,
            sequence=family.hidden_layer_head("classifier.dense", "classifier.out_proj"),
        ),
        "replaced": HeadLayout("ElectraForPreTraining", discriminator_head),
    },
    hidden=lambda model: "gelu",
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    # Only the multiple choice class reads them.
    ignored=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    unsupported=unsupported_generator,
)
