# pyright: reportMissingImports=false
"""A bertzoo model in PyTorch: it needs only this file, config.json and model.safetensors.

    from modeling_bertzoo import load
    model = load("DIRECTORY")
    outputs = model(input_ids, token_type_ids, attention_mask)

Requires torch and safetensors. config.json describes the model's modules, whose classes are below; the tensors have
bertzoo's names and layouts. Shapes: B batch, L length, M key length, D width, E embedding width, H heads,
K size of a head, W window, G groups, V vocabulary.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Outputs = dict[str, Any]
MASKED_SCORE = -3e4
EXCLUDED = -1000.0


class Part(nn.Module):
    """A module, built from config.json's description of its settings and submodules."""

    tensors: tuple[str, ...] = ()

    def __init__(self, description: dict, take: Callable[[str], Tensor], path: str) -> None:
        super().__init__()
        self.rows: dict[str, list[str]] = {}
        for name in self.tensors:
            self.register_parameter(name, nn.Parameter(take(path + name)))
        for name, value in description.items():
            if isinstance(value, dict):
                setattr(self, name, make(value, take, f"{path}{name}."))
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                self._several(name, value, take, path)
            elif name != "part":
                setattr(self, name, FUNCTIONS.get(value, value) if isinstance(value, str) else value)

    def _several(self, name: str, values: list[dict], take: Callable[[str], Tensor], path: str) -> None:
        """Add the modules of a list; a repeated module shares the parameters of its first occurrence."""
        indices = [value.get("same_as", index) for index, value in enumerate(values)]
        for index in sorted(set(indices)):
            self.add_module(f"{name}_{index}", make(values[index], take, f"{path}{name}_{index}."))
        self.rows[name] = [f"{name}_{index}" for index in indices]

    def row(self, name: str) -> list[nn.Module]:
        """Return the modules of the list `name`, looked up as attributes: a deep copy then returns its own modules."""
        return [getattr(self, module) for module in self.rows.get(name, ())]


class Table(Part):
    tensors = ("embedding",)

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.embedding)


class LayerNorm(Part):
    tensors = ("scale", "bias")

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.scale, getattr(self, "bias", None), self.epsilon)


class ScaleNorm(LayerNorm):
    tensors = ("scale",)


class NoNorm(Part):
    tensors = ("scale", "bias")

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.bias


class Dropout(Part):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.rate, self.training)


class Dense(Part):
    """Maps (..., *I) to (..., *O) by a kernel (*I, *O); `axes` names the kernel's axes, inputs first."""

    tensors = ("kernel", "bias")

    def forward(self, x: Tensor) -> Tensor:
        inputs = len(self.axes) - len(self.features)
        kernel = self.kernel.reshape(math.prod(self.kernel.shape[:inputs]), -1)
        y = x.flatten(x.ndim - inputs) @ kernel
        return (y + self.bias.flatten() if "bias" in self.tensors else y).unflatten(-1, self.features)


class Linear(Dense):
    tensors = ("kernel",)


class Grouped(Part):
    """Convolves (B,L,*I) to (B,L',*O), with input channels I and output channels O in G groups; kernel (W, I/G, O)."""

    tensors = ("kernel", "bias")

    def forward(self, x: Tensor) -> Tensor:
        weight, settings = self.kernel.permute(2, 1, 0), (self.stride, self.padding, self.dilation, self.groups)
        return functional.conv1d(x.flatten(2).mT, weight, self.bias, *settings).mT.unflatten(-1, self.features)


class Trigram(Part):
    """Maps (B,L,E) to (B,L,D): next token, token and previous token, concatenated, times the kernel (3,E,D)."""

    tensors = ("kernel", "bias")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.mask_padding:
            x = zero_padding(x, mask)
        following, previous = functional.pad(x[:, 1:], (0, 0, 0, 1)), functional.pad(x[:, :-1], (0, 0, 1, 0))
        return torch.cat([following, x, previous], -1) @ self.kernel.flatten(0, 1) + self.bias


class Embedding(Part):
    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        x = self.word(ids)
        if self.transformation is not None:
            x = self.transformation(x, mask)
        if self.position is not None:
            x = x + self.position(torch.arange(ids.shape[1], device=ids.device))
        if self.token_type is not None:
            x = x + self.token_type(types)
        return self.dropout(self.norm(x))


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module, far: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the context (B,L,H,K) and the probabilities (B,H,L,M); query is (B,L,H,K), key and value (B,M,H,K).

    far: (L,M), true where a token does not see another.
    """
    scores = torch.einsum("blhk,bmhk->bhlm", query * query.shape[-1] ** -0.5, key)
    hidden = mask[:, None, None, :] == 0
    probabilities = scores.masked_fill(hidden if far is None else hidden | far, MASKED_SCORE).softmax(-1)
    return torch.einsum("bhlm,bmhj->blhj", dropout(probabilities), value), probabilities


class SelfAttention(Part):
    def forward(self, x: Tensor, mask: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        value = self.value(x if values is None else values)
        context, probabilities = attend(self.query(x), self.key(x), value, mask, self.dropout)
        return self.output(context), probabilities


def rotate(x: Tensor, theta: float) -> Tensor:
    """Rotate the pairs (k, k + K/2) of x (B,L,H,K) by position · theta^(-2k/K)."""
    size = x.shape[-1]
    positions = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
    angle = positions[:, None, None] * theta ** (-torch.arange(0, size, 2, device=x.device) / size)
    first, second = x[..., : size // 2], x[..., size // 2 :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class RotaryAttention(Part):
    def forward(self, x: Tensor, mask: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        far, query, value = None, self.query(x), self.value(x if values is None else values)
        if self.reach is not None:
            positions = torch.arange(x.shape[1], device=x.device)
            far = (positions[:, None] - positions).abs() > self.reach
        rotated, key = rotate(query, self.theta), rotate(self.key(x), self.theta)
        context, probabilities = attend(rotated, key, value, mask, self.dropout, far)
        if far is not None:  # padding that sees no token gets 0
            context = context * (~far & (mask[:, None] > 0)).any(-1)[..., None, None]
        if self.convolution is not None:
            context = torch.cat([context, self.convolution(x, query, mask)], 2)
        return self.dropout(self.output(context)), probabilities


class WindowedAttention(Part):
    def forward(self, x: Tensor, mask: Tensor, values: Tensor | None = None) -> tuple[Tensor, Tensor]:
        key, value = self.key(zero_padding(x, mask)), self.value(zero_padding(x if values is None else values, mask))
        middles = self.stride * torch.arange(key.shape[1], device=mask.device)  # a slice would hide their number
        context, probabilities = attend(self.query(x), key, value, mask[:, middles], self.dropout)
        return self.output(context), probabilities


class MixedAttention(Part):
    """Concatenates attention heads and convolution heads, and projects them to (B,L,D)."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        query = self.query(x)
        context, probabilities = attend(query, self.key(x), self.value(x), mask, self.dropout)
        return self.output(torch.cat([context, self.convolution(x, query, mask)], 2)), probabilities


def convolved(x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """Return, at each position t, Σ_w weights[w] · x[:, t + w - W//2], with zeros beyond the ends of x (B,L,...)."""
    padded = functional.pad(x, [0, 0] * (x.ndim - 2) + [len(weights) // 2] * 2)
    return sum(weight * padded[:, tap : tap + x.shape[1]] for tap, weight in enumerate(weights))


def zero_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask.reshape(*mask.shape, *[1] * (x.ndim - 2)).to(x.dtype)


def keep_padding(x: Tensor, mask: Tensor) -> Tensor:
    return x


class Depthwise(Part):
    tensors = ("kernel",)

    def forward(self, x: Tensor) -> Tensor:
        return convolved(x, self.kernel.unbind(0))


class SpanKey(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise(self.depthwise(x))


class SpanConvolution(Part):
    def forward(self, x: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        kernel = self.kernel_generator((self.span_key(self.before_window(x, mask)) * query).flatten(2)).softmax(-1)
        return convolved(self.before_window(self.value(x), mask), kernel[..., None].unbind(-2))


class DynamicConvolution(Part):
    def forward(self, x: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        gated = self.value(x) * self.gate(x).sigmoid()
        kernel = self.kernel_generator(gated.flatten(2)).softmax(-1)
        return convolved(self.before_window(gated, mask), kernel[..., None].unbind(-2))


class FixedConvolution(Part):
    def forward(self, x: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        return self.value(self.depthwise(self.before_window(x, mask)))


class FeedForward(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.intermediate(x)))


class GatedFeedForward(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(self.activation(self.intermediate(x)) * self.gate(x)))


class PreNormLayer(Part):
    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        b = x if self.bottleneck is None else self.bottleneck(x)
        attended, probabilities = self.attention(b if self.attention_norm is None else self.attention_norm(b), mask)
        b = b + attended
        b = b + self.feed_forward(self.feed_forward_norm(b))
        x = b if self.output is None else x + self.output(b)
        return x if self.output_norm is None else self.output_norm(x), probabilities


class Layer(Part):
    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        attended, probabilities = self.attention(x, mask)
        x = self.attention_norm(x + self.dropout(attended))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x))), probabilities


def from_stream(x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return x, x


def from_bottleneck(x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return b, b


class Bottleneck(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.dense(x))


class SharedBottleneck(Part):
    def forward(self, x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm(self.dense(x)), x


class BottleneckLayer(Part):
    """Computes attention and feed-forwards at the smaller width of a bottleneck."""

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        b = self.bottleneck(x)
        source, values = self.attention_input(x, b)
        attended, probabilities = self.attention(source, mask, *(() if values is source else (values,)))
        b = self.attention_norm(b + attended)
        for feed_forward, norm in zip(self.row("feed_forward"), self.row("feed_forward_norm"), strict=True):
            b = norm(b + feed_forward(b))
        return self.output_norm(x + self.dropout(self.output(b))), probabilities


class Encoder(Part):
    def forward(self, x: Tensor, mask: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        hidden_states = [x if self.projection is None else self.projection(x)]
        attentions = []
        for layer in self.row("layers"):
            x, probabilities = layer(hidden_states[-1], mask)
            hidden_states.append(x)
            attentions.append(probabilities)
        return hidden_states, attentions


class Untied(Part):
    tensors = ("kernel",)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.kernel


class MaskedHead(Part):
    """Computes logits (B,L,V) with the word embeddings as output weights."""

    tensors = ("bias",)

    def forward(self, x: Tensor, word: Tensor) -> Tensor:
        z = self.norm(self.activation(self.dense(x)))
        logits = functional.linear(z[..., : word.shape[1]], word, self.bias)
        return logits if self.extra is None else logits + self.extra(z[..., word.shape[1] :])


class ReplacedHead(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.dense(x)))[..., 0]


class ClassificationHead(Part):
    def forward(self, x: Tensor) -> Tensor:
        if self.dense is not None:
            x = self.activation(self.dense(self.input_dropout(x)))
        if self.norm is not None:
            x = self.norm(x)
        return self.output(self.dropout(x))


class Encoding(Part):
    """A model; returns hidden_states, attentions (probabilities), pooled and its head's outputs. Padding has mask 0."""

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None, attention_mask: Tensor | None = None):
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden_states, attentions = self.encoder(self.embedding(input_ids, types, mask), mask)
        pooled = hidden_states[-1][:, 0]
        if getattr(self, "pooler", None) is not None:
            pooled = torch.tanh(self.pooler(pooled))
        outputs = {"hidden_states": hidden_states, "attentions": attentions, "pooled": pooled}
        return outputs | self.head(hidden_states[-1], pooled, {"token_type_ids": types, "attention_mask": mask})

    def head(self, x: Tensor, pooled: Tensor, inputs: dict[str, Tensor]) -> Outputs:
        """Return the head's outputs from states (B,L,D); inputs: `token_type_ids` and `attention_mask` by name."""
        return {}

    def exported(self, x: Tensor, pooled: Tensor, inputs: dict[str, Tensor]) -> Outputs:
        """Return the outputs of an exported file, from states (B,L,D); {} without a head. A subclass may override it.

        inputs: `token_type_ids`, `attention_mask` and the head's further inputs, by name.
        """
        outputs = self.head(x, pooled, inputs)
        if not outputs and type(self) is not Encoding:
            raise NotImplementedError(
                f"{type(self).__name__} has no outputs for a file. Give it the method `exported`."
            )
        return outputs


FUNCTIONS: dict[str, Callable] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "from_stream": from_stream,
    "from_bottleneck": from_bottleneck,
    "zero_padding": zero_padding,
    "keep_padding": keep_padding,
}


def make(description: dict, take: Callable[[str], Tensor], path: str) -> nn.Module:
    """Return the module that `description` describes; `take` returns a tensor by name, `path` precedes the names."""
    kind = globals().get(description["part"])
    if not (isinstance(kind, type) and issubclass(kind, Part)):
        raise ValueError(f"modeling_bertzoo.py has no class {description['part']}. Use the version beside config.json.")
    return kind(description, take, path)


def load(directory: str | Path) -> nn.Module:
    """Return a directory's model in evaluation mode; raises ValueError naming a tensor that is missing or unused."""
    from safetensors.torch import load_file

    description = json.loads((Path(directory) / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(Path(directory) / "model.safetensors")

    def take(name: str) -> Tensor:
        if name not in tensors:
            raise ValueError(f"model.safetensors lacks the tensor {name}. Export the model again.")
        return tensors.pop(name)

    model = make(description["architecture"], take, "")
    if tensors:
        raise ValueError(f"model.safetensors holds the unknown tensor {next(iter(tensors))}. Export the model again.")
    return model.eval()
