"""SqueezeBERT at Hugging Face, whose classes all carry the pooler, though but one head reads it.

A model pretrained without one is written without: transformers then draws it anew, and says so.
"""

from collections.abc import Iterable

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
from bertzoo.conversion.table import Row, convolution, norm
from bertzoo.models import SqueezeBert


def rows(model: SqueezeBert) -> Iterable[Row]:
    """Embeddings and layers."""
    yield from bert_embeddings(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.layers.{i}"
        for name in ("query", "key", "value"):
            yield from convolution(f"{ours}/attention/{name}", f"{theirs}.attention.{name}")
        yield from convolution(f"{ours}/attention/output", f"{theirs}.post_attention.conv1d")
        yield from norm(f"{ours}/attention_norm", f"{theirs}.post_attention.layernorm")
        yield from convolution(f"{ours}/feed_forward/intermediate", f"{theirs}.intermediate.conv1d")
        yield from convolution(f"{ours}/feed_forward/output", f"{theirs}.output.conv1d")
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output.layernorm")


FAMILY = Family(
    model_type="squeezebert",
    config=SqueezeBert,
    prefix="transformer.",
    attributes=(
        *bert_attributes(),
        Attribute("embedding_size", "hidden_size", 768),  # another width has no projection there
        Attribute("q_groups", "query_groups", 4),
        Attribute("k_groups", "key_groups", 4),
        Attribute("v_groups", "value_groups", 4),
        Attribute("post_attention_groups", "attention_output_groups", 1),
        Attribute("intermediate_groups", "intermediate_groups", 4),
        Attribute("output_groups", "output_groups", 4),
    ),
    fixed={"layer_norm_eps": 1e-12},  # the norms of the layers have this whatever the attribute says
    rows=rows,
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads={
        "none": HeadLayout("SqueezeBertModel", no_rows),
        "masked": HeadLayout("SqueezeBertForMaskedLM", bert_masked_head),
        "sequence_classification": HeadLayout(
            "SqueezeBertForSequenceClassification",
            plain("classifier", "classifier"),
            "hidden_dropout_prob",
            needs_pooler=True,
        ),
        "token_classification": HeadLayout(
            "SqueezeBertForTokenClassification",
            plain("token_classifier", "classifier"),
            "hidden_dropout_prob",
        ),
        "span": HeadLayout("SqueezeBertForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
)
