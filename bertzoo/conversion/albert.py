"""ALBERT at Hugging Face: one group of one layer."""

from collections.abc import Iterable

from bertzoo.conversion.family import Family, HeadLayout, bert_attributes, bert_embeddings, masked_head, no_rows, plain
from bertzoo.conversion.table import Row, dense, norm
from bertzoo.models import Albert


def rows(model: Albert) -> Iterable[Row]:
    """Embeddings, projection and the one layer."""
    yield from bert_embeddings(model)
    yield from dense("encoder/projection", "encoder.embedding_hidden_mapping_in", "E", "D")
    ours, theirs = "encoder/layers_0", "encoder.albert_layer_groups.0.albert_layers.0"
    for name in ("query", "key", "value"):
        yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.{name}", "D", "H K")
    yield from dense(f"{ours}/attention/output", f"{theirs}.attention.dense", "H K", "D")
    yield from norm(f"{ours}/attention_norm", f"{theirs}.attention.LayerNorm")
    yield from dense(f"{ours}/feed_forward/intermediate", f"{theirs}.ffn", "D", "F")
    yield from dense(f"{ours}/feed_forward/output", f"{theirs}.ffn_output", "F", "D")
    yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.full_layer_layer_norm")


def masked(model: Albert) -> Iterable[Row]:
    """The masked language model head."""
    return masked_head("predictions.dense", "predictions.LayerNorm", "predictions.bias")


def pretraining(model: Albert) -> Iterable[Row]:
    """The masked language model head and that of the sentence order."""
    yield from masked(model)
    yield from dense("sentence_head", "sop_classifier.classifier", "D", "C")


FAMILY = Family(
    model_type="albert",
    config=Albert,
    prefix="albert.",
    attributes=bert_attributes(
        vocab_size=30000,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        embedding_size=128,
    ),
    rows=rows,
    pooler="pooler",
    tied={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    heads={
        "none": HeadLayout("AlbertModel", no_rows),
        "masked": HeadLayout("AlbertForMaskedLM", masked),
        "masked_sentence": HeadLayout("AlbertForPreTraining", pretraining, needs_pooler=True),
        "sequence_classification": HeadLayout(
            "AlbertForSequenceClassification",
            plain("classifier", "classifier"),
            "classifier_dropout_prob",
            needs_pooler=True,
        ),
        "token_classification": HeadLayout(
            "AlbertForTokenClassification", plain("token_classifier", "classifier"), "classifier_dropout_prob"
        ),
        "span": HeadLayout("AlbertForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
    dropouts={"classifier_dropout_prob": 0.1},
    sentence="sop",
    fixed={"num_hidden_groups": 1, "inner_group_num": 1},
    # Of the published releases' config.json; nothing reads them.
    ignored=frozenset({"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"}),
)
