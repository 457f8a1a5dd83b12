"""ModernBERT's tensor names and config attributes at Hugging Face, which joins some of the maps."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion import family
from bertzoo.conversion.family import Attribute, Family, HeadLayout
from bertzoo.conversion.rules import TensorRule, dense, norm
from bertzoo.core.errors import UserError
from bertzoo.models import ModernBert

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_CLASSIFIER = "ModernBertForSequenceClassification"
_POOLINGS = {"cls": "first", "mean": "mean"}
_SAME = {name: name for name in ("pad", "cls", "sep")}
_THETAS = {_GLOBAL: ("global_theta", "global_rope_theta"), _LOCAL: ("local_theta", "local_rope_theta")}


def _linear(ours: str, theirs: str, inputs: str, outputs: str) -> TensorRule:
    return next(dense(ours, theirs, inputs, outputs))


def _scale(ours: str, theirs: str) -> TensorRule:
    return next(norm(ours, theirs))


def _backbone(model: ModernBert) -> Iterable[TensorRule]:
    yield family.same("embedding/word/embedding", "embeddings.tok_embeddings.weight", "V E")
    yield _scale("embedding/norm", "embeddings.norm")
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"layers.{i}"
        if i:
            yield _scale(f"{ours}/attention_norm", f"{theirs}.attn_norm")
        for name in ("query", "key", "value"):
            yield _linear(f"{ours}/attention/{name}", f"{theirs}.attn.{name}", "D", "H K")
        yield _linear(f"{ours}/attention/output", f"{theirs}.attn.Wo", "H K", "D")
        yield _scale(f"{ours}/feed_forward_norm", f"{theirs}.mlp_norm")
        for name in ("intermediate", "gate"):
            yield _linear(f"{ours}/feed_forward/{name}", f"{theirs}.mlp.{name}", "D", "F")
        yield _linear(f"{ours}/feed_forward/output", f"{theirs}.mlp.Wo", "F", "D")
    yield _scale(f"encoder/layers_{model.layers - 1}/output_norm", "final_norm")


def _masked(model: ModernBert) -> Iterable[TensorRule]:
    yield _linear("masked_head/dense", "head.dense", "D", "E")
    yield _scale("masked_head/norm", "head.norm")
    yield family.same("masked_head/bias", "decoder.bias", "V")


def _classifier(name: str) -> family.Rules:
    return lambda model: (
        _linear(f"{name}/dense", "head.dense", "D", "P"),
        _scale(f"{name}/norm", "head.norm"),
        *dense(f"{name}/output", "classifier", "P", "C"),
    )


def _read_more(attributes: Mapping[str, Any]) -> dict[str, Any]:
    pooling, architectures = attributes.get("classifier_pooling", "cls"), attributes.get("architectures") or []
    if pooling not in _POOLINGS and _CLASSIFIER in architectures:
        raise UserError(f"classifier_pooling = {pooling!r} is not supported. Use a model with 'cls' or 'mean'.")
    every = attributes.get("global_attn_every_n_layers", 3)
    if kinds := attributes.get("layer_types"):
        every = next((i for i, kind in enumerate(kinds) if i and kind == _GLOBAL), len(kinds))
        if kinds != [_LOCAL if i % every else _GLOBAL for i in range(len(kinds))]:
            raise UserError(f"layer_types = {kinds} is not supported. Use a model with every n-th layer global.")
    fields: dict[str, Any] = {"global_every": every}
    rotations = attributes.get("rope_parameters") or {}
    for kind, (ours, theirs) in _THETAS.items():
        rotation = rotations.get(kind) or {}
        if (form := rotation.get("rope_type", "default")) != "default":
            raise UserError(f'rope_parameters: rope_type = {form!r} is not supported. Use a model with "default".')
        theta = rotation.get("rope_theta", attributes.get(theirs))
        fields |= {} if theta is None else {ours: float(theta)}
    return fields


FAMILY = Family(
    model_type="modernbert",
    config=ModernBert,
    prefix="model.",
    attributes=(
        Attribute("vocab_size", "vocab_size", 50368),
        Attribute("hidden_size", "hidden_size", 768),
        Attribute("num_hidden_layers", "layers", 22),
        Attribute("num_attention_heads", "heads", 12),
        Attribute("intermediate_size", "feed_forward_size", 1152),
        Attribute("hidden_activation", "activation", "gelu", family.ACTIVATIONS),
        Attribute("classifier_activation", "activation", "gelu", family.ACTIVATIONS),
        Attribute("max_position_embeddings", "max_positions", 8192),
        Attribute("local_attention", "window", 128),
        Attribute("embedding_dropout", "dropout", 0.0),
        Attribute("mlp_dropout", "dropout", 0.0),
        Attribute("attention_dropout", "attention_dropout", 0.0),
        Attribute("initializer_range", "initializer_range", 0.02),
        Attribute("norm_eps", "norm_epsilon", 1e-5),
    ),
    rules=_backbone,
    pooler=None,
    tied={"decoder.weight": "embeddings.tok_embeddings.weight"},
    joined={"attn.Wqkv": ("attn.query", "attn.key", "attn.value"), "mlp.Wi": ("mlp.intermediate", "mlp.gate")},
    heads={
        "none": HeadLayout("ModernBertModel", lambda model: ()),
        "sequence_classification": HeadLayout(_CLASSIFIER, _classifier("classifier"), "classifier_dropout"),
        "token_classification": HeadLayout(
            "ModernBertForTokenClassification", _classifier("token_classifier"), "classifier_dropout"
        ),
        "span": HeadLayout("ModernBertForQuestionAnswering", _classifier("span_head"), "classifier_dropout"),
        "masked": HeadLayout("ModernBertForMaskedLM", _masked),
    },
    token_ids={f"{name}_token_id": token for name, token in {**_SAME, "bos": "cls", "eos": "sep"}.items()},
    hidden=lambda model: model.activation,
    token_hidden=lambda model: model.activation,
    poolings=_POOLINGS,
    dropouts={"classifier_dropout": 0.0},
    fixed={
        "attention_bias": False,
        "classifier_bias": False,
        "causal_mask": False,
        "decoder_bias": True,
        "mlp_bias": False,
        "norm_bias": False,
    },
    ignored=frozenset(
        {
            "deterministic_flash_attn",
            "initializer_cutoff_factor",
            "layer_norm_eps",
            "position_embedding_type",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_pred_ignore_index",
            "sparse_prediction",
            "unk_token_id",
        }
    ),
    more=frozenset(
        {
            "classifier_pooling",
            "global_attn_every_n_layers",
            "global_rope_theta",
            "layer_types",
            "local_rope_theta",
            "rope_parameters",
        }
    ),
    read_more=_read_more,
    write_more=lambda model: {
        "global_attn_every_n_layers": model.global_every,
        **{theirs: getattr(model, ours) for ours, theirs in _THETAS.values()},
    },
)
