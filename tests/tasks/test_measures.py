"""Metrics against direct counts from their definitions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.metrics import METRICS, entities, score
from bertzoo.tasks.task import Task


def task(kind, *metrics, labels=()):
    return Task(name="made", kind=kind, metrics=metrics, labels=labels, read=lambda split, directory: None)  # type: ignore[arg-type]


def lists(element, least=1):
    """Predictions and labels of equal number."""
    return st.lists(st.tuples(element, element), min_size=least, max_size=12).map(
        lambda pairs: list(zip(*pairs, strict=True))
    )


@settings(deadline=None, max_examples=60)
@given(lists(st.integers(0, 1)))
def test_two_classes(both):
    given, true = both
    found = score(task("classification", "accuracy", "f1", "matthews"), given, true)
    pairs = list(zip(given, true, strict=True))
    tp, tn, fp, fn = (pairs.count(pair) for pair in ((1, 1), (0, 0), (1, 0), (0, 1)))
    assert found["accuracy"] == pytest.approx(100 * (tp + tn) / len(pairs))
    assert found["f1"] == pytest.approx(200 * tp / (2 * tp + fp + fn) if tp else 0.0)
    below = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert found["matthews"] == pytest.approx(100 * (tp * tn - fp * fn) / math.sqrt(below) if below else 0.0)


@settings(deadline=None, max_examples=60)
@given(lists(st.integers(0, 2)))
def test_three_classes(both):
    given, true = both
    found = score(task("classification", "f1_macro", "matthews"), given, true)
    each = []
    for one in set(given) | set(true):
        right = sum(g == t == one for g, t in zip(given, true, strict=True))
        each.append(2 * right / (given.count(one) + true.count(one)))
    assert found["f1_macro"] == pytest.approx(100 * sum(each) / len(each))
    # Matthews' correlation of more classes (Gorodkin 2004): that of their indicators.
    x, y = (np.array([[one == c for c in range(3)] for one in both], float) for both in (given, true))
    x, y = x - x.mean(0), y - y.mean(0)
    below = math.sqrt((x * x).sum() * (y * y).sum())
    assert found["matthews"] == pytest.approx(100 * (x * y).sum() / below if below else 0.0, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(lists(st.tuples(*[st.integers(0, 1)] * 3)))
def test_several_labels(both):
    given, true = map(np.array, both)
    found = score(task("multi_label", "f1_micro", "f1_macro", "exact_match"), given, true)
    hits, asserted = (given & true).sum(0), given.sum(0) + true.sum(0)
    assert found["f1_micro"] == pytest.approx(200 * hits.sum() / asserted.sum() if asserted.sum() else 0.0)
    each = [200 * hit / count if count else 0.0 for hit, count in zip(hits, asserted, strict=True)]
    assert found["f1_macro"] == pytest.approx(sum(each) / 3)
    assert found["exact_match"] == pytest.approx(
        100 * np.mean([(g == t).all() for g, t in zip(given, true, strict=True)])
    )


def correlation(a, b):
    """Pearson's, in fractions but for the root."""
    a, b = ([Fraction(v) - sum(map(Fraction, values)) / len(values) for v in values] for values in (a, b))
    below = sum(x * x for x in a) * sum(y * y for y in b)
    return 100 * float(sum(x * y for x, y in zip(a, b, strict=True))) / math.sqrt(below) if below else 0.0


@settings(deadline=None, max_examples=60)
@given(lists(st.integers(-20, 20)))
def test_correlations(both):
    given, true = ([value / 4 for value in values] for values in both)
    found = score(task("regression", "pearson", "spearman", "mse"), given, true)
    ranks = [[sum(w < v for w in values) + sum(w == v for w in values) / 2 for v in values] for values in both]
    assert found["pearson"] == pytest.approx(correlation(given, true), abs=1e-6)
    assert found["spearman"] == pytest.approx(correlation(*ranks), abs=1e-6)
    assert found["mse"] == pytest.approx(sum((g - t) ** 2 for g, t in zip(given, true, strict=True)) / len(given))


TAGS = ("O", "B-A", "I-A", "B-B", "I-B")


def spans(tags):
    """Entities of IOB2 by trying all spans: first a B, or an I without its type before it; then only I."""

    def begins(i):
        kind = tags[i][2:]
        return tags[i][0] == "B" or (tags[i][0] == "I" and (i == 0 or tags[i - 1][2:] != kind))

    def whole(i, j):
        kind = tags[i][2:]
        within = all(tags[k] == f"I-{kind}" for k in range(i + 1, j + 1))
        return begins(i) and within and (j + 1 == len(tags) or tags[j + 1] != f"I-{kind}")

    return {(tags[i][2:], i, j) for i, j in itertools.combinations_with_replacement(range(len(tags)), 2) if whole(i, j)}


@settings(deadline=None, max_examples=60)
@given(st.lists(lists(st.integers(0, 4)), min_size=1, max_size=4))
def test_words(sentences):
    given, true = zip(*sentences, strict=True)
    names = task("tokens", "entity_f1", "word_accuracy", "word_f1", labels=TAGS)
    found = score(names, given, true)
    words = [(g, t) for sentence in sentences for g, t in zip(*sentence, strict=True)]
    assert found["word_accuracy"] == pytest.approx(100 * sum(g == t for g, t in words) / len(words))
    right = sum(g == t != 0 for g, t in words)
    asserted = sum((g != 0) + (t != 0) for g, t in words)
    assert found["word_f1"] == pytest.approx(200 * right / asserted if asserted else 0.0)
    there, here = (
        {(i, *s) for i, tags in enumerate(both) for s in spans([TAGS[t] for t in tags])} for both in (given, true)
    )
    total = len(there) + len(here)
    assert found["entity_f1"] == pytest.approx(200 * len(there & here) / total if total else 0.0)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O I-A I-A B-A O", [("A", 1, 2), ("A", 3, 3)]),  # IOB1
        ("B-A E-A S-A I-A E-A S-B", [("A", 0, 1), ("A", 2, 2), ("A", 3, 4), ("B", 5, 5)]),  # IOBES
        ("A A B O-X", [("A", 0, 1), ("B", 2, 2), ("O-X", 3, 3)]),  # without prefixes
        ("", []),
    ],
)
def test_entities_of_other_conventions(tags, found):
    assert list(entities(tags.split())) == found


def test_words_that_are_cut_off_are_wrong():
    names = task("tokens", "entity_f1", "word_accuracy", "word_f1", labels=TAGS)
    cut = score(names, [[1, -1], [0, -1]], [[1, 0], [0, 3]])
    assert cut["word_accuracy"] == 50.0
    # One entity found of two, none wrongly.
    assert cut["word_f1"] == pytest.approx(200 / 3) == cut["entity_f1"]


def test_a_score_has_the_tasks_metrics():
    assert score(GLUE["mrpc"], [1, 1, 0, 0], [1, 0, 0, 0]) == {"accuracy": 75.0, "f1": pytest.approx(200 / 3)}
    assert list(score(GLUE["stsb"], np.float32([0, 1, 2]), [0.0, 2.0, 5.0])) == ["pearson", "spearman"]
    assert {name for t in GLUE.values() for name in t.metrics} <= METRICS["classification"].keys() | METRICS[
        "regression"
    ].keys()


def test_correlations_of_constants_are_0():
    assert score(GLUE["cola"], [1, 1, 1], [0, 1, 1]) == {"matthews": 0.0}
    assert score(GLUE["stsb"], [2.0, 2.0], [0, 1]) == {"pearson": 0.0, "spearman": 0.0}
