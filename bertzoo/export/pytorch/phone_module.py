# pyright: reportMissingImports=false
"""A model of modeling_bertzoo.py as an app runs it: rows of one sentence in, its head's outputs by name.

Needs torch alone, as it also runs where bertzoo is not installed. Names and shapes are those of
export.graph.reference. Shapes: B batch, which is 1, L length, P predictions, D width.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Given = Mapping[str, Tensor]
Outputs = dict[str, Tensor]


class Linear(nn.Module):
    """A Dense part whose kernel lies as `linear` takes it."""

    def __init__(self, dense: Any) -> None:
        super().__init__()
        self.inputs, self.features = len(dense.axes) - len(dense.features), tuple(dense.features)
        kernel = dense.kernel.reshape(math.prod(dense.kernel.shape[: self.inputs]), -1)
        self.weight, self.bias = nn.Parameter(kernel.mT.contiguous()), nn.Parameter(dense.bias.flatten())

    def forward(self, x: Tensor) -> Tensor:
        y = functional.linear(x if self.inputs == 1 else x.flatten(-self.inputs), self.weight, self.bias)
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class Convolution(nn.Module):
    """A Grouped part whose kernel lies as `conv1d` takes it."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.settings, self.features = (part.stride, part.padding, part.dilation, part.groups), tuple(part.features)
        self.weight, self.bias = nn.Parameter(part.kernel.permute(2, 1, 0).contiguous()), part.bias

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.ndim == 3 else x.flatten(2)
        y = functional.conv1d(x.mT, self.weight, self.bias, *self.settings).mT
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


def is_pointwise(part: Any) -> bool:
    """Whether a Grouped part reads one position for each that it writes."""
    return part.kernel.shape[0] == part.stride == 1 and not part.padding


class Apart(nn.Module):
    """A pointwise Grouped part as a dense map for each group, what they give side by side."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.features = tuple(part.features)
        kernels = part.kernel[0].mT.chunk(part.groups)
        self.weights = nn.ParameterList([nn.Parameter(kernel.contiguous()) for kernel in kernels])
        self.biases = nn.ParameterList([nn.Parameter(bias.clone()) for bias in part.bias.chunk(part.groups)])

    def forward(self, x: Tensor) -> Tensor:
        shares = (x if x.ndim == 3 else x.flatten(2)).chunk(len(self.weights), -1)
        maps = zip(shares, self.weights, self.biases, strict=True)
        y = torch.cat([functional.linear(share, weight, bias) for share, weight, bias in maps], -1)
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class Batched(nn.Module):
    """A pointwise Grouped part as one product whose batch axis is the groups."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.features, self.groups = tuple(part.features), part.groups
        kernel = part.kernel[0].unflatten(-1, (part.groups, -1))
        self.weight, self.bias = nn.Parameter(kernel.permute(1, 0, 2).contiguous()), part.bias

    def forward(self, x: Tensor) -> Tensor:
        x = (x if x.ndim == 3 else x.flatten(2)).squeeze(0).unflatten(-1, (self.groups, -1))
        y = ((x.transpose(0, 1) @ self.weight).transpose(0, 1).flatten(1) + self.bias)[None]
        return y if len(self.features) == 1 else y.unflatten(-1, self.features)


class Neighbours(nn.Module):
    """A Trigram part whose kernel lies as `linear` takes it."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.mask_padding = part.mask_padding
        self.weight, self.bias = nn.Parameter(part.kernel.flatten(0, 1).mT.contiguous()), part.bias

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.mask_padding:
            x = x * mask[..., None].to(x.dtype)
        padded = functional.pad(x, (0, 0, 1, 1))
        return functional.linear(torch.cat([padded[:, 2:], x, padded[:, :-2]], -1), self.weight, self.bias)


# How a map of groups is computed; which is the fastest, a runtime's own module says.
GROUPED: dict[str, Callable[[Any], nn.Module]] = {"convolution": Convolution, "apart": Apart, "batched": Batched}
_LAID_OUT: dict[str, Callable[[Any], nn.Module]] = {"Dense": Linear, "Trigram": Neighbours}


def lay_out(module: nn.Module, grouped: str) -> None:
    """Put kernels, inside a module, into the layouts that runtimes multiply by, so that no call turns them."""
    for name, part in module.named_children():
        kind = type(part).__name__
        if kind == "Grouped":
            setattr(module, name, GROUPED[grouped if is_pointwise(part) else "convolution"](part))
        elif make := _LAID_OUT.get(kind):
            setattr(module, name, make(part))
        else:
            lay_out(part, grouped)


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))


def spell_out(module: nn.Module, named: Callable) -> None:
    """Put `gelu_tanh`, in plain operators, where a module's parts have the function that `named` is."""
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if value is named:
                setattr(part, name, gelu_tanh)


class Phone(nn.Module):
    """A model under its head, or where it has none under `pooling`, "mean" or "first"; `grouped` is one of GROUPED."""

    def __init__(self, model: Any, pooling: str, grouped: str) -> None:
        super().__init__()
        lay_out(model, grouped)
        self.model, self.outputs = model, HEADS.get(type(model).__name__, POOLINGS[pooling])

    def run(self, given: Given) -> Outputs:
        """Rows (1,L) int32, and `masked_positions` (1,P), -> outputs by name, the first axis of each of 1."""
        mask = given["attention_mask"]
        types = given.get("token_type_ids", torch.zeros_like(mask))
        hidden_states, _ = self.model.encoder(self.model.embedding(given["input_ids"], types, mask), mask)
        x = hidden_states[-1]
        pooled = x[:, 0]
        if getattr(self.model, "pooler", None) is not None:
            pooled = torch.tanh(self.model.pooler(pooled))
        return self.outputs(self.model, x, pooled, {"token_type_ids": types, **given})


class OfIds(Phone):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Outputs:
        return self.run({"input_ids": input_ids, "attention_mask": attention_mask})


class OfTypes(Phone):
    def forward(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Outputs:
        return self.run({"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask})


class OfBlanks(Phone):
    def forward(self, input_ids: Tensor, attention_mask: Tensor, masked_positions: Tensor) -> Outputs:
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        return self.run({**given, "masked_positions": masked_positions})


class OfTypedBlanks(Phone):
    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor, masked_positions: Tensor
    ) -> Outputs:
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "attention_mask": attention_mask}
        return self.run({**given, "masked_positions": masked_positions})


# Formats name their inputs after arguments.
_READING = {
    ("input_ids", "attention_mask"): OfIds,
    ("input_ids", "token_type_ids", "attention_mask"): OfTypes,
    ("input_ids", "attention_mask", "masked_positions"): OfBlanks,
    ("input_ids", "token_type_ids", "attention_mask", "masked_positions"): OfTypedBlanks,
}


def phone(model: nn.Module, inputs: tuple[str, ...], pooling: str, grouped: str) -> Phone:
    """A model, which is used up, as a module of these inputs, in evaluation and without gradients."""
    return _READING[inputs](model, pooling, grouped).eval().requires_grad_(False)


def _logits(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    return {"logits": model.head(x, pooled)["logits"]}


def _spans(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    logits = model.span_head(x)
    return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def _joint_spans(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    found = model.joint_span_head(x, given["token_type_ids"] * given["attention_mask"], None)
    null = {"starts": found["starts"].int(), "null_logit": found["null_logits"][:, None]}
    return {name: found[name] for name in ("start_logits", "end_logits")} | null


def _masked(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    """Of the positions alone that are asked for."""
    rows = x.index_select(1, given["masked_positions"][0])
    found = {"masked_logits": model.masked_head(rows, model.embedding.word.embedding)}
    return found if model.sentence_head is None else {**found, "sentence_logits": model.sentence_head(pooled)}


def _mean(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    weight = given["attention_mask"].to(x.dtype)
    return {"embedding": (weight[:, None] @ x)[:, 0] / weight.sum(-1, keepdim=True)}


def _first(model: Any, x: Tensor, pooled: Tensor, given: Given) -> Outputs:
    return {"embedding": pooled}


POOLINGS = {"mean": _mean, "first": _first}
HEADS = {
    "SequenceClassifier": _logits,
    "TokenClassifier": _logits,
    "Discriminator": _logits,
    "SpanFinder": _spans,
    "JointSpanFinder": _joint_spans,
    "Pretraining": _masked,
}
