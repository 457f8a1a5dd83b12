"""What of an export graph computes what: its products by part, and the same graph without one part."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.export.graph import layers
from bertzoo.export.graph.attention import Attention, AttentionApart
from bertzoo.export.graph.graph import BottleneckLayer, Graph, Layer
from bertzoo.export.litert import litert
from bertzoo.nn.flops import PRODUCTS, inner_jaxprs, product_flops

# SqueezeBERT's Table 1 has the attention's output in its FFN: BERT-base's projections are 24.3 %, attention 2.70 %, and
# FFN 8.1 + 64.9 = 73.0 %. Maps into and out of a bottleneck, as MobileBERT's, are not in it.
PARTS = ("embedding", "bottleneck", "projections", "attention", "attention_output", "feed_forward", "head")
_PLACES = (
    (r"\.(embedding|projection)\b", "embedding"),
    (r"\.(pooler|head)\b", "head"),
    (r"\.layers\[\d+\]\.attention\.convolution\b", "attention"),
    (r"\.layers\[\d+\]\.attention\.output\b", "attention_output"),
    (r"\.layers\[\d+\]\.attention\b", "projections"),
    (r"\.layers\[\d+\]\.feed_forward", "feed_forward"),
    (r"\.layers\[\d+\]", "bottleneck"),
)


class Product(NamedTuple):
    """A matrix product or convolution."""

    part: str
    flops: int


def products(graph: Graph, length: int) -> list[Product]:
    """All products of a row, in their order: each is of the part whose parameter it multiplies with, and one of two
    activations is attention's, or after the layers the head's.
    """
    given = {name: jax.ShapeDtypeStruct(row.shape[1:], row.dtype) for name, row in litert.shapes(graph, length).items()}
    closed = jax.make_jaxpr(lambda graph, given: graph(**given))(graph, given)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    leaves, _ = jax.tree_util.tree_flatten_with_path(graph)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    known = {variable: _part(path) for variable, path in zip(jaxpr.invars, paths, strict=False)}
    found: list[Product] = []
    _walk(jaxpr, known, found)
    return found


def _part(path: str) -> str:
    return next(part for pattern, part in _PLACES if re.match(pattern, path))


def _walk(jaxpr: core.Jaxpr, known: dict[Any, str], found: list[Product]) -> None:
    for equation in jaxpr.eqns:
        read = [known.get(each) if isinstance(each, core.Var) else None for each in equation.invars]
        parts_read = [part for part in read if part is not None]
        if equation.primitive.name in PRODUCTS:
            within = "head" if found and found[-1].part == "head" else "attention"
            part = parts_read[0] if parts_read else within
            found.append(Product(part, product_flops(equation)))
        elif inner := list(inner_jaxprs(equation.params)):
            for each in inner:
                pairs = zip(each.invars, read, strict=False)
                _walk(each, {variable: part for variable, part in pairs if part is not None}, found)
        elif len(parts_read) == len(read) == 1:  # a parameter in another shape
            known |= dict.fromkeys(equation.outvars, parts_read[0])


def of_weights(graph: Graph, weights: Sequence[bytes]) -> list[str | None]:
    """The part of every dense operator of a file, of which the weights (O,I) are given.

    The converter may have multiplied them with what follows; then they are of the part whose kernels of that size are
    missing, and of None where that is not one alone.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(graph)
    kernels = {
        np.ascontiguousarray(np.transpose(leaf), np.float32).tobytes(): _part(jax.tree_util.keystr(path))
        for path, leaf in leaves
        if np.ndim(leaf) == 2
    }
    missing = [(len(kernel), part) for kernel, part in kernels.items() if kernel not in set(weights)]

    def found(one: bytes) -> str | None:
        alike = {part for size, part in missing if size == len(one) and part != "embedding"}
        return kernels.get(one) or (alike.pop() if len(alike) == 1 else None)

    return [found(one) for one in weights]


def flops(graph: Graph, length: int) -> dict[str, int]:
    """Operations of the products of every part that the graph has, 2 per multiply-add."""
    made = products(graph, length)
    return {part: sum(each.flops for each in made if each.part == part) for part in present(graph)}


def present(graph: Graph) -> tuple[str, ...]:
    """The parts that the graph has: all but bottlenecks, which few have."""
    narrow = any(isinstance(layer, BottleneckLayer) for layer in graph.layers)
    return tuple(part for part in PARTS if part != "bottleneck" or narrow)


class Columns(struct.PyTreeNode):
    """(..., I) -> (..., O) in the place of a map: the columns as they are, as many as it has, again where they end."""

    size: int = struct.field(pytree_node=False)

    def __call__(self, x: jax.Array) -> jax.Array:
        repeats = -(-self.size // x.shape[-1])
        return (jnp.concatenate([x] * repeats, axis=-1) if repeats > 1 else x)[..., : self.size]


class Added(struct.PyTreeNode):
    """In the place of a norm: the residual and what is added to it."""

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """Their sum."""
        return x + update


class Passed(struct.PyTreeNode):
    """In the place of a feed-forward and its norm: nothing is added to the residual."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return x

    def join(self, x: jax.Array, update: jax.Array) -> jax.Array:
        """The residual."""
        return x


class Unattended(struct.PyTreeNode):
    """Attention whose projections are only added up; called as Attention is."""

    projections: tuple[Any, ...]
    output: Any  # as Attention's
    width: int = struct.field(pytree_node=False)
    window: int = struct.field(pytree_node=False)  # of the heads that convolve, or 0

    def __call__(
        self, source_LD: jax.Array, values_LI: jax.Array, masked_M: jax.Array, mask_L: jax.Array, rows: int
    ) -> jax.Array:
        read = {"values": values_LI, "first": source_LD[:rows], "near": source_LD[: rows + self.window // 2]}
        found = [each.map(read.get(each.reads, source_LD))[:rows] for each in self.projections]
        columns = [Columns(size=self.width)(each) for each in found]
        added = sum(columns[1:], columns[0])
        return added if self.output is None else self.output(added)


class NotEmbedded(struct.PyTreeNode):
    """Positions in the place of the embedding, a little different for every row, or nothing would be computed of it."""

    word: Any
    position: Any
    token_type: Any

    def __call__(self, ids_L: jax.Array, types_L: jax.Array | None, mask_L: jax.Array) -> jax.Array:
        return self.position[: len(ids_L)] + 1e-6 * ids_L[:, None].astype(jnp.float32)


class Headless(struct.PyTreeNode):
    """The first state in the place of all that a head gives."""

    reads_first: bool = struct.field(pytree_node=False)
    more_inputs: tuple[str, ...] = struct.field(pytree_node=False)

    def __call__(self, x_RD: jax.Array, pooled: Any, mask_L: Any, table_VE: Any, given: Any) -> dict[str, jax.Array]:
        return {"state": x_RD[:1]}


def without(graph: Graph, part: str) -> Graph:
    """The graph that lacks what a part computes and keeps what all others do; a residual and its norm belong to what is
    added to it.
    """
    if part == "embedding":
        embedding = graph.embedding
        positions = NotEmbedded(word=embedding.word, position=embedding.position, token_type=embedding.token_type)
        bare = graph.replace(embedding=positions)
        return bare if graph.projection is None else bare.replace(projection=_columns(graph.projection))
    if part == "head":
        return graph.replace(head=Headless(reads_first=graph.head.reads_first, more_inputs=graph.head.more_inputs))
    change = _CHANGES[part]
    return graph.replace(layers=tuple(layer.replace(**change(layer)) for layer in graph.layers))


def _columns(part: Any) -> Columns:
    return Columns(size=_width(part))


def _width(part: Any) -> int:
    """Columns of a map's output, of any that the export graph has."""
    if isinstance(part, layers.Apart):
        return sum(map(_width, part.parts))
    if isinstance(part, layers.Narrow):
        return _width(part.dense)
    return part.bias.size


def _no_projections(layer: Layer | BottleneckLayer) -> Mapping[str, Any]:
    def bare(attention: Attention | AttentionApart) -> Any:
        if isinstance(attention, AttentionApart):
            return attention.replace(parts=tuple(map(bare, attention.parts)))
        projections = tuple(each.replace(map=_columns(each.map)) for each in attention.projections)
        return attention.replace(projections=projections)

    return {"attention": bare(layer.attention)}


def _no_attention(layer: Layer | BottleneckLayer) -> Mapping[str, Any]:
    def bare(attention: Attention | AttentionApart) -> Any:
        if isinstance(attention, AttentionApart):
            return attention.replace(parts=tuple(map(bare, attention.parts)))
        sizes = dict(pair for each in attention.projections for pair in zip(each.names, each.sizes, strict=True))
        width = sizes["value"] + sizes.get("convolved", 0)
        window = attention.convolution.window if attention.convolution is not None else 0
        return Unattended(projections=attention.projections, output=attention.output, width=width, window=window)

    return {"attention": bare(layer.attention)}


def _no_attention_output(layer: Layer | BottleneckLayer) -> Mapping[str, Any]:
    output = None if layer.attention.output is None else _columns(layer.attention.output)
    return {"attention": layer.attention.replace(output=output), "attention_norm": Added()}


def _no_feed_forward(layer: Layer | BottleneckLayer) -> Mapping[str, Any]:
    if isinstance(layer, Layer):
        return {"feed_forward": Passed(), "feed_forward_norm": Passed()}
    return {"feed_forwards": (), "feed_forward_norms": ()}


def _no_bottleneck(layer: Layer | BottleneckLayer) -> Mapping[str, Any]:
    if isinstance(layer, Layer):
        return {}
    shared = None if layer.shared is None else _columns(layer.shared)
    maps = {"bottleneck": _columns(layer.bottleneck), "shared": shared, "output": _columns(layer.output)}
    return {**maps, "output_norm": Added()}


_CHANGES: dict[str, Callable[[Layer | BottleneckLayer], Mapping[str, Any]]] = {
    "projections": _no_projections,
    "attention": _no_attention,
    "attention_output": _no_attention_output,
    "feed_forward": _no_feed_forward,
    "bottleneck": _no_bottleneck,
}
