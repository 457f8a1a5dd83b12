"""SqueezeBERT's tensor names and config attributes at Hugging Face, where all classes have a pooler.

Only the sequence classification head reads the pooler. A model without a pooler is written without the pooler's
tensors; transformers then adds a random pooler and warns.
"""

from collections.abc import Iterable

from bertzoo.conversion import family
from bertzoo.conversion.family import Attribute, Family
from bertzoo.conversion.rules import TensorRule, convolution, norm
from bertzoo.models import SqueezeBert


def _backbone(model: SqueezeBert) -> Iterable[TensorRule]:
    yield from family.embedding_rules(model)
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
        *family.bert_attributes(),
        Attribute("embedding_size", "hidden_size", 768),  # there is no projection for another width
        Attribute("q_groups", "query_groups", 4),
        Attribute("k_groups", "key_groups", 4),
        Attribute("v_groups", "value_groups", 4),
        Attribute("post_attention_groups", "attention_output_groups", 1),
        Attribute("intermediate_groups", "intermediate_groups", 4),
        Attribute("output_groups", "output_groups", 4),
    ),
    fixed={"layer_norm_eps": 1e-12},  # the layers' norms have this epsilon, whatever the attribute says
    rules=_backbone,
    pooler="pooler.dense",
    tied=family.BERT_TIED,
    heads=family.standard_heads("SqueezeBert", "hidden_dropout_prob", family.bert_masked_head, pooled=True),
)
