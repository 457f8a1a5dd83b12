"""ALBERT's tensor names and config attributes at Hugging Face, for models that repeat a single layer."""

from collections.abc import Iterable

from bertzoo.conversion import family
from bertzoo.conversion.family import Family
from bertzoo.conversion.rules import TensorRule, dense, norm
from bertzoo.models import Albert


def _backbone(model: Albert) -> Iterable[TensorRule]:
    yield from family.embedding_rules(model)
    yield from dense("encoder/projection", "encoder.embedding_hidden_mapping_in", "E", "D")
    ours, theirs = "encoder/layers_0", "encoder.albert_layer_groups.0.albert_layers.0"
    for name in ("query", "key", "value"):
        yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.{name}", "D", "H K")
    yield from dense(f"{ours}/attention/output", f"{theirs}.attention.dense", "H K", "D")
    yield from norm(f"{ours}/attention_norm", f"{theirs}.attention.LayerNorm")
    yield from dense(f"{ours}/feed_forward/intermediate", f"{theirs}.ffn", "D", "F")
    yield from dense(f"{ours}/feed_forward/output", f"{theirs}.ffn_output", "F", "D")
    yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.full_layer_layer_norm")


def _masked(model: Albert) -> Iterable[TensorRule]:
    return family.masked_head("predictions.dense", "predictions.LayerNorm", "predictions.bias")


def _pretraining(model: Albert) -> Iterable[TensorRule]:
    yield from _masked(model)
    yield from dense("sentence_head", "sop_classifier.classifier", "D", "C")


FAMILY = Family(
    model_type="albert",
    config=Albert,
    prefix="albert.",
    attributes=family.bert_attributes(
        vocab_size=30000,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        embedding_size=128,
    ),
    rules=_backbone,
    pooler="pooler",
    tied={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    heads=family.standard_heads("Albert", "classifier_dropout_prob", _masked, _pretraining, pooled=True),
    dropouts={"classifier_dropout_prob": 0.1},
    sentence="sop",
    fixed={"num_hidden_groups": 1, "inner_group_num": 1},
    # In the published releases' config.json; no code reads them.
    ignored=frozenset({"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"}),
)
