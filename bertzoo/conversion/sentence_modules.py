"""Read and write the files that sentence-transformers keeps beside a Hugging Face model: pooling, projection, length.

modules.json lists a Transformer, a Pooling, at most one Dense and at most one Normalize, each with its own directory
(https://sbert.net/docs/sentence_transformer/usage/custom_models.html). Together they are the head SentenceEmbedding.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import tensors, tokenizers
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.conversion.rules import Tensors, dense, to_ours, to_theirs
from bertzoo.core.config import nearest
from bertzoo.core.documents import read_json, show
from bertzoo.core.errors import UserError
from bertzoo.heads import SentenceEmbedding, parameter_shapes

MODULES = "modules.json"
_CONFIG, _OPTIONS = "config.json", "config_sentence_transformers.json"
_LIMITS = [  # files with the greatest number of tokens, by the release that wrote them
    "sentence_bert_config.json",
    *(f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta")),
]
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
_POOLINGS = {"cls": "first", "max": "max", "mean": "mean", "weightedmean": "weighted_mean"}
# The spelling of Pooling's options before version 5.6, which later versions read, too.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_IDENTITY, _TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"
_ACTIVATIONS = {_IDENTITY: "identity", "torch.nn.Identity": "identity", _TANH: "tanh", "torch.nn.Tanh": "tanh"}
_WHOLE = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
# Options of a Transformer that change its states, each with the only supported value besides null and {}.
_PLAIN: Mapping[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
    **dict.fromkeys(("processing_kwargs", "query_length", "document_length", "query_expansion")),
    **dict.fromkeys(("model_args", "tokenizer_args", "config_args", "tokenizer_name_or_path")),
    **dict.fromkeys(("model_kwargs", "processor_kwargs", "config_kwargs")),
}
_SHORTEST = 3  # tokens of a sequence: [CLS], one token, [SEP]


def has_modules(directory: Path) -> bool:
    """Return whether sentence-transformers wrote a directory."""
    return os.path.lexists(directory / MODULES)  # a broken link is an error later, and not another kind of model


def find_modules(directory: Path) -> dict[str, Path]:
    """Return {module: its folder} from modules.json; raises UserError for one that SentenceEmbedding cannot express."""
    path = directory / MODULES
    options = _read(directory / _OPTIONS, {"model_type?": str | None}) if (directory / _OPTIONS).is_file() else {}
    if options.get("model_type") not in (None, "SentenceTransformer"):
        raise UserError(
            f"{directory / _OPTIONS}: model_type = {show(options['model_type'])} is not a SentenceTransformer. Remove "
            f"{MODULES} to read the model without the modules after its last layer."
        )
    modules = _read(path, [{"type": str, "path": str, "kwargs?": list | dict | None}])
    folders: dict[str, Path] = {}
    for number, module in enumerate(modules):
        package, _, name = module["type"].rpartition(".")
        where = f"{path}: module {number}, {show(module['type'])},"
        if name not in _ORDER or package.partition(".")[0] != "sentence_transformers":
            raise UserError(f"{where} is not supported. Use a model with only {', '.join(_ORDER)}.")
        if name in folders or any(_ORDER.index(name) < _ORDER.index(earlier) for earlier in folders):
            raise UserError(f"{where} follows {', '.join(folders)}. Use a model with each of {', '.join(_ORDER)} once.")
        if module.get("kwargs"):
            raise UserError(f"{where} has unsupported kwargs = {show(module['kwargs'])}. Use another model.")
        folder = module["path"]
        if folder != Path(folder).name or folder == ".." or (folder == "" and name != "Transformer"):
            raise UserError(
                f"{where} has path = {show(folder)}, but it may only name a folder beside {MODULES}. Download it again."
            )
        folders[name] = directory / folder
    for name in ("Transformer", "Pooling"):
        if name not in folders:
            raise UserError(f"{path} has no module {name}. Use a model with Transformer and Pooling.")
    return folders


def add_modules(backbone: Pretrained, folders: Mapping[str, Path], directory: Path) -> Pretrained:
    """Return the model of a directory: `backbone`, read from the module Transformer, with its head SentenceEmbedding.

    The greatest length and the prompts go into `source`. Raises UserError for a module, or a value of its options, that
    the head cannot express.
    """
    model, notes = backbone.model, _read_options(directory / _OPTIONS)
    pooling = _read_pooling(folders["Pooling"] / _CONFIG)
    normalise = "Normalize" in folders
    if normalise and os.path.lexists(config := folders["Normalize"] / _CONFIG):
        _check_values(_read(config), _WHOLE, config)
    projection, activation, params = _read_dense(folders.get("Dense"), model.hidden_size)
    size, similarity = notes.pop("truncate_dim"), notes.pop("similarity")
    if normalise and size is not None:
        raise UserError(
            f"{directory / _OPTIONS}: truncate_dim = {size} cuts vectors after the module Normalize, so their length "
            "is not 1. Remove truncate_dim, and cut them with `bertzoo convert --size`."
        )
    if similarity not in (None, "cosine") and not (similarity == "dot" and normalise):
        raise UserError(
            f"{directory / _OPTIONS}: similarity_fn_name = {show(similarity)} is not supported, because bertzoo "
            'compares vectors by the cosine. Change it to "cosine" if that serves.'
        )
    full = projection or model.hidden_size
    width = min(size or full, full)
    head = SentenceEmbedding(
        pooling=pooling,  # pyright: ignore[reportArgumentType] (a value of _POOLINGS)
        projection=projection,
        activation=activation,  # pyright: ignore[reportArgumentType] (a value of _ACTIVATIONS)
        size=width if width < full else 0,
        normalise=normalise,
        sizes=tuple(s for s in notes.pop("sizes") if s <= width),
    )
    names = parameter_shapes(model, head)
    length = _read_length(folders["Transformer"], backbone)
    return replace(
        backbone,
        head=head,
        params={name: array for name, array in backbone.params.items() if name in names} | params,
        origin=str(directory),
        source=backbone.source | {"path": str(directory), "max_length": length} | notes,
        unused={name: array for name, array in backbone.params.items() if name not in names},
    )


def write_modules(pretrained: Pretrained, directory: Path) -> None:
    """Write sentence-transformers' files beside a backbone; raises UserError if its modules cannot express the head."""
    head, model, source = pretrained.head, pretrained.model, pretrained.source
    modules = ["Transformer"]

    def add(name: str, config: Mapping[str, Any]) -> Path:
        folder = directory / f"{len(modules)}_{name}"
        modules.append(name)
        folder.mkdir()
        _write(folder / _CONFIG, config)
        return folder

    flags = {flag: _POOLINGS.get(mode) == head.pooling for flag, mode in _FLAGS.items()}
    add("Pooling", {"word_embedding_dimension": model.hidden_size, **flags, "include_prompt": True})
    kernel, bias, tanh = _last_linear(pretrained)
    if kernel is not None:
        inputs, outputs = kernel.shape
        sizes = {"in_features": inputs, "out_features": outputs, "bias": bias is not None}
        folder = add("Dense", sizes | {"activation_function": _TANH if tanh else _IDENTITY})
        layer = {"kernel": kernel} if bias is None else {"kernel": kernel, "bias": bias}
        rules = [rule for rule in _RULES if rule.ours.rpartition("/")[2] in layer]
        named = {f"projection/{name}": np.ascontiguousarray(array) for name, array in layer.items()}
        tensors.write_safetensors(to_theirs(rules, named, pretrained.origin), folder / tensors.SAFE)
    if head.normalise:
        add("Normalize", {})
    folders = ["", *(f"{number}_{name}" for number, name in enumerate(modules) if number)]
    listed = [
        {"idx": number, "name": str(number), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for number, (name, folder) in enumerate(zip(modules, folders, strict=True))
    ]
    _write(directory / MODULES, listed)
    longest = min(int(source.get("max_length", model.max_positions)), model.max_positions)
    _write(directory / _LIMITS[0], {"max_seq_length": longest, "do_lower_case": False})
    options = {
        "model_type": "SentenceTransformer",
        "prompts": source.get("prompts", {}),
        "default_prompt_name": source.get("default_prompt"),
        "similarity_fn_name": "cosine",
    }
    if head.sizes:
        options["matryoshka_dimensions"] = list(head.sizes)
    _write(directory / _OPTIONS, options)


_RULES = [*dense("projection", "linear", "D", "P")]


def _last_linear(pretrained: Pretrained) -> tuple[np.ndarray | None, np.ndarray | None, bool]:
    """Return kernel or None, bias and whether tanh follows, of a Dense that cuts, projects or pools as `head` does."""
    head, params = pretrained.head, pretrained.params
    layer = "projection" if head.projection else None
    if head.pooler and "pooler/kernel" in params:
        if layer:
            raise UserError(
                f"{pretrained.origin} has a pooler and a projection, which are two modules Dense, but this format has "
                "one. Use --to=pytorch."
            )
        layer = "pooler"
    size = head.size or None
    if layer is None:
        return (None if size is None else np.eye(pretrained.model.hidden_size, size, dtype=np.float32)), None, False
    kernel, bias = params[f"{layer}/kernel"], params[f"{layer}/bias"]
    return kernel[:, :size], bias[:size], layer == "pooler" or head.activation == "tanh"


def _read_pooling(path: Path) -> str:
    config = _read(path, {"pooling_mode?": str | list, **{f"{flag}?": bool for flag in _FLAGS}})
    allowed = {"embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt", *_FLAGS}
    _check_options(config, allowed, path)
    _check_values(config, {"include_prompt": True}, path)
    modes = config.get("pooling_mode") or [mode for flag, mode in _FLAGS.items() if config.get(flag)] or ["mean"]
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in _POOLINGS:
        raise UserError(
            f"{path}: the module Pooling has the mode {show(modes[0] if len(modes) == 1 else modes)}, which is not "
            f"supported. Use a model with one of {', '.join(_POOLINGS)}."
        )
    return _POOLINGS[modes[0]]


def _read_dense(folder: Path | None, width: int) -> tuple[int, str, Tensors]:
    """Return the number of outputs, the activation and our parameters of a module Dense; 0, "identity", {} without."""
    if folder is None:
        return 0, "identity", {}
    path = folder / _CONFIG
    config = _read(path, {"out_features": int, "bias?": bool, "activation_function?": str})
    allowed = {"in_features", "out_features", "bias", "activation_function", "use_residual", *_WHOLE}
    _check_options(config, allowed, path)
    _check_values(config, {"use_residual": False, **_WHOLE}, path)
    name = config.get("activation_function", _TANH)
    if name not in _ACTIVATIONS:
        raise UserError(
            f"{path}: the module Dense has activation_function = {show(name)}, which is not supported. Use a model "
            f"with {_IDENTITY} or {_TANH}."
        )
    outputs = config["out_features"]
    raw, file = tensors.read_weights(folder)
    if not config.get("bias", True):
        raw.setdefault("linear.bias", np.zeros(outputs, np.float32))
    ours = {"projection/kernel": (width, outputs), "projection/bias": (outputs,)}
    return outputs, _ACTIVATIONS[name], to_ours(_RULES, raw, ours, str(file))


def _read_length(folder: Path, backbone: Pretrained) -> int:
    """Return the number of tokens to which texts are cut; raises UserError for an option that changes the states."""
    path = next((folder / name for name in _LIMITS if os.path.lexists(folder / name)), folder / _LIMITS[0])
    options = _read(path, {"max_seq_length?": int | None, "do_lower_case?": bool}) if os.path.lexists(path) else {}
    _check_options(options, {"max_seq_length", "do_lower_case", "unpad_inputs", *_PLAIN}, path)
    _check_values({name: value for name, value in options.items() if value not in (None, {}, [])}, _PLAIN, path)
    tokenizer, most = backbone.tokenizer, backbone.model.max_positions
    if options.get("do_lower_case") and tokenizer is not None and not tokenizer.config.normalization["lowercase"]:
        raise UserError(
            f"{path}: do_lower_case = true, but the tokenizer keeps upper case, and bertzoo has one rule for both. "
            f"Set do_lower_case in {tokenizers.OPTIONS}."
        )
    length, where = options.get("max_seq_length"), path
    if length is None:
        where = folder / tokenizers.OPTIONS
        table = tokenizers.read_table(where, {"model_max_length?": float | None})
        length = min(table.get("model_max_length") or most, most)  # transformers writes 1e30 for none
    if length < _SHORTEST:
        raise UserError(f"{where}: sequences of {length} tokens hold no text. Use at least {_SHORTEST}.")
    return int(min(length, most))


def _read_options(path: Path) -> dict[str, Any]:
    """Return truncate_dim, similarity, sizes and, for `source`, the prompts and the name of the default prompt."""
    pattern = {
        "prompts?": {str: str | None},
        "default_prompt_name?": str | None,
        "similarity_fn_name?": str | None,
        "truncate_dim?": int | None,
        "matryoshka_dimensions?": [int],
    }
    config = _read(path, pattern) if os.path.lexists(path) else {}
    prompts = {name: text for name, text in config.get("prompts", {}).items() if text}
    default, size = config.get("default_prompt_name"), config.get("truncate_dim")
    if default is not None and default not in config.get("prompts", {}):
        raise UserError(
            f"{path}: default_prompt_name = {show(default)} is not in prompts{nearest(default, prompts) or '.'}"
        )
    return {
        "truncate_dim": size,
        "similarity": config.get("similarity_fn_name"),
        "sizes": config.get("matryoshka_dimensions", []),
        **({"prompts": prompts} if prompts else {}),
        **({"default_prompt": default} if default in prompts else {}),
    }


def _read(path: Path, pattern: Any = dict) -> Any:
    """Return the content of a JSON file; raises UserError if it is missing, damaged or does not fit the pattern."""
    if not path.is_file():
        raise UserError(f"{path} does not exist, or is not a file. Download the model again.")
    return read_json(path, pattern, "Download the model again.")


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _check_options(config: Mapping[str, Any], allowed: set[str], path: Path) -> None:
    for name, value in config.items():
        if name not in allowed:
            raise UserError(
                f"{path}: the option {name} = {show(value)} is unknown, and may matter. Use a model without it."
            )


def _check_values(config: Mapping[str, Any], only: Mapping[str, Any], path: Path) -> None:
    """Raise UserError if an option differs from its only supported value; null means the default."""
    for name, value in only.items():
        if config.get(name) not in (None, value):
            advice = f"{name} = {show(value)}" if value is not None else f"no {name}"
            raise UserError(f"{path}: {name} = {show(config[name])} is not supported. Use a model with {advice}.")
