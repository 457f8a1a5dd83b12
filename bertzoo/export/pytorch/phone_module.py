# pyright: reportMissingImports=false
"""A PyTorch model (modeling_bertzoo.py) as an app runs it: maps one row of inputs to its head's outputs by name.

It needs only torch and runs without bertzoo. Inputs and outputs are named and shaped as in
export.graph.reference, but with a leading batch axis of 1. L: length of the row. P: number of masked positions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Outputs = dict[str, Tensor]


class LaidOutDense(nn.Module):
    """A Dense layer of modeling_bertzoo.py with its kernel in the layout of `functional.linear`."""

    def __init__(self, dense: Any) -> None:
        super().__init__()
        self.inputs, self.features = len(dense.axes) - len(dense.features), tuple(dense.features)
        kernel = dense.kernel.reshape(math.prod(dense.kernel.shape[: self.inputs]), -1)
        self.weight = nn.Parameter(kernel.mT.contiguous())
        self.bias = nn.Parameter(dense.bias.flatten()) if "bias" in dense.tensors else None

    def forward(self, x: Tensor) -> Tensor:
        y = functional.linear(x if self.inputs == 1 else x.flatten(-self.inputs), self.weight, self.bias)
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class Convolution(nn.Module):
    """A Grouped layer of modeling_bertzoo.py with its kernel in the layout of `functional.conv1d`."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.settings = layer.stride, layer.padding, layer.dilation, layer.groups
        self.features = tuple(layer.features)
        self.weight, self.bias = nn.Parameter(layer.kernel.permute(2, 1, 0).contiguous()), layer.bias

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.ndim == 3 else x.flatten(2)
        y = functional.conv1d(x.mT, self.weight, self.bias, *self.settings).mT
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class SplitGroups(nn.Module):
    """A pointwise Grouped layer, computed as a linear layer per group and a concatenation of the outputs."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.features = tuple(layer.features)
        kernels = layer.kernel[0].mT.chunk(layer.groups)
        self.weights = nn.ParameterList([nn.Parameter(kernel.contiguous()) for kernel in kernels])
        self.biases = nn.ParameterList([nn.Parameter(bias.clone()) for bias in layer.bias.chunk(layer.groups)])

    def forward(self, x: Tensor) -> Tensor:
        shares = (x if x.ndim == 3 else x.flatten(2)).chunk(len(self.weights), -1)
        layers = zip(shares, self.weights, self.biases, strict=True)
        y = torch.cat([functional.linear(share, weight, bias) for share, weight, bias in layers], -1)
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class ShiftedTrigram(nn.Module):
    """A Trigram layer of modeling_bertzoo.py with its kernel in the layout of `functional.linear`."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.mask_padding = layer.mask_padding
        self.weight, self.bias = nn.Parameter(layer.kernel.flatten(0, 1).mT.contiguous()), layer.bias

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.mask_padding:
            x = x * mask[..., None].to(x.dtype)
        padded = functional.pad(x, (0, 0, 1, 1))
        return functional.linear(torch.cat([padded[:, 2:], x, padded[:, :-2]], -1), self.weight, self.bias)


def lay_out_grouped(layer: Any) -> nn.Module:
    """Return a Grouped layer as a linear layer per group if it is pointwise, otherwise as a convolution."""
    pointwise = layer.kernel.shape[0] == layer.stride == 1 and not layer.padding
    return SplitGroups(layer) if pointwise else Convolution(layer)


_LAID_OUT: dict[str, Callable[[Any], nn.Module]] = {
    "Dense": LaidOutDense,
    "Grouped": lay_out_grouped,
    "Linear": LaidOutDense,
    "Trigram": ShiftedTrigram,
}


def lay_out(module: nn.Module) -> None:
    """Replace a module's layers, in place, by layers whose kernels have the layout of torch.nn.functional."""
    for name, layer in module.named_children():
        if make := _LAID_OUT.get(type(layer).__name__):
            setattr(module, name, make(layer))
        else:
            lay_out(layer)


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def spell_out(module: nn.Module, activation: Callable) -> None:
    """Replace an activation function, in a module and its layers, by `gelu_tanh`, which has only basic operators."""
    for layer in module.modules():
        for name, value in list(vars(layer).items()):
            if value is activation:
                setattr(layer, name, gelu_tanh)


class Int8Table(nn.Module):
    """A Table of modeling_bertzoo.py in int8, with a scale per row.

    `embedding` is the float32 table, for a masked-language-model head that shares it.
    """

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.embedding = table.embedding
        scale = table.embedding.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        self.register_buffer("scale", scale)
        self.register_buffer("rows", (table.embedding.detach() / scale).round().to(torch.int8))

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.rows).float() * functional.embedding(ids, self.scale)


class Phone(nn.Module):
    """A PyTorch model for inference, laid out in place, with positional inputs; names: the inputs', in their order."""

    def __init__(self, model: Any, names: tuple[str, ...]) -> None:
        super().__init__()
        lay_out(model)
        self.model, self.names = model, names
        self.eval().requires_grad_(False)

    def forward(self, *rows: Tensor) -> Outputs:
        """Map int32 inputs, each (1,L), or (1,P) for `masked_positions`, to the head's outputs by name."""
        inputs = dict(zip(self.names, rows, strict=True))
        mask = inputs["attention_mask"]
        types = inputs.get("token_type_ids", torch.zeros_like(mask))
        hidden_states, _ = self.model.encoder(self.model.embedding(inputs["input_ids"], types, mask), mask)
        x = hidden_states[-1]
        pooled = x[:, 0]
        if getattr(self.model, "pooler", None) is not None:
            pooled = torch.tanh(self.model.pooler(pooled))
        return self.model.exported(x, pooled, {"token_type_ids": types, **inputs})
