"""The architectures at Hugging Face: their tensors' names, config attributes and unsupported settings."""

from collections.abc import Iterable, Mapping
from typing import Any

from bertzoo.conversion.family import (
    ACTIVATIONS,
    BERT_ATTENTION,
    BERT_BACKBONE,
    BERT_MASKED,
    BERT_TIED,
    Attribute,
    Family,
    HeadLayout,
    Rules,
    backbone_rules,
    bert_attributes,
    embedding_rules,
    hidden_layer_head,
    layer_rules,
    linear_head,
    masked_head,
    standard_heads,
)
from bertzoo.conversion.rules import TensorRule, convolution, dense, norm, same
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.models import Albert, Bert, ConvBert, DistilBert, Electra, MobileBert, ModernBert, SqueezeBert

BERT = Family(
    model_type="bert",
    config=Bert,
    prefix="bert.",
    attributes=bert_attributes(),
    rules=BERT_BACKBONE,
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads=standard_heads("Bert", "classifier_dropout", BERT_MASKED, "cls.seq_relationship", pooled=True),
    dropouts={"classifier_dropout": None},
    # In the multilingual release's config.json; no code reads them.
    ignored=frozenset(
        {
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        }
    ),
)


_ALBERT_LAYER = (
    *(f"attention.{name}" for name in ("query", "key", "value", "dense", "LayerNorm")),
    *("ffn", "ffn_output", "full_layer_layer_norm"),
)
ALBERT = Family(
    model_type="albert",
    config=Albert,  # with a single layer, repeated
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
    rules=lambda model: (
        *embedding_rules(model),
        *dense("encoder/projection", "encoder.embedding_hidden_mapping_in", "E", "D"),
        *layer_rules("encoder/layers_0", "encoder.albert_layer_groups.0.albert_layers.0", _ALBERT_LAYER),
    ),
    pooler="pooler",
    tied={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    heads=standard_heads(
        "Albert",
        "classifier_dropout_prob",
        masked_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "sop_classifier.classifier",
        pooled=True,
    ),
    dropouts={"classifier_dropout_prob": 0.1},
    sentence="sop",
    fixed={"num_hidden_groups": 1, "inner_group_num": 1},
    # In the published releases' config.json; no code reads them.
    ignored=frozenset({"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"}),
)

# All classes have a pooler, but only the sequence classification head reads it. A model without a pooler is written
# without the pooler's tensors; transformers then adds a random pooler and warns.
SQUEEZEBERT = Family(
    model_type="squeezebert",
    config=SqueezeBert,
    prefix="transformer.",
    attributes=(
        *bert_attributes(),
        Attribute("embedding_size", "hidden_size", 768),  # there is no projection for another width
        Attribute("q_groups", "query_groups", 4),
        Attribute("k_groups", "key_groups", 4),
        Attribute("v_groups", "value_groups", 4),
        Attribute("post_attention_groups", "attention_output_groups", 1),
        Attribute("intermediate_groups", "intermediate_groups", 4),
        Attribute("output_groups", "output_groups", 4),
    ),
    fixed={"layer_norm_eps": 1e-12},  # the layers' norms have this epsilon, whatever the attribute is
    rules=backbone_rules(
        (
            *(f"attention.{name}" for name in ("query", "key", "value")),
            *(f"post_attention.{name}" for name in ("conv1d", "layernorm")),
            *(f"{layer}.conv1d" for layer in ("intermediate", "output")),
            "output.layernorm",
        ),
        "encoder.layers",
        lambda ours, theirs, *axes: convolution(ours, theirs),
    ),
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads=standard_heads("SqueezeBert", "hidden_dropout_prob", BERT_MASKED, pooled=True),
)


DISTILBERT = Family(
    model_type="distilbert",
    config=DistilBert,
    prefix="distilbert.",
    attributes=(  # none for norm_epsilon: the class always has our default
        Attribute("vocab_size", "vocab_size", 30522),
        Attribute("dim", "hidden_size", 768),
        Attribute("n_layers", "layers", 6),
        Attribute("n_heads", "heads", 12),
        Attribute("hidden_dim", "feed_forward_size", 3072),
        Attribute("activation", "activation", "gelu", ACTIVATIONS),
        Attribute("dropout", "dropout", 0.1),
        Attribute("attention_dropout", "attention_dropout", 0.1),
        Attribute("max_position_embeddings", "max_positions", 512),
        Attribute("initializer_range", "initializer_range", 0.02),
    ),
    rules=backbone_rules(
        (
            *(f"attention.{name}_lin" for name in ("q", "k", "v", "out")),
            "sa_layer_norm",
            "ffn.lin1",
            "ffn.lin2",
            "output_layer_norm",
        ),
        "transformer.layer",
    ),
    pooler=None,
    tied={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    heads={
        **standard_heads(
            "DistilBert", "dropout", masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
        ),
        "sequence_classification": HeadLayout(
            "DistilBertForSequenceClassification",
            hidden_layer_head("pre_classifier", "classifier"),
            "seq_classif_dropout",
        ),
        "span": HeadLayout("DistilBertForQuestionAnswering", linear_head("span_head", "qa_outputs"), "qa_dropout"),
    },
    hidden=lambda model: "relu",
    dropouts={"seq_classif_dropout": 0.2, "qa_dropout": 0.1},
    fixed={"tie_weights_": True},
    # Sinusoidal positions only initialise the position embeddings, which are stored like any other.
    ignored=frozenset({"sinusoidal_pos_embds"}),
)


_GENERATOR_TIED = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}
_GENERATOR = masked_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")


def _projection(model: Electra | ConvBert) -> Iterable[TensorRule]:
    if model.embedding_size != model.hidden_size:
        yield from dense("encoder/projection", "embeddings_project", "E", "D")


def _unsupported_generator(model: Electra | ConvBert, key: str) -> str | None:
    if key == "masked" and model.activation != "gelu":
        return f"that class has gelu in its head, but this model has activation = {model.activation}"
    return None


ELECTRA = Family(
    model_type="electra",
    config=Electra,
    prefix="electra.",
    attributes=bert_attributes(hidden_size=256, num_attention_heads=4, intermediate_size=1024, embedding_size=128),
    rules=lambda model: (*BERT_BACKBONE(model), *_projection(model)),
    pooler=None,
    tied=_GENERATOR_TIED,
    heads={
        **standard_heads(
            "Electra",
            "classifier_dropout",
            _GENERATOR,
            sequence=hidden_layer_head("classifier.dense", "classifier.out_proj"),
        ),
        "replaced": HeadLayout(
            "ElectraForPreTraining",
            lambda model: (
                *dense("replaced_head/dense", "discriminator_predictions.dense", "D", "P"),
                *dense("replaced_head/output", "discriminator_predictions.dense_prediction", "P", "C"),
            ),
        ),
    },
    hidden=lambda model: "gelu",
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    # Only the multiple choice class reads them.
    ignored=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    unsupported=_unsupported_generator,
)


def _convbert_backbone(model: ConvBert) -> Iterable[TensorRule]:
    yield from embedding_rules(model)
    yield from _projection(model)
    for i in range(model.layers):
        ours, theirs = f"encoder/layers_{i}", f"encoder.layer.{i}"
        yield from layer_rules(ours, theirs, BERT_ATTENTION)
        yield from _convolution(f"{ours}/attention/convolution", f"{theirs}.attention.self")
        for name, module in (("intermediate", "intermediate.dense"), ("output", "output.dense")):
            layer, groups = f"{ours}/feed_forward/{name}", model.feed_forward_groups
            if groups == 1:
                yield from dense(layer, f"{theirs}.{module}", "I", "O")
            else:
                yield TensorRule(f"{layer}/kernel", "1 I (G O)", f"{theirs}.{module}.weight", "G I O", {"G": groups})
                yield same(f"{layer}/bias", f"{theirs}.{module}.bias", "O")
        yield from norm(f"{ours}/feed_forward_norm", f"{theirs}.output.LayerNorm")


def _convolution(ours: str, theirs: str) -> Iterable[TensorRule]:
    key = f"{theirs}.key_conv_attn_layer"
    yield TensorRule(f"{ours}/span_key/depthwise/kernel", "W D", f"{key}.depthwise.weight", "D 1 W")
    yield TensorRule(f"{ours}/span_key/pointwise/kernel", "D H K", f"{key}.pointwise.weight", "(H K) D 1")
    yield TensorRule(f"{ours}/span_key/pointwise/bias", "H K", f"{key}.bias", "(H K) 1")
    yield from dense(f"{ours}/kernel_generator", f"{theirs}.conv_kernel_layer", "I", "H W")
    yield from dense(f"{ours}/value", f"{theirs}.conv_out_layer", "D", "H K")


def _unsupported_convbert(model: ConvBert, key: str) -> str | None:
    heads, channels = max(1, model.heads // model.head_ratio), model.hidden_size // model.heads
    if (size := model.hidden_size // heads // 2) != channels:
        return (
            f"that class has {heads} attention and {heads} convolution heads with {size} channels each, but this model "
            f"(heads = {model.heads}, hidden_size = {model.hidden_size}) has {channels} channels per head"
        )
    return _unsupported_generator(model, key)


CONVBERT = Family(
    model_type="convbert",
    config=ConvBert,
    prefix="convbert.",
    attributes=(
        *bert_attributes(embedding_size=768, head_ratio=2),
        Attribute("conv_kernel_size", "kernel_size", 9),
        Attribute("num_groups", "feed_forward_groups", 1),
    ),
    rules=_convbert_backbone,
    pooler=None,
    tied=_GENERATOR_TIED,
    heads=standard_heads(
        "ConvBert",
        "classifier_dropout",
        _GENERATOR,
        sequence=hidden_layer_head("classifier.dense", "classifier.out_proj"),
    ),
    hidden=lambda model: model.activation,
    input_dropout=True,
    dropouts={"classifier_dropout": None},
    unsupported=_unsupported_convbert,
    read_more=lambda attributes: {"mask_padding": False},
)


# Attributes of the bottleneck, with transformers' defaults.
_FLAGS = {"use_bottleneck": True, "key_query_shared_bottleneck": True, "use_bottleneck_attention": False}


def _mobilebert_backbone(model: MobileBert) -> Iterable[TensorRule]:
    yield from embedding_rules(model)
    transformation = "embeddings.embedding_transformation"
    yield TensorRule("embedding/transformation/kernel", "W E D", f"{transformation}.weight", "D (W E)")
    yield same("embedding/transformation/bias", f"{transformation}.bias", "D")
    for i in range(model.layers):
        yield from _mobilebert_layer(model, f"encoder/layers_{i}", f"encoder.layer.{i}")


def _mobilebert_layer(model: MobileBert, ours: str, theirs: str) -> Iterable[TensorRule]:
    yield from layer_rules(ours, theirs, BERT_ATTENTION)
    narrow = model.bottleneck_size is not None
    for j in range(model.feed_forwards):
        suffix, last = f"_{j}" if narrow else "", j == model.feed_forwards - 1
        stage = theirs if last else f"{theirs}.ffn.{j}"
        yield from dense(f"{ours}/feed_forward{suffix}/intermediate", f"{stage}.intermediate.dense", "D", "F")
        yield from dense(f"{ours}/feed_forward{suffix}/output", f"{stage}.output.dense", "F", "D")
        yield from norm(f"{ours}/feed_forward_norm{suffix}", f"{stage}.output.LayerNorm")
    if narrow:
        yield from _bottleneck(f"{ours}/bottleneck", f"{theirs}.bottleneck.input")
        yield from dense(f"{ours}/output", f"{theirs}.output.bottleneck.dense", "I", "D")
        yield from norm(f"{ours}/output_norm", f"{theirs}.output.bottleneck.LayerNorm")
    if model.attention_input == "shared":
        yield from _bottleneck(f"{ours}/attention_input", f"{theirs}.bottleneck.attention")


def _bottleneck(ours: str, theirs: str) -> Iterable[TensorRule]:
    yield from dense(f"{ours}/dense", f"{theirs}.dense", "D", "I")
    yield from norm(f"{ours}/norm", f"{theirs}.LayerNorm")


def _mobilebert_masked(model: MobileBert) -> Iterable[TensorRule]:
    yield from BERT_MASKED(model)
    if model.embedding_size < model.hidden_size:
        yield same("masked_head/extra/kernel", "cls.predictions.dense.weight", "I V")


def _read_bottleneck(attributes: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"mask_padding": False}
    flags = {name: attributes.get(name, default) for name, default in _FLAGS.items()}
    if wrong := next((name for name, value in flags.items() if not isinstance(value, bool)), None):
        raise ConfigError(f"{wrong} = {flags[wrong]!r} is neither true nor false. Use true or false.")
    narrow, shared, whole = flags.values()
    if not narrow:
        return fields | {"bottleneck_size": "none", "attention_input": "stream"}
    if shared and whole:  # true is transformers' default of key_query_shared_bottleneck
        raise ConfigError(
            "use_bottleneck_attention = true and key_query_shared_bottleneck = true (its default) leave the tensors "
            "bottleneck.attention unused. Set key_query_shared_bottleneck = false and save the model without these "
            "tensors."
        )
    source = "bottleneck" if whole else "shared" if shared else "stream"
    return fields | {"bottleneck_size": attributes.get("intra_bottleneck_size", 128), "attention_input": source}


def _write_bottleneck(model: MobileBert) -> dict[str, Any]:
    narrow = model.bottleneck_size is not None
    return {
        "use_bottleneck": narrow,
        "intra_bottleneck_size": model.bottleneck_size if narrow else model.hidden_size,
        "key_query_shared_bottleneck": model.attention_input == "shared",
        "use_bottleneck_attention": model.attention_input == "bottleneck",
    }


def _unsupported_mobilebert(model: MobileBert, key: str) -> str | None:
    if model.bottleneck_size not in (None, model.hidden_size) and model.attention_input == "stream":
        return "that class reads queries and keys from a bottleneck, but this model has attention_input = stream"
    return None


# Neither IB-BERT nor LayerNorm is supported.
MOBILEBERT = Family(
    model_type="mobilebert",
    config=MobileBert,
    prefix="mobilebert.",
    attributes=(
        *bert_attributes(
            hidden_size=512,
            num_hidden_layers=24,
            num_attention_heads=4,
            intermediate_size=512,
            hidden_act="relu",
            hidden_dropout_prob=0.0,
            embedding_size=128,
        ),
        Attribute("num_feedforward_networks", "feed_forwards", 4),
        # Not layer_norm: at Hugging Face two LayerNorms ignore the attribute's epsilon.
        Attribute("normalization_type", "norm", "no_norm", {"no_norm": "no_norm"}),
        Attribute("classifier_activation", "pooler", True),
    ),
    rules=_mobilebert_backbone,
    pooler="pooler.dense",
    tied=BERT_TIED,
    heads=standard_heads("MobileBert", "classifier_dropout", _mobilebert_masked, "cls.seq_relationship", pooled=True),
    dropouts={"classifier_dropout": None},
    fixed={"trigram_input": True},
    ignored=frozenset({"true_hidden_size"}),  # repeats other attributes
    unsupported=_unsupported_mobilebert,
    more=frozenset({*_FLAGS, "intra_bottleneck_size"}),
    read_more=_read_bottleneck,
    write_more=_write_bottleneck,
)


_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_CLASSIFIER = "ModernBertForSequenceClassification"
_POOLINGS = {"cls": "first", "mean": "mean"}
_SAME = {name: name for name in ("pad", "cls", "sep")}
_THETAS = {_GLOBAL: ("global_theta", "global_rope_theta"), _LOCAL: ("local_theta", "local_rope_theta")}


def _linear(ours: str, theirs: str, inputs: str, outputs: str) -> TensorRule:
    return next(dense(ours, theirs, inputs, outputs))


def _scale(ours: str, theirs: str) -> TensorRule:
    return next(norm(ours, theirs))


def _modernbert_backbone(model: ModernBert) -> Iterable[TensorRule]:
    yield same("embedding/word/embedding", "embeddings.tok_embeddings.weight", "V E")
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


def _modernbert_masked(model: ModernBert) -> Iterable[TensorRule]:
    yield _linear("masked_head/dense", "head.dense", "D", "E")
    yield _scale("masked_head/norm", "head.norm")
    yield same("masked_head/bias", "decoder.bias", "V")


def _classifier(name: str) -> Rules:
    return lambda model: (
        _linear(f"{name}/dense", "head.dense", "D", "P"),
        _scale(f"{name}/norm", "head.norm"),
        *dense(f"{name}/output", "classifier", "P", "C"),
    )


def _read_rotation(attributes: Mapping[str, Any]) -> dict[str, Any]:
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


MODERNBERT = Family(
    model_type="modernbert",
    config=ModernBert,
    prefix="model.",
    attributes=(
        Attribute("vocab_size", "vocab_size", 50368),
        Attribute("hidden_size", "hidden_size", 768),
        Attribute("num_hidden_layers", "layers", 22),
        Attribute("num_attention_heads", "heads", 12),
        Attribute("intermediate_size", "feed_forward_size", 1152),
        Attribute("hidden_activation", "activation", "gelu", ACTIVATIONS),
        Attribute("classifier_activation", "activation", "gelu", ACTIVATIONS),
        Attribute("max_position_embeddings", "max_positions", 8192),
        Attribute("local_attention", "window", 128),
        Attribute("embedding_dropout", "dropout", 0.0),
        Attribute("mlp_dropout", "dropout", 0.0),
        Attribute("attention_dropout", "attention_dropout", 0.0),
        Attribute("initializer_range", "initializer_range", 0.02),
        Attribute("norm_eps", "norm_epsilon", 1e-5),
    ),
    rules=_modernbert_backbone,
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
        "masked": HeadLayout("ModernBertForMaskedLM", _modernbert_masked),
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
    read_more=_read_rotation,
    write_more=lambda model: {
        "global_attn_every_n_layers": model.global_every,
        **{theirs: getattr(model, ours) for ours, theirs in _THETAS.values()},
    },
)

FAMILIES = (ALBERT, BERT, CONVBERT, DISTILBERT, ELECTRA, MOBILEBERT, MODERNBERT, SQUEEZEBERT)
