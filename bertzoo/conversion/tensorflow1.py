# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Read TensorFlow 1 checkpoints of BERT, MobileBERT, ELECTRA and ConvBERT; only this module may import TensorFlow.

It uses the tensor rules for Hugging Face, with names and axes changed to TensorFlow's.
"""

import glob
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import huggingface
from bertzoo.conversion.families import BERT, CONVBERT, ELECTRA, MOBILEBERT
from bertzoo.conversion.family import Family
from bertzoo.conversion.pretrained import Pretrained, check_vocabulary
from bertzoo.conversion.rules import TensorRule, Tensors, to_ours
from bertzoo.conversion.tensors import check_finite
from bertzoo.conversion.tokenizers import VOCABULARY
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import parameter_shapes

INDEX = ".index"


def read_variables(prefix: Path, select: Callable[[str], bool]) -> Tensors:
    """Return the variables that `select` accepts by name, from the checkpoint files that begin with `prefix`.

    Floats are float32. Raises UserError if TensorFlow is not installed or cannot read the files.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # otherwise it logs the CPU's instruction sets
    with needs_extra(str(prefix), "tf"):
        import tensorflow
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        names = sorted(filter(select, shapes))
        declared = sum(math.prod(shapes[name]) * types[name].size for name in names)
        stored = sum(file.stat().st_size for file in prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))
        if declared > (stored or prefix.stat().st_size):  # an older checkpoint is one file
            raise ValueError(f"its variables have {declared:,} bytes, but its data files {stored:,}")
        arrays = {name: np.asarray(reader.get_tensor(name)) for name in names}
    except (tensorflow.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"{prefix} is damaged or not a TensorFlow checkpoint: {reason}. Download it again.") from error
    types = (tensorflow.bfloat16.as_numpy_dtype, np.floating)
    floats = {name: array.astype(np.float32) for name, array in arrays.items() if issubclass(array.dtype.type, types)}
    return arrays | check_finite(floats, prefix)


CONFIG, STATE = "bert_config.json", "checkpoint"
# Variables of the optimiser, and the temperature at which ELECTRA's generator is sampled.
_NOT_OF_THE_MODEL = {"adam_m", "adam_v", "lamb_m", "lamb_v", "global_step", "temperature"}
# Prefixes of MobileBERT's teacher in distillation checkpoints, and of the norms that compare student and teacher.
_TEACHER = ("teacher/", "hidden_distill_")
_REVERSED = "reversed"
# The end of a name at Hugging Face and in TensorFlow, and the variable's axes if they differ from the tensor's.
_ENDS = (
    ("_embeddings.weight", "_embeddings", None),
    ("LayerNorm.weight", "LayerNorm.gamma", None),
    ("LayerNorm.bias", "LayerNorm.beta", None),
    ("cls.predictions.bias", "cls.predictions.output_bias", None),
    ("cls.predictions.dense.weight", "cls.predictions.extra_output_weights", _REVERSED),
    ("cls.seq_relationship.weight", "cls.seq_relationship.output_weights", None),
    ("cls.seq_relationship.bias", "cls.seq_relationship.output_bias", None),
    ("generator_lm_head.bias", "generator_predictions.output_bias", None),
    ("key_conv_attn_layer.depthwise.weight", "conv_attn_key.depthwise_kernel", "W D 1"),
    ("key_conv_attn_layer.pointwise.weight", "conv_attn_key.pointwise_kernel", "1 D (H K)"),
    ("key_conv_attn_layer.bias", "conv_attn_key.bias", "(H K)"),
    (".weight", ".kernel", _REVERSED),
)
_INSIDE = {  # inside names: at Hugging Face -> in TensorFlow
    "dense_prediction": "dense_1",
    "conv_kernel_layer": "conv_attn_kernel",
    "conv_out_layer": "conv_attn_point",
    ".layer.": ".layer_",
    ".ffn.": ".ffn_layer_",
}
# Defaults of BertConfig in MobileBERT's code and, in _SIZES, in BERT's; None means hidden_size.
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
    """Return a Hugging Face family with the attribute values that the original TensorFlow code supports.

    gelu: our name of the activation that the code calls "gelu". changes: more fields of Family to replace.
    """
    values = {
        "hidden_act": {"gelu": gelu, "relu": "relu"},
        "normalization_type": {"layer_norm": "layer_norm", "no_norm": "no_norm"},  # unlike at Hugging Face
    }
    attributes = tuple(replace(a, values=values.get(a.theirs, a.values)) for a in family.attributes)
    return replace(family, attributes=attributes, **changes)


FAMILIES = {
    "bert": _dialect(BERT, "gelu_tanh"),
    "mobilebert": _dialect(MOBILEBERT, "gelu_tanh"),
    "electra": _dialect(ELECTRA, "gelu"),
    # ConvBERT is pretrained like ELECTRA; Hugging Face has no class for its discriminator's head.
    "convbert": _dialect(CONVBERT, "gelu", heads={**CONVBERT.heads, "replaced": ELECTRA.heads["replaced"]}),
}


def find_checkpoint(path: Path) -> Path | None:
    """Return the prefix of a checkpoint's files: `path` itself, or the only or latest checkpoint in directory `path`.

    A checkpoint of TensorFlow's older format is the file `path`, beside `path`.meta, and has no index. Returns None if
    there is no checkpoint. Raises UserError if the directory holds several and its file `checkpoint` names none.
    """
    if any(Path(f"{path}{end}").is_file() for end in (INDEX, ".meta")):
        return path
    prefixes = sorted(file.with_suffix("") for file in path.glob(f"*{INDEX}"))
    if len(prefixes) < 2:
        return prefixes[0] if prefixes else None
    state = (path / STATE).read_text(encoding="utf-8", errors="replace") if (path / STATE).is_file() else ""
    latest = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]+)"', state, re.MULTILINE)
    if latest and path / latest[1] in prefixes:
        return path / latest[1]
    raise UserError(f"{path} holds {len(prefixes)} TensorFlow checkpoints. Name one of them, such as {prefixes[0]}.")


def read_tensorflow(prefix: Path) -> Pretrained:
    """Return the model of a checkpoint's prefix, with its generator, if any; raises UserError naming the problem."""
    arrays = read_variables(
        prefix, lambda name: name.split("/")[-1] not in _NOT_OF_THE_MODEL and not name.startswith(_TEACHER)
    )
    path, config = prefix.parent / CONFIG, None
    if path.is_file():
        table = read_json(path, advice="Copy it again from the release.")
        config = {name: value for name, value in table.items() if value is not None}
    if _any(arrays, "bert/"):
        return _read_bert(prefix, arrays, config)
    if _any(arrays, "electra/"):
        return _read_electra(prefix, arrays, config)
    raise UserError(
        f"{prefix} is not a checkpoint of BERT, MobileBERT, ELECTRA or ConvBERT: no variable is under bert/ or "
        "electra/. Name another checkpoint."
    )


def variable_rules(family: Family, model: Any, head: Any, scope: str) -> list[TensorRule]:
    """Return the rules for TensorFlow variables of a model with its head; `scope` precedes the encoder's names."""
    grouped, norm = getattr(model, "feed_forward_groups", 1) > 1, getattr(model, "norm", "layer_norm")
    rules = []
    for rule in huggingface.model_rules(family, model, head, prefix=f"{scope}."):
        name, axes = rule.theirs, rule.their_axes
        for end, new_end, new_axes in _ENDS:
            if name.endswith(end):
                if new_axes == _REVERSED:
                    new_axes = " ".join(reversed(re.findall(r"\([^()]*\)|\S+", axes)))
                name, axes = name.removesuffix(end) + new_end, new_axes or axes
                break
        for before, after in _INSIDE.items():
            name = name.replace(before, after)
        if grouped and re.search(r"layer_\d+\.(intermediate|output)\.dense", name):
            name, axes = name.replace(".dense.", ".g_dense."), rule.their_axes
        if norm == "no_norm" and name.startswith(scope):
            name = name.replace("LayerNorm", "FakeLayerNorm")
        # A generator shares its discriminator's embeddings.
        name = name.replace("generator.embeddings.", "electra.embeddings.").replace(".", "/")
        rules.append(rule._replace(theirs=name, their_axes=axes))
    return rules


def _any(arrays: Tensors, start: str) -> bool:
    return any(name.startswith(start) for name in arrays)


def complete_bert_config(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return "bert" or "mobilebert", and the attributes of a bert_config.json with the original code's defaults."""
    if not config.keys() & _MOBILEBERT_DEFAULTS:
        return "bert", {**_SIZES, **config}
    complete = {**_SIZES, **_MOBILEBERT_DEFAULTS, **config}
    for name in ("embedding_size", "intra_bottleneck_size"):
        complete[name] = complete["hidden_size"] if complete[name] is None else complete[name]
    return "mobilebert", complete


def _read_bert(prefix: Path, arrays: Tensors, config: dict[str, Any] | None) -> Pretrained:
    origin = prefix.parent / CONFIG
    if config is None:
        raise UserError(
            f"{prefix} needs {CONFIG} beside it for the number of heads. Copy it from the release or its code."
        )
    if "vocab_size" not in config:
        raise UserError(f"{origin} has no vocab_size. Add it.")
    kind, complete = complete_bert_config(config)
    key = "masked" if _any(arrays, "cls/predictions/") else "none"
    key = "masked_sentence" if _any(arrays, "cls/seq_relationship/") else key
    return _build(prefix, arrays, kind, complete, key, "bert", str(origin))


def _read_electra(prefix: Path, arrays: Tensors, config: dict[str, Any] | None) -> Pretrained:
    kind = "convbert" if any("/conv_attn_key/" in name for name in arrays) else "electra"
    scopes = ("generator/", "generator_predictions/")
    has_generator = _any(arrays, "generator/")
    discriminator = {name: array for name, array in arrays.items() if not (has_generator and name.startswith(scopes))}
    key = "masked" if _any(discriminator, "generator_predictions/") else "none"
    key = "replaced" if _any(discriminator, "discriminator_predictions/") else key
    sizes = {**infer_electra_config(prefix, arrays, "electra"), **(config or {})}
    pretrained = _build(prefix, discriminator, kind, sizes, key, "electra", str(prefix))
    if not has_generator:
        return pretrained
    generator = {name: array for name, array in arrays.items() if name.startswith((*scopes, "electra/embeddings/"))}
    sizes = infer_electra_config(prefix, arrays, "generator")
    return replace(pretrained, generator=_build(prefix, generator, kind, sizes, "masked", "generator", str(prefix)))


def infer_electra_config(prefix: Path, arrays: Tensors, scope: str) -> dict[str, Any]:
    """Infer the attributes of the encoder under `scope` from its variables' shapes, since releases have no config.

    ConvBERT's shapes show the number of attention heads. ELECTRA's do not, so a head gets 64 channels, as in its code.
    """

    def shape(name: str, rank: int) -> tuple[int, ...]:
        if name not in arrays:
            raise UserError(f"{prefix} lacks the tensor {name}. The checkpoint is incomplete: download it again.")
        if arrays[name].ndim != rank or not arrays[name].size:
            raise UserError(
                f"{prefix}: the tensor {name} has shape {arrays[name].shape}, not {rank} axes. Download it again."
            )
        return arrays[name].shape

    layer, embeddings = f"{scope}/encoder/layer_0", "electra/embeddings"
    vocabulary, width = shape(f"{embeddings}/word_embeddings", 2)
    (hidden,) = shape(f"{layer}/attention/output/dense/bias", 1)
    grouped = f"{layer}/intermediate/g_dense/kernel" in arrays
    pattern = re.compile(rf"{scope}/encoder/layer_(\d+)/")
    sizes = {
        "vocab_size": vocabulary,
        "embedding_size": width,
        "hidden_size": hidden,
        "num_hidden_layers": len({match[1] for match in map(pattern.match, arrays) if match}),
        "num_attention_heads": max(1, hidden // 64),
        "intermediate_size": shape(f"{layer}/intermediate/{'g_' * grouped}dense/bias", 1)[0],
        "max_position_embeddings": shape(f"{embeddings}/position_embeddings", 2)[0],
        "type_vocab_size": shape(f"{embeddings}/token_type_embeddings", 2)[0],
    }
    attention = f"{layer}/attention/self"
    if not _any(arrays, f"{attention}/conv_attn_key/"):
        return sizes
    window = shape(f"{attention}/conv_attn_key/depthwise_kernel", 3)[0]
    remaining = max(1, shape(f"{attention}/conv_attn_kernel/bias", 1)[0] // window)
    size = max(1, shape(f"{attention}/query/bias", 1)[0] // remaining)
    heads = max(1, hidden // size)
    # Several head ratios can give the same model: prefer 2, the release's.
    ratio = 2 if max(1, heads // 2) == remaining else max(1, heads // remaining)
    groups = shape(f"{layer}/intermediate/g_dense/kernel", 3)[0] if grouped else 1
    more = {"num_attention_heads": heads, "head_ratio": ratio, "conv_kernel_size": window, "num_groups": groups}
    return {**sizes, **more}


def _build(
    prefix: Path, arrays: Tensors, kind: str, config: Mapping[str, Any], key: str, scope: str, origin: str
) -> Pretrained:
    """Return the encoder under `scope` in the variables `arrays`, with its head.

    kind: key in FAMILIES. key: the head's key in `Family.heads`. origin: source of `config` in messages.
    """
    family, directory = FAMILIES[kind], prefix.parent
    model = huggingface.read_model_config(family, config, origin)
    pooled = _any(arrays, f"{scope}/pooler/") or family.heads[key].needs_pooler
    head = huggingface.read_head_config(family, key, model, {}, pooled, origin)
    params = to_ours(variable_rules(family, model, head, scope), arrays, parameter_shapes(model, head), str(prefix))
    tokenizer, vocabulary = None, directory / VOCABULARY
    if vocabulary.is_file():
        tokenizer = WordPiece(path=str(vocabulary), vocab_size=1 << 31).load()
        words = [token for token in map(tokenizer.token, range(tokenizer.vocab_size)) if not token.startswith("[")]
        if sum(word != word.lower() for word in words) > len(words) / 100:  # then the text was not lower-cased
            tokenizer = WordPiece(path=str(vocabulary), vocab_size=1 << 31, lowercase=False).load()
    check_vocabulary(tokenizer, model.vocab_size, str(directory))
    source: dict[str, str | int] = {"format": "tensorflow", "path": str(prefix)}
    if getattr(head, "sentence", False):
        source["sentence"] = family.sentence
    return Pretrained(model=model, head=head, params=params, tokenizer=tokenizer, origin=str(prefix), source=source)
