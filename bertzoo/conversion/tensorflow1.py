"""Original TensorFlow 1 checkpoints of BERT, MobileBERT, ELECTRA and ConvBERT: another dialect of the same tables."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.conversion import attributes, huggingface, variables
from bertzoo.conversion.bert import FAMILY as BERT
from bertzoo.conversion.convbert import FAMILY as CONVBERT
from bertzoo.conversion.electra import FAMILY as ELECTRA
from bertzoo.conversion.family import Family
from bertzoo.conversion.mobilebert import FAMILY as MOBILEBERT
from bertzoo.conversion.pretrained import Pretrained, check_vocabulary
from bertzoo.conversion.table import Row, Tensors, to_ours
from bertzoo.conversion.tokenizers import VOCABULARY
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.models.tasks import parameter_shapes

CONFIG, STATE = "bert_config.json", "checkpoint"
# Of the optimiser, and what ELECTRA's generator divides its logits by when it is sampled.
_NOT_OF_THE_MODEL = {"adam_m", "adam_v", "lamb_m", "lamb_v", "global_step", "temperature"}
# MobileBERT's teacher, in checkpoints of its distillation, and the norms of the comparison with it.
_BESIDE_IT = ("teacher/", "hidden_distill_")
_TURNED = "turned"
# The end of a name at Hugging Face -> in TensorFlow, and the variable's axes where they are not the tensor's.
_ENDS = (
    ("_embeddings.weight", "_embeddings", None),
    ("LayerNorm.weight", "LayerNorm.gamma", None),
    ("LayerNorm.bias", "LayerNorm.beta", None),
    ("cls.predictions.bias", "cls.predictions.output_bias", None),
    ("cls.predictions.dense.weight", "cls.predictions.extra_output_weights", _TURNED),
    ("cls.seq_relationship.weight", "cls.seq_relationship.output_weights", None),
    ("cls.seq_relationship.bias", "cls.seq_relationship.output_bias", None),
    ("generator_lm_head.bias", "generator_predictions.output_bias", None),
    ("key_conv_attn_layer.depthwise.weight", "conv_attn_key.depthwise_kernel", "W D 1"),
    ("key_conv_attn_layer.pointwise.weight", "conv_attn_key.pointwise_kernel", "1 D (H K)"),
    ("key_conv_attn_layer.bias", "conv_attn_key.bias", "(H K)"),
    (".weight", ".kernel", _TURNED),
)
_WITHIN = {
    "dense_prediction": "dense_1",
    "conv_kernel_layer": "conv_attn_kernel",
    "conv_out_layer": "conv_attn_point",
    ".layer.": ".layer_",
    ".ffn.": ".ffn_layer_",
}
# Of the constructors of the two BertConfigs, where an attribute is absent; None is hidden_size.
_MOBILEBERT_DEFAULTS: Mapping[str, Any] = {
    "classifier_activation": True,
    "embedding_size": None,
    "intra_bottleneck_size": None,
    "key_query_shared_bottleneck": False,
    "normalization_type": "layer_norm",
    "num_feedforward_networks": 1,
    "trigram_input": False,
    "use_bottleneck": False,
    "use_bottleneck_attention": False,
}
_SIZES: Mapping[str, Any] = {a.theirs: a.default for a in BERT.attributes if a.theirs != "vocab_size"} | {
    "type_vocab_size": 16
}


def _dialect(family: Family, gelu: str, **changes: Any) -> Family:
    """A family as the original code has it: which gelu it means, and MobileBERT with LayerNorm, which it can."""
    values = {
        "hidden_act": {"gelu": gelu, "relu": "relu"},
        "normalization_type": {"layer_norm": "layer_norm", "no_norm": "no_norm"},
    }
    own = tuple(replace(a, values=values.get(a.theirs, a.values)) for a in family.attributes)
    return replace(family, attributes=own, **changes)


FAMILIES = {
    "bert": _dialect(BERT, "gelu_tanh"),
    "mobilebert": _dialect(MOBILEBERT, "gelu_tanh"),
    "electra": _dialect(ELECTRA, "gelu"),
    # ConvBERT is pretrained as ELECTRA is, for which Hugging Face has no class.
    "convbert": _dialect(CONVBERT, "gelu", heads={**CONVBERT.heads, "replaced": ELECTRA.heads["replaced"]}),
}


def find(path: Path) -> Path | None:
    """What the files of the checkpoint at `path` begin with: `path` itself, or what its directory holds; None if none.

    Raises UserError where a directory holds several and its `checkpoint` does not say which is the latest.
    """
    if Path(f"{path}{variables.INDEX}").is_file():
        return path
    found = sorted(file.with_suffix("") for file in path.glob(f"*{variables.INDEX}"))
    if len(found) < 2:
        return found[0] if found else None
    state = (path / STATE).read_text(encoding="utf-8", errors="replace") if (path / STATE).is_file() else ""
    latest = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]+)"', state, re.MULTILINE)
    if latest and path / latest[1] in found:
        return path / latest[1]
    raise UserError(f"{path} holds {len(found)} TensorFlow checkpoints, not saying which is meant: give {found[0]}")


def read(prefix: Path) -> Pretrained:
    """The model in the files that begin with `prefix`; beside a discriminator, its generator.

    Raises UserError in one sentence naming what is missing, damaged or not understood.
    """
    found = variables.read(prefix, _of_the_model)
    config = _config(prefix.parent / CONFIG)
    if _any(found, "bert/"):
        return _bert(prefix, found, config)
    if _any(found, "electra/"):
        return _electra(prefix, found, config)
    raise UserError(
        f"{prefix} is not a checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT: "
        "it holds variables neither under bert/ nor under electra/"
    )


def _of_the_model(name: str) -> bool:
    return name.split("/")[-1] not in _NOT_OF_THE_MODEL and not name.startswith(_BESIDE_IT)


def rows(family: Family, model: Any, head: Any, scope: str) -> list[Row]:
    """The table of a model under a head; `scope` stands before the names of its encoder."""
    grouped, norm = getattr(model, "feed_forward_groups", 1) > 1, getattr(model, "norm", "layer_norm")
    made = []
    for row in huggingface.rows(family, model, head, prefix=f"{scope}."):
        name, axes = row.theirs, row.their_axes
        for end, ours, other in _ENDS:
            if name.endswith(end):
                name = name.removesuffix(end) + ours
                axes = axes if other is None else _turned(axes) if other == _TURNED else other
                break
        for before, after in _WITHIN.items():
            name = name.replace(before, after)
        if grouped and re.search(r"layer_\d+\.(intermediate|output)\.dense", name):
            name, axes = name.replace(".dense.", ".g_dense."), row.their_axes
        if norm == "no_norm" and name.startswith(scope):
            name = name.replace("LayerNorm", "FakeLayerNorm")
        # A generator's embeddings are its discriminator's.
        name = name.replace("generator.embeddings.", "electra.embeddings.").replace(".", "/")
        made.append(row._replace(theirs=name, their_axes=axes))
    return made


def _turned(axes: str) -> str:
    return " ".join(reversed(re.findall(r"\([^()]*\)|\S+", axes)))


def _any(found: Tensors, start: str) -> bool:
    return any(name.startswith(start) for name in found)


def _config(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if value is not None}
    except (ValueError, AttributeError) as error:
        raise UserError(f"{path} is not a config of a model: {error}") from error


def described(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The family of a bert_config.json, and all that it says, with the defaults of the code that reads it."""
    if not config.keys() & _MOBILEBERT_DEFAULTS:
        return "bert", {**_SIZES, **config}
    told = {**_SIZES, **_MOBILEBERT_DEFAULTS, **config}
    for name in ("embedding_size", "intra_bottleneck_size"):
        told[name] = told["hidden_size"] if told[name] is None else told[name]
    return "mobilebert", told


def _bert(prefix: Path, found: Tensors, config: dict[str, Any] | None) -> Pretrained:
    origin = prefix.parent / CONFIG
    if config is None:
        raise UserError(
            f"{prefix} has no {CONFIG} beside it, which says how many heads its model has: "
            "copy there what the release or its code's repository has under such a name"
        )
    if "vocab_size" not in config:
        raise UserError(f"{origin} has no vocab_size")
    kind, told = described(config)
    key = "masked" if _any(found, "cls/predictions/") else "none"
    key = "masked_sentence" if _any(found, "cls/seq_relationship/") else key
    return _model(prefix, found, kind, told, key, "bert", str(origin))


def _electra(prefix: Path, found: Tensors, config: dict[str, Any] | None) -> Pretrained:
    kind = "convbert" if any("/conv_attn_key/" in name for name in found) else "electra"
    own = ("generator/", "generator_predictions/")
    two = _any(found, "generator/")
    discriminator = {name: array for name, array in found.items() if not (two and name.startswith(own))}
    key = "masked" if _any(discriminator, "generator_predictions/") else "none"
    key = "replaced" if _any(discriminator, "discriminator_predictions/") else key
    told = {**sizes(prefix, found, "electra"), **(config or {})}
    made = _model(prefix, discriminator, kind, told, key, "electra", str(prefix))
    if not two:
        return made
    generator = {name: array for name, array in found.items() if name.startswith((*own, "electra/embeddings/"))}
    told = sizes(prefix, found, "generator")
    other = _model(prefix, generator, kind, told, "masked", "generator", str(prefix))
    return replace(made, others={"masked": other})


def sizes(prefix: Path, found: Tensors, scope: str) -> dict[str, Any]:
    """A tower's config.json, which the releases lack, out of its variables' shapes.

    Heads of ELECTRA leave no trace in them: they are of 64, which is its code's rule; ConvBERT's do.
    """

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in found:
            raise UserError(f"{prefix} lacks the tensor {name}")
        if found[name].ndim != rank or not found[name].size:
            raise UserError(f"{prefix}: the tensor {name} has shape {found[name].shape}")
        return found[name].shape

    layer, embeddings = f"{scope}/encoder/layer_0", "electra/embeddings"
    vocabulary, width = shape(f"{embeddings}/word_embeddings", 2)
    (hidden,) = shape(f"{layer}/attention/output/dense/bias", 1)
    grouped = f"{layer}/intermediate/g_dense/kernel" in found
    pattern = re.compile(rf"{scope}/encoder/layer_(\d+)/")
    told = {
        "vocab_size": vocabulary,
        "embedding_size": width,
        "hidden_size": hidden,
        "num_hidden_layers": len({match[1] for match in map(pattern.match, found) if match}),
        "num_attention_heads": max(1, hidden // 64),
        "intermediate_size": shape(f"{layer}/intermediate/{'g_' * grouped}dense/bias", 1)[0],
        "max_position_embeddings": shape(f"{embeddings}/position_embeddings", 2)[0],
        "type_vocab_size": shape(f"{embeddings}/token_type_embeddings", 2)[0],
    }
    attention = f"{layer}/attention/self"
    if not any(name.startswith(f"{attention}/conv_attn_key/") for name in found):
        return told
    window = shape(f"{attention}/conv_attn_key/depthwise_kernel", 3)[0]
    left = max(1, shape(f"{attention}/conv_attn_kernel/bias", 1)[0] // window)
    size = max(1, shape(f"{attention}/query/bias", 1)[0] // left)
    heads = max(1, hidden // size)
    # Of several ratios that leave as many heads, the released one; they compute the same.
    ratio = 2 if max(1, heads // 2) == left else max(1, heads // left)
    groups = shape(f"{layer}/intermediate/g_dense/kernel", 3)[0] if grouped else 1
    more = {"num_attention_heads": heads, "head_ratio": ratio, "conv_kernel_size": window, "num_groups": groups}
    return {**told, **more}


def _model(
    prefix: Path, found: Tensors, kind: str, told: Mapping[str, Any], key: str, scope: str, origin: str
) -> Pretrained:
    """One encoder and its head; `origin` is what says `told`."""
    family, directory = FAMILIES[kind], prefix.parent
    model = attributes.read_model(family, told, origin)
    pooled = _any(found, f"{scope}/pooler/") or family.heads[key].needs_pooler
    head = attributes.read_head(family, key, model, {}, pooled, origin)
    params = to_ours(rows(family, model, head, scope), found, parameter_shapes(model, head), str(prefix))
    tokenizer = _tokenizer(directory / VOCABULARY)
    check_vocabulary(tokenizer, model.vocab_size, str(directory))
    source: dict[str, str | int] = {"format": "tensorflow", "path": str(prefix)}
    return Pretrained(model=model, head=head, params=params, tokenizer=tokenizer, origin=str(prefix), source=source)


def _tokenizer(path: Path) -> Tokenizer | None:
    """The vocabulary beside a checkpoint. It puts text into lower case unless it has words that are not."""
    if not path.is_file():
        return None
    tokenizer = WordPiece(path=str(path), vocab_size=1 << 31).load()
    words = [token for token in map(tokenizer.token, range(tokenizer.vocab_size)) if not token.startswith("[")]
    # A stray one or two are found in vocabularies of text that was put into lower case.
    if sum(word != word.lower() for word in words) > len(words) / 100:
        return WordPiece(path=str(path), vocab_size=1 << 31, lowercase=False).load()
    return tokenizer
