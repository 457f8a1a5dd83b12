"""The export graph equals the training graph, with fewer operations, also after `scale_branches`."""

import functools
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest
from messages import mentioning
from tiers import quick
from zoo import CASES, LAYERS, MOBILE, SIZES, WINDOWED, inputs, pretrained

from bertzoo.core.errors import UserError
from bertzoo.export.graph import layers
from bertzoo.export.graph.from_model import build_graph, scale_branches
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.heads import SentenceEmbedding, SequenceClassification
from bertzoo.models import Bert, ConvBert, MobileBert, SqueezeBert
from bertzoo.nn.flops import inner_jaxprs, matmul_flops

SMALL = SIZES | LAYERS
CLASSES = SequenceClassification(labels=("a", "b", "c"))
# The zoo's models with other heads, as classifiers.
CLASSIFIERS: dict[str, Any] = {
    f"{name}-classifier": (model, CLASSES)
    for name, (model, head) in CASES.items()
    if head.kind != "sequence_classification"
}
EMBEDDING = SentenceEmbedding(pooling="first", pooler=True, normalise=False)
FIRST = {  # embeddings of the first token, with and without a projection
    f"{name}-first": (CASES[name][0], SentenceEmbedding(pooling="first", pooler=True, **more))
    for name, more in {"bert": {"projection": 9}, "mobilebert-tiny": {"normalise": False}}.items()
}
# Layers without bottlenecks, whose norms are NoNorm.
PLAIN = MobileBert(**MOBILE | {"bottleneck_size": None, "feed_forwards": 1}, attention_input="stream")
EVERY = CASES | CLASSIFIERS | FIRST | {"mobilebert-plain": (PLAIN, CLASSES)}


@functools.cache
def graphs(name: str) -> tuple[TrainingGraph, Any]:
    module, params = pretrained(*EVERY[name]).module()
    return TrainingGraph(params=params, model=module), build_graph(module, params)


def given(graph: Any) -> list[dict[str, np.ndarray]]:
    """Three sentences as the graph reads them, two with padding."""
    ids, types, mask = inputs()
    rows = zip(ids, types, mask, strict=True)
    found = [
        {"input_ids": i, "token_type_ids": t, "attention_mask": m, "masked_positions": np.array([2, 0])}
        for i, t, m in rows
    ]
    return [{name: np.asarray(row[name], np.int32) for name in graph.inputs} for row in found]


@jax.jit
def run(graph: Any, row: dict[str, np.ndarray]) -> dict[str, jax.Array]:
    return graph(**row)


def computed(graph: Any) -> list[dict[str, np.ndarray]]:
    return [jax.tree.map(np.asarray, run(graph, row)) for row in given(graph)]


@functools.cache
def wanted(name: str) -> list[dict[str, np.ndarray]]:
    return computed(graphs(name)[0])


def assert_equal(graph: Any, name: str) -> None:
    """To the training graph, to 1e-5 of an output's largest value."""
    for found, expected in zip(computed(graph), wanted(name), strict=True):
        assert found.keys() == expected.keys()
        for key, want in expected.items():
            assert found[key].shape == want.shape, key
            error, scale = np.abs(found[key] - want).max(), np.abs(want).max()
            assert error <= 1e-5 * scale, f"{key}: off by {error:.2e}, largest value {scale:.2e}"


EACH_KIND = ("albert", "convbert-span", "convbert-joint-span", "mobilebert", "schubert", "bottleneck-mixed-grouped")


@pytest.mark.parametrize("name", quick(EVERY, *EACH_KIND, "mobilebert-plain", "squeezebert"))
def test_the_graph_equals_the_model(name: str) -> None:
    plain, graph = graphs(name)
    assert graph.inputs == plain.inputs
    assert_equal(graph, name)


def operations(graph: Any) -> Counter[str]:
    """Counts of the operations that an output needs."""
    return _operations(lambda graph, row: graph(**row), graph, given(graph)[0])


def _operations(function: Any, *arguments: Any) -> Counter[str]:
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    alive, _ = jax.interpreters.partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return _count(alive)


def _count(jaxpr: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for equation in jaxpr.eqns:
        inner = list(inner_jaxprs(equation.params))
        found += sum(map(_count, inner), Counter()) if inner else Counter({equation.primitive.name: 1})
    return found


def flops(graph: Any) -> int:
    return matmul_flops(lambda graph, row: graph(**row), graph, given(graph)[0])


@pytest.mark.parametrize(
    ("name", "width", "products"),
    # Masked inputs, masked values, span key times query, and a window of 5.
    [("bert", 24, 0), ("mobilebert", 12, 0), ("squeezebert", 24, 0), ("convbert-span", 24, 8)],
)
def test_the_map_of_the_queries_has_the_scale(name: str, width: int, products: int) -> None:
    _, graph = graphs(name)
    x_LI, values_LD, mask_L = np.ones((11, width)), np.ones((11, 24)), np.ones(11)
    attend = functools.partial(graph.layers[0].attention, rows=11)
    assert _operations(attend, x_LI, values_LD, mask_L, mask_L)["mul"] == products


def test_a_folded_norm_leaves_the_scale_of_the_residual() -> None:
    counts = operations(graphs("mobilebert")[1])
    # In a layer residuals after the attention, two feed-forwards and the output; the trigram's mask, the scores' mask.
    assert counts["mul"] == 2 * 4 + 2
    # In a layer 11 biases, 4 residuals and the scores' mask; 3 in the embedding, 2 in its look-ups, 1 in the head.
    assert counts["add"] == 2 * (11 + 4 + 1) + 3 + 2 + 1


def test_split_groups_are_dense_products() -> None:
    counts = operations(graphs("squeezebert")[1])
    # In each of 4 groups query, key, value, the feed-forward's two maps, and two products of activations.
    assert counts["conv_general_dilated"] == 0 and counts["dot_general"] == 2 * (4 * (5 + 2) + 1) + 1
    # Only heads and the feed-forward's outputs are concatenated.
    assert counts["concatenate"] == 2 * 2


def test_the_mask_is_built_once() -> None:
    plain, graph = graphs("albert")
    assert operations(plain)["gt"] == 3 and operations(graph)["gt"] == 0  # 3 layers


def test_look_ups_and_gelus_are_named_composites() -> None:
    _, graph = graphs("bert")
    text = jax.jit(lambda graph, row: graph(**row)).lower(graph, given(graph)[0]).as_text()
    assert text.count('composite "aten.gelu.default"') == 2 and text.count('composite "odml.embedding_lookup"') == 2


@pytest.mark.parametrize(
    "model", [Bert(**SMALL), MobileBert(**MOBILE), SqueezeBert(**SMALL), ConvBert(**SMALL, embedding_size=10)]
)
@pytest.mark.parametrize("head", ["classifier", "first"])
def test_the_last_layer_computes_one_position(model: Any, head: str) -> None:
    """Counted by hand: the operations of L - 1 positions of the last layer."""
    module, params = pretrained(model, CLASSES if head == "classifier" else EMBEDDING).module()
    graph = build_graph(module, params)
    last = graph.layers[-1]
    saved = flops(graph.replace(layers=(*graph.layers[:-1], last.replace(first=False)))) - flops(graph)
    length, width, size = 11, model.hidden_size, model.feed_forward_size
    groups = 4 if model.kind == "squeezebert" else 1
    inner = getattr(model, "bottleneck_size", width)
    attended = inner // 2 if model.kind == "convbert" else inner
    each = inner * attended // groups + 2 * length * attended  # queries, scores and weighted values
    each += inner * inner + 2 * inner * size // groups * getattr(model, "feed_forwards", 1)
    if model.kind == "mobilebert":
        each += 2 * width * inner  # into the bottleneck and out of it
    if model.kind == "convbert":
        each += width * 9 + width * attended + attended * 2 * 9  # span key, and kernels of two heads
    expected = 2 * (length - 1) * each
    if model.kind == "convbert":  # the values that convolve reach four positions further
        expected += 2 * (length - 5) * width * attended
    assert saved == expected


def test_a_head_that_reads_every_token_keeps_the_last_layer_whole() -> None:
    for name in ("squeezebert", "convbert-dynamic", "convbert-joint-span", "schubert", "bert", "electra-discriminator"):
        assert not graphs(name)[1].layers[-1].first
    assert all(graphs(name)[1].layers[-1].first for name in FIRST)


BRANCHES = {
    "squeezebert-classifier": 2 * 2,
    "mobilebert": 2 * 4,
    "convbert-span": 2 * 2,
    "albert": 2,
    "albert-classifier": 2,  # the last layer computes one token, with the same two maps
}


@pytest.mark.parametrize("name", quick(BRANCHES, next(iter(BRANCHES))))
def test_every_channel_of_an_update_fills_its_grid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the rows, a channel's steps of 1/127 reach 127 or -128 and no more; its factor makes the graph the model."""
    (_, graph), scales = graphs(name), []
    scaled = scale_branches(graph, [{key: x[None] for key, x in row.items()} for row in given(graph)])
    assert_equal(scaled, name)

    @jax.jit
    def steps(row: dict[str, np.ndarray]) -> dict[bytes, list[jax.Array]]:
        branches: dict[bytes, list[jax.Array]] = {}

        def join(self: layers.ScaledBranch, x: Any, branch: Any) -> Any:
            scales.append(self.scale)
            branches.setdefault(bytes(self.scale), []).append(branch * 127)
            return self.norm.join(x, branch * self.scale)

        monkeypatch.setattr(layers.ScaledBranch, "join", join)
        scaled(**row)
        return branches

    found = [steps(row) for row in given(scaled)]
    assert all(len(branches) == BRANCHES[name] for branches in found)
    arrays = [len({id(leaf) for leaf in jax.tree.leaves(one)}) for one in (graph, scaled)]
    assert arrays[1] == arrays[0] + len({id(scale) for scale in scales}), "shared output layers are no longer shared"
    for key in found[0]:
        whole = np.concatenate([channel for branches in found for channel in branches[key]])
        largest = np.maximum(whole.max(0) / 127, whole.min(0) / -128)
        np.testing.assert_allclose(largest, 1, rtol=1e-5)


def test_a_channel_has_a_least_scale() -> None:
    """A channel below a millionth of the largest has this scale, so that rounding errors are not enlarged."""
    _, graph = graphs("bert")
    networks = [layer.feed_forwards[0] for layer in graph.layers]
    outputs = [network.output for network in networks]
    dead, small = (np.zeros_like(outputs[0].bias), np.eye(1, len(outputs[0].bias), 3, dtype=np.float32)[0])
    quiet = [one.replace(kernel=one.kernel * 0, bias=bias) for one, bias in zip(outputs, (dead, small), strict=True)]
    triples = zip(graph.layers, networks, quiet, strict=True)
    rewritten = [layer.replace(feed_forwards=(network.replace(output=one),)) for layer, network, one in triples]
    row = {key: x[None] for key, x in given(graph)[0].items()}
    scaled = scale_branches(graph.replace(layers=tuple(rewritten)), [row])
    first, second = (layer.feed_forward_sums[0].scale for layer in scaled.layers)
    assert (first == 1).all() and second[3] == 1
    np.testing.assert_allclose(np.delete(second, 3), 1e-6)


def test_shared_layers_stay_shared() -> None:
    _, graph = graphs("albert")
    assert len(graph.layers) == 3 and len({id(layer) for layer in graph.layers}) == 1


def test_ids_outside_a_table_read_its_first_or_last_row() -> None:
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = layers.lookup(np.array([-128, -1, 0, 2, 3, 127]), table)
    np.testing.assert_array_equal(rows, table[[0, 0, 0, 2, 2, 2]])


def test_a_window_of_keys_raises():
    module, params = pretrained(WINDOWED, CLASSES).module()
    with pytest.raises(UserError, match=mentioning("kernel_size = 3", "stride = 3")):
        build_graph(module, params)
