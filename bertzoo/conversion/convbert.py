"""ConvBERT's tensor names and config attributes at Hugging Face, whose convolutions do not mask padding."""

from collections.abc import Iterable

from bertzoo.conversion import electra, family
from bertzoo.conversion.family import Attribute, Family
from bertzoo.conversion.rules import TensorRule, dense, norm, same
from bertzoo.models import ConvBert


def _backbone(model: ConvBert) -> Iterable[TensorRule]:
    yield from family.embedding_rules(model)
    yield from electra.projection_rules(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.layer.{i}"
        yield from family.attention_rules(ours, theirs)
        yield from _convolution(f"{ours}/attention/convolution", f"{theirs}.attention.self")
        for name, place in (("intermediate", "intermediate.dense"), ("output", "output.dense")):
            yield from _feed_forward(f"{ours}/feed_forward/{name}", f"{theirs}.{place}", model.feed_forward_groups)
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output.LayerNorm")


def _convolution(ours: str, theirs: str) -> Iterable[TensorRule]:
    key = f"{theirs}.key_conv_attn_layer"
    yield TensorRule(f"{ours}/span_key/depthwise/kernel", "W D", f"{key}.depthwise.weight", "D 1 W")
    yield TensorRule(f"{ours}/span_key/pointwise/kernel", "D H K", f"{key}.pointwise.weight", "(H K) D 1")
    yield TensorRule(f"{ours}/span_key/pointwise/bias", "H K", f"{key}.bias", "(H K) 1")
    yield from dense(f"{ours}/kernel_generator", f"{theirs}.conv_kernel_layer", "I", "H W")
    yield from dense(f"{ours}/value", f"{theirs}.conv_out_layer", "D", "H K")


def _feed_forward(ours: str, theirs: str, groups: int) -> Iterable[TensorRule]:
    if groups == 1:
        yield from dense(ours, theirs, "I", "O")
        return
    yield TensorRule(f"{ours}/kernel", "1 I (G O)", f"{theirs}.weight", "G I O", {"G": groups})
    yield same(f"{ours}/bias", f"{theirs}.bias", "O")


def _unsupported(model: ConvBert, key: str) -> str | None:
    heads = max(1, model.heads // model.head_ratio)
    size = model.hidden_size // heads // 2
    if model.convolution != "span":
        return f"that class has only span-based convolution, but this model has convolution = {model.convolution}"
    if size != model.hidden_size // model.heads:
        return (
            f"that class has {heads} attention and {heads} convolution heads with {size} channels each, but this model "
            f"(heads = {model.heads}, hidden_size = {model.hidden_size}) has "
            f"{model.hidden_size // model.heads} channels per head"
        )
    return electra.unsupported_generator(model, key)


FAMILY = Family(
    model_type="convbert",
    config=ConvBert,
    prefix="convbert.",
    attributes=(
        *family.bert_attributes(embedding_size=768, head_ratio=2),
        Attribute("conv_kernel_size", "kernel_size", 9),
        Attribute("num_groups", "feed_forward_groups", 1),
    ),
    rules=_backbone,
    pooler=None,
    tied=electra.TIED,
    heads=family.standard_heads(
        "ConvBert",
        "classifier_dropout",
        electra.generator_head,
        sequence=family.hidden_layer_head("classifier.dense", "classifier.out_proj"),
    ),
    hidden=lambda model: model.activation,
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    unsupported=_unsupported,
    read_more=lambda attributes: {"mask_padding": False},
)
