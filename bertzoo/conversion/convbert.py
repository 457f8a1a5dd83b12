"""ConvBERT at Hugging Face: span-based dynamic convolution, padding and all."""

from collections.abc import Iterable

from bertzoo.conversion import electra
from bertzoo.conversion.family import (
    Attribute,
    Family,
    HeadLayout,
    bert_attributes,
    bert_embeddings,
    hidden,
    no_rows,
    plain,
)
from bertzoo.conversion.table import Row, dense, norm, same
from bertzoo.models import ConvBert


def rows(model: ConvBert) -> Iterable[Row]:
    """Embeddings, projection and layers."""
    yield from bert_embeddings(model)
    yield from electra.projection(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{ours}/attention/{name}", f"{theirs}.attention.self.{name}", "D", "H K")
        yield from _convolution(f"{ours}/attention/convolution", f"{theirs}.attention.self")
        yield from dense(f"{ours}/attention/output", f"{theirs}.attention.output.dense", "H K", "D")
        yield from norm(f"{ours}/attention_norm", f"{theirs}.attention.output.LayerNorm")
        for name, place in (("intermediate", "intermediate.dense"), ("output", "output.dense")):
            yield from _feed_forward(f"{ours}/feed_forward/{name}", f"{theirs}.{place}", model.feed_forward_groups)
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output.LayerNorm")


def _convolution(ours: str, theirs: str) -> Iterable[Row]:
    key = f"{theirs}.key_conv_attn_layer"
    yield Row(f"{ours}/span_key/depthwise/kernel", "W D", f"{key}.depthwise.weight", "D 1 W")
    yield Row(f"{ours}/span_key/pointwise/kernel", "D H K", f"{key}.pointwise.weight", "(H K) D 1")
    yield Row(f"{ours}/span_key/pointwise/bias", "H K", f"{key}.bias", "(H K) 1")
    yield from dense(f"{ours}/kernel_generator", f"{theirs}.conv_kernel_layer", "I", "H W")
    yield from dense(f"{ours}/value", f"{theirs}.conv_out_layer", "D", "H K")


def _feed_forward(ours: str, theirs: str, groups: int) -> Iterable[Row]:
    if groups == 1:
        yield from dense(ours, theirs, "I", "O")
        return
    yield Row(f"{ours}/kernel", "1 I (G O)", f"{theirs}.weight", "G I O", {"G": groups})
    yield same(f"{ours}/bias", f"{theirs}.bias", "O")


def refuse(model: ConvBert, key: str) -> str | None:
    """What its code cannot do."""
    heads = max(1, model.heads // model.head_ratio)
    size = model.hidden_size // heads // 2
    if model.convolution != "span":
        return f"its heads convolve with spans, but convolution = {model.convolution}"
    if size != model.hidden_size // model.heads:
        return (
            f"its {heads} heads of either sort have {size} channels, but heads = {model.heads} of "
            f"hidden_size = {model.hidden_size} make {model.hidden_size // model.heads}"
        )
    return electra.refuse(model, key)


FAMILY = Family(
    model_type="convbert",
    config=ConvBert,
    prefix="convbert.",
    attributes=(
        *bert_attributes(embedding_size=768, head_ratio=2),
        Attribute("conv_kernel_size", "kernel_size", 9),
        Attribute("num_groups", "feed_forward_groups", 1),
    ),
    rows=rows,
    pooler=None,
    tied=electra.TIED,
    heads={
        "none": HeadLayout("ConvBertModel", no_rows),
        "masked": HeadLayout("ConvBertForMaskedLM", electra.generator_head),
        "sequence_classification": HeadLayout(
            "ConvBertForSequenceClassification",
            hidden("classifier.dense", "classifier.out_proj"),
            "classifier_dropout",
        ),
        "token_classification": HeadLayout(
            "ConvBertForTokenClassification", plain("token_classifier", "classifier"), "classifier_dropout"
        ),
        "span": HeadLayout("ConvBertForQuestionAnswering", plain("span_head", "qa_outputs")),
    },
    hidden=lambda model: model.activation,
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    refuse=refuse,
    read_more=lambda attributes: {"mask_padding": False},
)
