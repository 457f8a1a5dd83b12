"""Variables of the official TensorFlow 1 code and our tensors, written by hand without the package's tables."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np


class Variable(NamedTuple):
    """Name and shape there, path here, and how the array becomes ours; no path: it is no part of the model."""

    name: str
    shape: tuple[int, ...]
    path: str | None
    ours: Callable[[np.ndarray], np.ndarray]


def plain(name: str, shape: tuple[int, ...], path: str, ours: tuple[int, ...] | None = None) -> Variable:
    return Variable(name, shape, path, lambda array: array.reshape(ours or shape))


def dense(name: str, path: str, before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[Variable]:
    shape = (int(np.prod(before)), int(np.prod(after)))
    yield plain(f"{name}/kernel", shape, f"{path}/kernel", (*before, *after))
    yield plain(f"{name}/bias", shape[1:], f"{path}/bias", after)


def norm(name: str, path: str, width: int) -> Iterator[Variable]:
    yield plain(f"{name}/gamma", (width,), f"{path}/scale")
    yield plain(f"{name}/beta", (width,), f"{path}/bias")


def embeddings(scope: str, c: dict[str, Any], width: int, kind: str = "LayerNorm") -> Iterator[Variable]:
    tables = {"word": (c["vocab"], c["embedding"]), "position": (c["positions"], width), "token_type": (2, width)}
    for name, shape in tables.items():
        yield plain(f"{scope}/embeddings/{name}_embeddings", shape, f"embedding/{name}/embedding")
    yield from norm(f"{scope}/embeddings/{kind}", "embedding/norm", width)


def bert(c: dict[str, Any]) -> Iterator[Variable]:
    """google-research/bert: modeling.py, run_pretraining.py."""
    d = c["hidden"]
    yield from embeddings("bert", c | {"embedding": d}, d)
    yield from plain_layers("bert", c)
    yield from dense("bert/pooler/dense", "pooler", (d,), (d,))
    yield from bert_heads(c, d)


def bert_heads(c: dict[str, Any], width: int) -> Iterator[Variable]:
    d = c["hidden"]
    yield from dense("cls/predictions/transform/dense", "masked_head/dense", (d,), (d,))
    yield from norm("cls/predictions/transform/LayerNorm", "masked_head/norm", d)
    yield plain("cls/predictions/output_bias", (c["vocab"],), "masked_head/bias")
    if width < d:
        shape = (c["vocab"], d - width)
        yield Variable("cls/predictions/extra_output_weights", shape, "masked_head/extra/kernel", np.transpose)
    yield Variable("cls/seq_relationship/output_weights", (2, d), "sentence_head/kernel", np.transpose)
    yield plain("cls/seq_relationship/output_bias", (2,), "sentence_head/bias")


def plain_layers(scope: str, c: dict[str, Any]) -> Iterator[Variable]:
    """What BERT's and ELECTRA's modeling.py share."""
    d, heads = c["hidden"], (c["heads"], c["hidden"] // c["heads"])
    for i in range(c["layers"]):
        theirs, ours = f"{scope}/encoder/layer_{i}", f"encoder/layers_{i}"
        for name in ("query", "key", "value"):
            yield from dense(f"{theirs}/attention/self/{name}", f"{ours}/attention/{name}", (d,), heads)
        yield from dense(f"{theirs}/attention/output/dense", f"{ours}/attention/output", heads, (d,))
        yield from norm(f"{theirs}/attention/output/LayerNorm", f"{ours}/attention_norm", d)
        yield from dense(f"{theirs}/intermediate/dense", f"{ours}/feed_forward/intermediate", (d,), (c["inner"],))
        yield from dense(f"{theirs}/output/dense", f"{ours}/feed_forward/output", (c["inner"],), (d,))
        yield from norm(f"{theirs}/output/LayerNorm", f"{ours}/feed_forward_norm", d)


def mobilebert(c: dict[str, Any]) -> Iterator[Variable]:
    """google-research/google-research mobilebert: modeling.py, run_pretraining.py; `narrow` None has no bottleneck."""
    d, e = c["hidden"], c["embedding"]
    kind = "FakeLayerNorm" if c["norm"] == "no_norm" else "LayerNorm"
    yield from embeddings("bert", c, d, kind)
    yield from dense("bert/embeddings/embedding_transformation", "embedding/transformation", (3, e), (d,))
    for i in range(c["layers"]):
        yield from mobilebert_layer(c, f"bert/encoder/layer_{i}", f"encoder/layers_{i}", kind)
    if c["pooler"]:
        yield from dense("bert/pooler/dense", "pooler", (d,), (d,))
    yield from bert_heads(c, e)


def mobilebert_layer(c: dict[str, Any], theirs: str, ours: str, kind: str) -> Iterator[Variable]:
    d, narrow, source = c["hidden"], c["narrow"] or c["hidden"], c["input"]
    heads = (c["heads"], narrow // c["heads"])
    if c["narrow"]:
        yield from dense(f"{theirs}/bottleneck/input/dense", f"{ours}/bottleneck/dense", (d,), (narrow,))
        yield from norm(f"{theirs}/bottleneck/input/{kind}", f"{ours}/bottleneck/norm", narrow)
    if source == "shared":
        yield from dense(f"{theirs}/bottleneck/attention/dense", f"{ours}/attention_input/dense", (d,), (narrow,))
        yield from norm(f"{theirs}/bottleneck/attention/{kind}", f"{ours}/attention_input/norm", narrow)
    for name in ("query", "key", "value"):
        read = d if source == "stream" or (source == "shared" and name == "value") else narrow
        yield from dense(f"{theirs}/attention/self/{name}", f"{ours}/attention/{name}", (read,), heads)
    yield from dense(f"{theirs}/attention/output/dense", f"{ours}/attention/output", heads, (narrow,))
    yield from norm(f"{theirs}/attention/output/{kind}", f"{ours}/attention_norm", narrow)
    for j in range(c["stages"]):
        place = f"_{j}" if c["narrow"] else ""
        stage, inner = theirs if j == c["stages"] - 1 else f"{theirs}/ffn_layer_{j}", c["inner"]
        yield from dense(f"{stage}/intermediate/dense", f"{ours}/feed_forward{place}/intermediate", (narrow,), (inner,))
        yield from dense(f"{stage}/output/dense", f"{ours}/feed_forward{place}/output", (inner,), (narrow,))
        yield from norm(f"{stage}/output/{kind}", f"{ours}/feed_forward_norm{place}", narrow)
    if c["narrow"]:
        yield from dense(f"{theirs}/output/bottleneck/dense", f"{ours}/output", (narrow,), (d,))
        yield from norm(f"{theirs}/output/bottleneck/{kind}", f"{ours}/output_norm", d)


def convbert_layers(scope: str, c: dict[str, Any]) -> Iterator[Variable]:
    """yitu-opensource/ConvBert modeling.py; c["heads"] are the discriminator's, the ratio 2."""
    d, g, f, k = c["hidden"], c["groups"], c["inner"], c["window"]
    left, size = max(1, int(c["heads"] / 2)), d // c["heads"]
    heads, both = (left, size), (2 * left, size)
    for i in range(c["layers"]):
        theirs, ours = f"{scope}/encoder/layer_{i}", f"encoder/layers_{i}"
        own, convolution = f"{theirs}/attention/self", f"{ours}/attention/convolution"
        for name in ("query", "key", "value"):
            yield from dense(f"{own}/{name}", f"{ours}/attention/{name}", (d,), heads)
        key = f"{convolution}/span_key"
        yield plain(f"{own}/conv_attn_key/depthwise_kernel", (k, d, 1), f"{key}/depthwise/kernel", (k, d))
        shape = (1, d, left * size)
        yield plain(f"{own}/conv_attn_key/pointwise_kernel", shape, f"{key}/pointwise/kernel", (d, *heads))
        yield plain(f"{own}/conv_attn_key/bias", (left * size,), f"{key}/pointwise/bias", heads)
        yield from dense(f"{own}/conv_attn_kernel", f"{convolution}/kernel_generator", (left * size,), (left, k))
        yield from dense(f"{own}/conv_attn_point", f"{convolution}/value", (d,), heads)
        yield from dense(f"{theirs}/attention/output/dense", f"{ours}/attention/output", both, (d,))
        yield from norm(f"{theirs}/attention/output/LayerNorm", f"{ours}/attention_norm", d)
        for place, before, after in (("intermediate", d, f), ("output", f, d)):
            path = f"{ours}/feed_forward/{place}"
            if g == 1:
                yield from dense(f"{theirs}/{place}/dense", path, (before,), (after,))
                continue
            shape = (g, before // g, after // g)
            yield Variable(f"{theirs}/{place}/g_dense/kernel", shape, f"{path}/kernel", beside_each_other)
            yield plain(f"{theirs}/{place}/g_dense/bias", (after,), f"{path}/bias")
        yield from norm(f"{theirs}/output/LayerNorm", f"{ours}/feed_forward_norm", d)


def beside_each_other(groups: np.ndarray) -> np.ndarray:
    return np.concatenate(list(groups), axis=1)[None]


def tower(scope: str, c: dict[str, Any]) -> Iterator[Variable]:
    """One encoder of ELECTRA or ConvBERT, without the embeddings."""
    if c["embedding"] != c["hidden"]:
        yield from dense(f"{scope}/embeddings_project", "encoder/projection", (c["embedding"],), (c["hidden"],))
    yield from (convbert_layers if "window" in c else plain_layers)(scope, c)


def discriminator(c: dict[str, Any]) -> Iterator[Variable]:
    """google-research/electra: modeling.py, run_pretraining.py."""
    d = c["hidden"]
    yield from embeddings("electra", c, c["embedding"])
    yield from tower("electra", c)
    yield from dense("discriminator_predictions/dense", "replaced_head/dense", (d,), (d,))
    yield from dense("discriminator_predictions/dense_1", "replaced_head/output", (d,), (1,))


def generator(c: dict[str, Any]) -> Iterator[Variable]:
    """The other one, with the embeddings that it shares."""
    e = c["embedding"]
    yield from embeddings("electra", c, e)
    yield from tower("generator", c)
    yield from dense("generator_predictions/dense", "masked_head/dense", (c["hidden"],), (e,))
    yield from norm("generator_predictions/LayerNorm", "masked_head/norm", e)
    yield plain("generator_predictions/output_bias", (c["vocab"],), "masked_head/bias")


def values(variables: list[Variable]) -> dict[str, np.ndarray]:
    """Random values, with the optimiser's slots and other variables of a checkpoint."""
    random = np.random.default_rng(0)
    found = {v.name: random.normal(size=v.shape).astype(np.float32) / 4 for v in variables}
    slots = {f"{name}/{slot}": array + 1 for name, array in found.items() for slot in ("adam_m", "adam_v")}
    return {**found, **slots, "global_step": np.array(7, np.int64)}


def expected(variables: list[Variable], found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our parameters."""
    return {v.path: v.ours(found[v.name]) for v in variables if v.path}
