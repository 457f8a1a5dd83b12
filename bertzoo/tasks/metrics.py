"""How predictions are scored, by scikit-learn and scipy, in points from -100 or 0 to 100 as papers print them.

Both take a second to import, and are where they are needed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bertzoo.tasks.task import Task

OUTSIDE = "O"  # the tag of a word that is in no entity
_CUT = ""  # stands for the tag of a word that was cut off: wrong, and in no entity


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The share of predictions that are right."""
    import sklearn.metrics

    return 100 * float(sklearn.metrics.accuracy_score(labels, predictions))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The harmonic mean of precision and recall of class 1 of two; 0 where it is never right."""
    return _f1(labels, predictions)


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The mean over classes, those that are among labels or predictions, of each one's F1."""
    return _f1(labels, predictions, average="macro")


def _f1(true: Any, given: Any, **options: Any) -> float:
    import sklearn.metrics

    options["zero_division"] = 0  # 0 where nothing is predicted or nothing is there
    return 100 * float(sklearn.metrics.f1_score(true, given, **options))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Matthews' correlation of two classes or more; 0 where all predictions, or all labels, are the same."""
    import sklearn.metrics

    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return 100 * float(sklearn.metrics.matthews_corrcoef(labels, predictions))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's correlation; 0 where all predictions, or all labels, are the same, for which it is not defined."""
    return _correlation("pearsonr", predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's rank correlation, ties having their mean rank; 0 where Pearson's is not defined."""
    return _correlation("spearmanr", predictions, labels)


def _correlation(measure: str, predictions: np.ndarray, labels: np.ndarray) -> float:
    import scipy.stats

    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return 100 * float(getattr(scipy.stats, measure)(predictions, labels).statistic)


def mse(predictions: np.ndarray, labels: np.ndarray) -> float:
    """The mean squared error, which is no share of anything and not in points."""
    return float(np.mean(np.square(predictions - labels)))


def word_accuracy(predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is right."""
    right = [p == t for ps, ts in zip(predictions, labels, strict=True) for p, t in zip(ps, ts, strict=True)]
    return 100 * sum(right) / len(right)


def word_f1(predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> float:
    """The micro-averaged F1 of all tags but O, word by word."""
    given, true = ([tag for tags in both for tag in tags] for both in (predictions, labels))
    inside = sorted({*given, *true} - {OUTSIDE, _CUT})
    return _f1(true, given, labels=inside, average="micro") if inside else 0.0


def entity_f1(predictions: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]) -> float:
    """The F1 of whole entities, right in type, beginning and end, as CoNLL's script counts them (IOB1, IOB2, IOBES)."""
    given, true = (
        {(i, *span) for i, tags in enumerate(both) for span in entities(tags)} for both in (predictions, labels)
    )
    return 200 * len(given & true) / (len(given) + len(true)) if given or true else 0.0


def entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, last word) of every entity; a tag without a prefix is as one with I-."""
    start, kind, before = 0, "", OUTSIDE
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, name = _split(tag)
        goes_on = kind and prefix in "IE" and name == kind and before not in "ES"
        if kind and not goes_on:
            yield kind, start, place - 1
        if not goes_on:
            start, kind = place, name
        before = prefix


def _split(tag: str) -> tuple[str, str]:
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, name = tag.partition("-")
    return (prefix, name) if dash and prefix in ("B", "I", "E", "S") else ("I", tag)


# By the kind of a task, those that can score it; the first where none is named.
METRICS: dict[str, dict[str, Callable[..., float]]] = {
    "classification": {"accuracy": accuracy, "f1": f1, "f1_macro": f1_macro, "matthews": matthews},
    "regression": {"pearson": pearson, "spearman": spearman, "mse": mse},
    "tokens": {"entity_f1": entity_f1, "word_accuracy": word_accuracy, "word_f1": word_f1},
}


def score(task: Task, predictions: Any, labels: Any) -> dict[str, float]:
    """The task's metrics by name, in points. predictions, labels: (N,) classes or numbers; of tokens a sequence of them
    for each example, -1 for a word that was cut off, which counts as wrong.

    Raises ValueError where the two differ in length, where there is none, and for a number that is not finite.
    """
    return points(task.kind, task.metrics, task.labels, predictions, labels)


def points(kind: str, names: Sequence[str], tags: Sequence[str], predictions: Any, labels: Any) -> dict[str, float]:
    """`score` of a task of this kind, with metrics of these names; tags: of words, in the order of the logits."""
    if len(predictions) != len(labels) or not len(labels):
        raise ValueError(f"{len(predictions)} predictions of {len(labels)} labels")
    if kind == "tokens":
        predictions, labels = ([_tags(tags, each) for each in both] for both in (predictions, labels))
    else:
        dtype = np.float64 if kind == "regression" else None
        predictions, labels = np.asarray(predictions, dtype), np.asarray(labels, dtype)
        if not (np.isfinite(predictions).all() and np.isfinite(labels).all()):
            raise ValueError("a prediction or a label is not a finite number")
    return {name: METRICS[kind][name](predictions, labels) for name in names}


def _tags(labels: Sequence[str], each: Sequence[int]) -> list[str]:
    return [_CUT if place < 0 else labels[place] for place in each]


def in_points(name: str) -> bool:
    """Whether a score of this name is in points, of which more is better: no squared error is, and no threshold."""
    return name != "mse" and not is_threshold(name)


def is_threshold(name: str) -> bool:
    """Whether a figure of this name is no score, but the odds above which no answer is given."""
    return name.endswith("_thresh")
