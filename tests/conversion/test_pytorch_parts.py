"""Every part of every model under every head has its class in the module that is exported beside it."""

import ast
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from messages import mentioning

from bertzoo.conversion import pytorch
from bertzoo.heads import Head, MaskedLanguageModel, head_class
from bertzoo.models import Compute, ConvBert, MobileBert, Model
from bertzoo.models.attention import AttentionKind

TREE = ast.parse(pytorch.modeling_source())
CLASSES = {node.name for node in TREE.body if isinstance(node, ast.ClassDef)}
(FUNCTIONS,) = [
    {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    for node in TREE.body
    if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict)
]
MODELS = [kind() for kind in get_args(Model)]
MODELS += [ConvBert(convolution=kind) for kind in ("dynamic", "fixed", "none")]
MODELS += [
    MobileBert(attention=kind(), attention_input="stream", norm="layer_norm") for kind in get_args(AttentionKind)
]


def parts(description: Any) -> Iterator[dict]:
    """The parts of a description, itself among them."""
    if isinstance(description, dict) and "part" in description:
        yield description
    for value in description.values() if isinstance(description, dict) else description:
        if isinstance(value, dict | list):
            yield from parts(value)


@pytest.mark.parametrize("head", get_args(Head))
def test_every_part_has_a_class(head: type) -> None:
    for model in MODELS:
        found = list(parts(pytorch.describe_module(head().build(model, Compute()))))
        assert len(found) > (6 if model.kind == "static" else 20)  # a static model has no layers
        assert {part["part"] for part in found} <= CLASSES
        named = [part.get(key) for part in found for key in ("activation", "attention_input", "before_window")]
        assert {name for name in named if isinstance(name, str)} <= FUNCTIONS


def test_the_module_tells_the_head() -> None:
    built = [head().build(MODELS[0], Compute()) for head in get_args(Head)]
    assert [head_class(module) for module in built] == list(get_args(Head))
    assert len({type(module) for module in built}) == len(built)
    with pytest.raises(TypeError, match=mentioning("ConvBert", "union Head")):
        head_class(ConvBert())


def test_an_unknown_activation_raises() -> None:
    module = MaskedLanguageModel().build(MODELS[0], Compute())
    odd = module.clone(masked_head=module.masked_head.clone(activation=abs))
    with pytest.raises(ValueError, match=mentioning("MaskedHead.activation")):
        pytorch.describe_module(odd)
