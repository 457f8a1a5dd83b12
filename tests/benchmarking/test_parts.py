"""`bertzoo benchmark --profile`: a model's operations by part."""

import pytest
from tiers import quick
from zoo import CASES, pretrained

from bertzoo.benchmarking import benchmark
from bertzoo.benchmarking.benchmark import flops_by_component
from bertzoo.export import formats
from bertzoo.export.graph.reference import training_graph
from bertzoo.heads import TokenClassification
from bertzoo.models import Bert

KINDS = ["bert", "squeezebert", "mobilebert", "convbert-span", "albert", "schubert"]


@pytest.mark.parametrize("name", quick(KINDS, "squeezebert", "convbert-span"))
def test_every_operation_belongs_to_one_part(name: str) -> None:
    model = benchmark.classifier(pretrained(*CASES[name]))
    counts = flops_by_component(model, 11)
    assert {"length_11": sum(counts.values())} == formats.flops_by_signature(training_graph(model), [11])
    assert (counts["bottleneck"] > 0) == (name == "mobilebert")
    for part in ("projections", "attention", "attention_output", "feed_forward", "head"):
        assert counts[part] > 0, part


def test_the_parts_equal_squeezeberts_table() -> None:
    """Table 1 has 24.3, 2.70 and 73.0 % of BERT-base, the last including the attention's output."""
    bert = Bert(vocab_size=61, hidden_size=48, max_positions=16, layers=2, heads=12, feed_forward_size=192)
    counts = flops_by_component(pretrained(bert, TokenClassification(labels=("x", "y"))), 8)  # BERT-base / 16
    layers = sum(counts.values()) - counts["embedding"] - counts["head"]
    shares = {part: 100 * count / layers for part, count in counts.items()}
    assert shares["projections"] == pytest.approx(24.3, abs=0.05)
    assert shares["attention"] == pytest.approx(2.70, abs=0.01)
    assert shares["attention_output"] + shares["feed_forward"] == pytest.approx(73.0, abs=0.05)
