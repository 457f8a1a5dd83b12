"""Metrics of predictions. All but `mse` are in points, as papers print them: percentages, or 100 times a correlation.

scikit-learn and scipy compute most of them. Each library takes a second to import, so functions import what they need.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from bertzoo.tasks.task import Task

OUTSIDE = "O"  # the tag of a word outside of all entities
_CUT = ""  # the tag of a word that was cut off; counts as wrong and as outside of all entities
Tags = Sequence[Sequence[str]]  # by example and word


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the percentage of correct predictions; for multi_label, all labels of a prediction must be correct."""
    correct = np.reshape(np.equal(labels, predictions), (len(labels), -1)).all(axis=1)
    return 100 * float(correct.mean())


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the F1 of class 1, in percent, for tasks with two classes; 0 if class 1 is never predicted correctly."""
    return _f1(labels, predictions, labels=[1], average="macro")


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean F1, in percent, of the classes that occur among labels or predictions; -1 is no class.

    For multi_label, return the mean over all labels; the F1 of a label that neither occurs nor is predicted is 0.
    """
    classes = None if np.ndim(labels) > 1 else sorted({*np.ravel(labels), *np.ravel(predictions)} - {-1})
    return _f1(labels, predictions, labels=classes, average="macro")


def f1_micro(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the micro-averaged F1 of multi_label, in percent.

    predictions, labels: (N,C), 1 or 0 for each of C labels.
    """
    return _f1(labels, predictions, average="micro")


def _f1(true: Any, predicted: Any, **options: Any) -> float:
    import sklearn.metrics

    options["zero_division"] = 0  # F1 is 0 for a class that is neither predicted nor present
    return 100 * float(sklearn.metrics.f1_score(true, predicted, **options))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return 100 times Matthews' correlation of two or more classes; 0 if all predictions, or all labels, are equal."""
    import sklearn.metrics

    return _correlation(sklearn.metrics.matthews_corrcoef, labels, predictions)


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return 100 times Pearson's correlation; 0 if all predictions, or all labels, are equal."""
    import scipy.stats

    return _correlation(lambda *both: scipy.stats.pearsonr(*both)[0], predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return 100 times Spearman's rank correlation (mean rank for ties); 0 if all predictions, or labels, are equal."""
    import scipy.stats

    return _correlation(lambda *both: scipy.stats.spearmanr(*both)[0], predictions, labels)


def _correlation(measure: Callable[..., Any], first: np.ndarray, second: np.ndarray) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return 100 * float(measure(first, second))


def mse(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared error, in the labels' unit squared."""
    return float(np.mean(np.square(predictions - labels)))


def word_accuracy(predictions: Tags, labels: Tags) -> float:
    """Return the percentage of words with the correct tag."""
    correct = [p == t for ps, ts in zip(predictions, labels, strict=True) for p, t in zip(ps, ts, strict=True)]
    return 100 * sum(correct) / len(correct)


def word_f1(predictions: Tags, labels: Tags) -> float:
    """Return the micro-averaged F1, in percent, of all tags except O; 0 if every tag is O."""
    predicted, true = ([tag for tags in both for tag in tags] for both in (predictions, labels))
    inside = sorted({*predicted, *true} - {OUTSIDE, _CUT})
    return _f1(true, predicted, labels=inside, average="micro") if inside else 0.0


def entity_f1(predictions: Tags, labels: Tags) -> float:
    """Return the F1 of entities, in percent. An entity is correct if its type, start and end are correct.

    As in CoNLL's script and seqeval, tags may be IOB1, IOB2 or IOBES.
    """
    correct, predicted, true = _entity_counts(predictions, labels)
    return 200 * correct / (predicted + true) if predicted or true else 0.0


def entity_precision(predictions: Tags, labels: Tags) -> float:
    """Return the percentage of predicted entities that are correct; 0 without predicted entities."""
    correct, predicted, _ = _entity_counts(predictions, labels)
    return 100 * correct / predicted if predicted else 0.0


def entity_recall(predictions: Tags, labels: Tags) -> float:
    """Return the percentage of entities that are predicted correctly; 0 without entities."""
    return entity_precision(labels, predictions)


def _entity_counts(predictions: Tags, labels: Tags) -> tuple[int, int, int]:
    """Return the numbers of correct, of predicted and of true entities."""
    predicted, true = (
        {(i, *span) for i, tags in enumerate(both) for span in entities(tags)} for both in (predictions, labels)
    )
    return len(predicted & true), len(predicted), len(true)


def entities(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield (type, first word's index, last word's index) of every entity; the tag PER counts as I-PER."""
    start, kind, before = 0, "", OUTSIDE
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, name = split_tag(tag)
        continues = kind and prefix in "IE" and name == kind and before not in "ES"
        if kind and not continues:
            yield kind, start, index - 1
        if not continues:
            start, kind = index, name
        before = prefix


def split_tag(tag: str) -> tuple[str, str]:
    """Return the prefix and the type of a tag: B, I, E or S, by default I; of O, O and an empty type."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    prefix, dash, name = tag.partition("-")
    return (prefix, name) if dash and prefix in ("B", "I", "E", "S") else ("I", tag)


# By kind of task, the metrics by name; the first is the default. For multi_label and entities, all are the default, and
# the first chooses the epoch.
METRICS: dict[str, dict[str, Callable[..., float]]] = {
    "classification": {"accuracy": accuracy, "f1": f1, "f1_macro": f1_macro, "matthews": matthews},
    "multi_label": {"f1_micro": f1_micro, "f1_macro": f1_macro, "exact_match": accuracy},
    "regression": {"pearson": pearson, "spearman": spearman, "mse": mse},
    "tokens": {"entity_f1": entity_f1, "word_accuracy": word_accuracy, "word_f1": word_f1},
    "entities": {"entity_f1": entity_f1, "entity_precision": entity_precision, "entity_recall": entity_recall},
}


def score(task: Task, predictions: Any, labels: Any) -> dict[str, float]:
    """Return the scores of the task's metrics, by name; all but `mse` are in points.

    predictions, labels: class indices or numbers (N,); for multi_label, 0 or 1 for each label (N,C); for tags, a
    sequence of tag indices per example. The index -1, for a word that was cut off, counts as wrong.
    """
    return scores_of(task.kind, task.metrics, task.labels, predictions, labels)


def scores_of(kind: str, names: Sequence[str], tags: Sequence[str], predictions: Any, labels: Any) -> dict[str, float]:
    """Return the scores of the metrics `names` for a kind of task, as `score` does.

    tags: the names of the tags, in the order of their indices; used only if `kind` is "tokens" or "entities".
    """
    if kind in ("tokens", "entities"):
        predictions, labels = (
            [[_CUT if index < 0 else tags[index] for index in words] for words in both]
            for both in (predictions, labels)
        )
    else:
        dtype = np.float64 if kind == "regression" else None
        predictions, labels = np.asarray(predictions, dtype), np.asarray(labels, dtype)
    return {name: METRICS[kind][name](predictions, labels) for name in names}


def in_points(name: str) -> bool:
    """Return whether the metric `name` is a score in points (higher is better), rather than mse or a threshold."""
    return not name.endswith("mse") and not is_threshold(name)


def is_threshold(name: str) -> bool:
    """Return whether the metric `name` is a threshold of null odds (scores of "no answer"), as in `best_f1_thresh`."""
    return name.endswith("_thresh")
