"""`bertzoo benchmark --profile`: the parts of a graph, their operations and, out of a program's words, their times."""

import numpy as np
import pytest
from messages import mentioning
from zoo import CASES, pretrained

from bertzoo.benchmarking import ablation, backends, models, profile, rows
from bertzoo.export.litert import litert
from bertzoo.models import Bert
from bertzoo.models.tasks import TokenClassification
from bertzoo.nn.flops import matmul_flops


@pytest.mark.parametrize("name", ["bert", "squeezebert", "mobilebert", "convbert-span", "albert", "schubert"])
def test_a_graph_without_a_part_lacks_its_products_alone(name: str) -> None:
    graph = backends.rewritten(models.classifier(pretrained(*CASES[name])))
    whole = ablation.flops(graph, 11)
    given = litert.shapes(graph, 11)
    given = {key: np.zeros(shape.shape[1:], np.int32) for key, shape in given.items()}
    assert sum(whole.values()) == matmul_flops(lambda graph, given: graph(**given), graph, given)
    assert ("bottleneck" in whole) == (name == "mobilebert")
    assert min(whole[part] for part in ("projections", "attention", "attention_output", "feed_forward")) > 0
    for part in whole:
        assert ablation.flops(ablation.without(graph, part), 11) == whole | {part: 0}, part


def test_the_parts_are_those_of_squeezebert_s_table() -> None:
    """Its Table 1 has 24.3, 2.70 and 73.0 % of BERT-base, the last with the attention's output; layers that compute all
    tokens have its shares, at sizes in BERT-base's proportions.
    """
    bert = Bert(vocab_size=61, hidden_size=48, max_positions=16, layers=2, heads=12, feed_forward_size=192)
    graph = backends.rewritten(pretrained(bert, TokenClassification(labels=("x", "y"))))
    whole = ablation.flops(graph, 8)  # 128 tokens are to 768 units as 8 to 48
    layers = sum(whole.values()) - whole["embedding"] - whole["head"]
    found = {part: 100 * count / layers for part, count in whole.items()}
    assert found["projections"] == pytest.approx(24.3, abs=0.05) and found["attention"] == pytest.approx(2.70, abs=0.01)
    assert found["attention_output"] + found["feed_forward"] == pytest.approx(73.0, abs=0.05)


PROFILE = """
Profiling Info for Benchmark Initialization:
============================== Run Order ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t  ModifyGraphWithDelegate\t    9.000\t    9.000\t100.000%\t100.000%\t     0.000\t        1\tModify/0

Operator-wise Profiling Info for Regular Benchmark Runs:
============================== Run Order ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t        EMBEDDING_LOOKUP\t    1.000\t    0.500\t  1.000%\t  1.000%\t     0.000\t        1\t[a]:0
\t  TfLiteXNNPackDelegate\t   50.000\t   50.000\t 99.000%\t100.000%\t     0.000\t        1\t[b]:1

============================== Top by Computation Time ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
\t  TfLiteXNNPackDelegate\t   50.000\t   50.000\t 99.000%\t100.000%\t     0.000\t        1\t[b]:1

Number of nodes executed: 2
Delegate internal:
============================== Run Order ==============================
\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]
"""


def test_the_profile_of_operators() -> None:
    rows = [
        *[("Fully Connected (NC, F32) GEMM", 1.0), ("Add (ND)", 0.25), ("Transpose (ND, X32)", 0.125)],
        *[
            ("Batch Matrix Multiply (NC, F32)", 2.0),
            ("Softmax (NC, F32)", 4.0),
            ("Fully Connected (NC, F32) GEMM", 8.0),
        ],
        *[
            ("Fully Connected (NC, QD8, F32, QC8W) GEMM", 16.0),
            ("GELU", 32.0),
            ("Fully Connected (NC, F32) GEMM", 64.0),
        ],
        ("Softmax (NC, F32)", 128.0),
    ]
    made = "\n".join(f"\t{kind}\t1.0\t{time:.3f}\t1.000%\t1.000%\t0.000\t1\tDelegate/{kind}:0" for kind, time in rows)
    text = f"{PROFILE}{made}\n\n============================== Top by\n"
    taken = profile.by_operator(text, ["projections", "projections", "feed_forward", "head"])
    expected = {"embedding": 0.5, "projections": 9.375, "attention": 6.0, "feed_forward": 48.0, "head": 192.0}
    assert taken == expected
    with pytest.raises(profile.Unreadable, match=mentioning(4, "file 3")):
        profile.by_operator(text, ["projections", "feed_forward", "head"])
    with pytest.raises(profile.Unreadable, match=mentioning("profile")):
        profile.by_operator("", [])


def test_whose_weights_an_operator_has() -> None:
    """Also those that the converter has scaled, as long as no other part misses some of that size."""
    graph = backends.rewritten(models.classifier(pretrained(*CASES["mobilebert"])))
    kernels = [
        graph.layers[0].shared.kernel,
        3 * graph.layers[0].bottleneck.kernel,
        graph.layers[1].bottleneck.kernel,
        graph.layers[1].feed_forwards[1].output.kernel,
        graph.head.output.kernel,
        np.ones((3, 3), np.float32),
    ]
    weights = [np.ascontiguousarray(kernel.T).tobytes() for kernel in kernels]
    others = [np.ascontiguousarray(layer.output.kernel.T).tobytes() for layer in graph.layers]
    found = ablation.of_weights(graph, [*weights, *others])
    assert found[:6] == ["bottleneck", None, "bottleneck", "feed_forward", "head", None]


def test_the_shares_for_a_person() -> None:
    made = profile.Shares(
        source="", note="", flops={"a": 0.25, "b": 0.75}, latency={"a": 0.5, "b": 0.4}, quartiles={"a": (0.4, 0.6)}
    )
    found = [line.split() for line in rows.shares_table(made)]
    assert found[1:] == [
        ["a", "25.0", "50.0", "40.0", "to", "60.0"],
        ["b", "75.0", "40.0"],
        ["the", "rest", "0.0", "10.0"],
    ]
