"""Metrics against direct counts from their definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertzoo.tasks.metrics import entities, score
from bertzoo.tasks.task import Task


def task(kind, *metrics, labels=()):
    return Task(name="made", kind=kind, metrics=metrics, labels=labels, read=lambda split, directory: None)  # type: ignore[arg-type]


def lists(element, least=1):
    """Predictions and labels of equal number."""
    return st.lists(st.tuples(element, element), min_size=least, max_size=12).map(
        lambda pairs: list(zip(*pairs, strict=True))
    )


def f1(given, true):
    """F1 of a class by where it is predicted and where it is true."""
    asserted = given.sum() + true.sum()
    return 200 * (given & true).sum() / asserted if asserted else 0.0


def mean_f1(given, true):
    """The mean over columns, which are labels or classes that occur."""
    return np.mean([f1(*columns) for columns in zip(given.T, true.T, strict=True)])


def correlation(given, true):
    """The correlation of two tables (N,C), whose columns are taken together."""
    x, y = (both - both.mean(0) for both in (given, true))
    below = math.sqrt((x * x).sum() * (y * y).sum())
    return 100 * (x * y).sum() / below if below else 0.0


def indicators(given, true):
    """Where each class that occurs is predicted and true, (N,C)."""
    classes = np.union1d(given, true)
    return given[:, None] == classes, true[:, None] == classes


def ranks(values):
    return ((values < values[:, None]).sum(1) + (values == values[:, None]).sum(1) / 2)[:, None]


DEFINITIONS = {
    "accuracy": lambda given, true: 100 * np.mean(given == true),
    "f1": lambda given, true: f1(given == 1, true == 1),
    "f1_macro": lambda given, true: mean_f1(*(indicators(given, true) if given.ndim == 1 else (given, true))),
    "f1_micro": lambda given, true: f1(given.ravel(), true.ravel()),
    "exact_match": lambda given, true: 100 * np.mean((given == true).all(1)),
    # Matthews' correlation of more classes than two (Gorodkin 2004) is that of their indicators.
    "matthews": lambda given, true: correlation(*indicators(given, true)),
    "pearson": lambda given, true: correlation(given[:, None], true[:, None]),
    "spearman": lambda given, true: correlation(ranks(given), ranks(true)),
    "mse": lambda given, true: np.mean((given - true) ** 2),
}
SCORED = [
    ("classification", st.integers(0, 1), ("accuracy", "f1", "matthews")),
    ("classification", st.integers(0, 2), ("accuracy", "f1_macro", "matthews")),
    ("multi_label", st.tuples(*[st.integers(0, 1)] * 3), ("f1_micro", "f1_macro", "exact_match")),
    ("regression", st.integers(-20, 20).map(lambda value: value / 4), ("pearson", "spearman", "mse")),
]


@pytest.mark.parametrize(("kind", "element", "metrics"), SCORED)
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_scores_are_those_of_their_definitions(kind, element, metrics, data):
    given, true = map(np.array, data.draw(lists(element)))
    expected = {name: pytest.approx(DEFINITIONS[name](given, true), abs=1e-6) for name in metrics}
    assert score(task(kind, *metrics), given, true) == expected


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
    total, both = len(there) + len(here), len(there & here)
    assert found["entity_f1"] == pytest.approx(200 * both / total if total else 0.0)
    shares = score(task("entities", "entity_precision", "entity_recall", labels=TAGS), given, true)
    assert shares["entity_precision"] == pytest.approx(100 * both / len(there) if there else 0.0)
    assert shares["entity_recall"] == pytest.approx(100 * both / len(here) if here else 0.0)


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
