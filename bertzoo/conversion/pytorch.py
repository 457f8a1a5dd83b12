# pyright: reportMissingImports=false
"""Export to PyTorch without transformers: tensors, a description of the modules, and modeling_bertzoo.py."""

import dataclasses
import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn

from bertzoo.conversion import tensors, tokenizers
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config as loader
from bertzoo.heads import KINDS
from bertzoo.models import Compute
from bertzoo.models.compute import ACTIVATIONS
from bertzoo.nn import from_bottleneck, from_stream, keep_padding, zero_padding

MODULE = Path(__file__).with_name("modeling_bertzoo.py")
_END = "FUNCTIONS: "  # the heads' classes come before this line
# Fields for initialisation and computation in JAX, which a trained PyTorch module does not need.
_LEFT_OUT = {"parent", "name", "kernel_init", "init", "dtype"}
_NAMED: dict[str, Callable] = {
    **ACTIVATIONS,
    **{function.__name__: function for function in (from_bottleneck, from_stream, keep_padding, zero_padding)},
}


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Return an unbound Flax module as data for JSON: its class name, its settings and, recursively, its submodules."""
    kind = type(module).__name__
    names = [field.name for field in dataclasses.fields(module) if field.name not in _LEFT_OUT]
    return {"part": kind, **{name: _plain_value(getattr(module, name), f"{kind}.{name}") for name in names}}


def _plain_value(value: Any, where: str) -> Any:
    if isinstance(value, nn.Module):
        return describe_module(value)
    if isinstance(value, tuple | list):
        first = [next(i for i, earlier in enumerate(value) if earlier is item) for item in value]
        return [
            {"same_as": earlier} if isinstance(item, nn.Module) and earlier < index else _plain_value(item, where)
            for index, (item, earlier) in enumerate(zip(value, first, strict=True))
        ]
    if callable(value):
        names = [name for name, function in _NAMED.items() if function is value]
        if not names:
            raise ValueError(f"{where} is a function that modeling_bertzoo.py lacks. Add it there and to _NAMED here.")
        return names[0]
    return value


def modeling() -> Any:
    """Return the module modeling_bertzoo with the classes of all heads; imports torch."""
    import torch

    from bertzoo.conversion import modeling_bertzoo

    for head in KINDS.values():
        for cls in head.twin(modeling_bertzoo.Encoding, modeling_bertzoo.Part, torch):
            cls.__module__, cls.__qualname__ = modeling_bertzoo.__name__, cls.__name__
            setattr(modeling_bertzoo, cls.__name__, cls)
    return modeling_bertzoo


def modeling_source() -> str:
    """Return the source of modeling_bertzoo.py with the classes of all heads."""
    before, after = MODULE.read_text(encoding="utf-8").split(f"\n\n{_END}")
    for head in KINDS.values():
        _, start, body = inspect.getsource(head.twin).partition("        class ")
        classes = textwrap.dedent(start + body.rpartition("\n\n        return (")[0])
        before += f"\n\n{classes}\n".replace("\n\nclass ", "\n\n\nclass ")[1:] if start else ""
    return f"{before}\n\n{_END}{after}"


def write_pytorch(pretrained: Pretrained, directory: Path) -> None:
    """Write config.json, model.safetensors, modeling_bertzoo.py and tokenizer files into an empty directory."""
    module = pretrained.head.build(pretrained.model, Compute())
    description = {
        "format": "bertzoo",
        "architecture": describe_module(module),
        "model": loader.plain(pretrained.model),
        "head": loader.plain(pretrained.head),
    }
    (directory / "config.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    named = {path.replace("/", "."): array for path, array in pretrained.params.items()}
    tensors.write_safetensors(named, directory / tensors.SAFE)
    (directory / MODULE.name).write_text(modeling_source(), encoding="utf-8")
    if pretrained.tokenizer is not None:
        tokenizers.write_tokenizer(pretrained.tokenizer, directory, pretrained.model)
