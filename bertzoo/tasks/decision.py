"""From a classifier's logits to predictions: calibrated probabilities, and the threshold of each label.

Labelled examples determine both. If `multi_label` is set, any number of labels may apply to an example: `labels` are
then 1 or 0 for each label, (N,C), else label indices, (N,). Importing this module imports neither scipy nor jax.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

NONE = -1  # predicted if no label reaches its threshold
BINS = 15  # bins of probabilities, for the calibration error (Guo et al. 2017)
CONFIDENCE = 0.95  # of the lower bound of the precision
_LIMIT = 3.0  # largest absolute logarithm of a temperature
Criterion = Literal["none", "f1", "precision"]


class Decision(NamedTuple):
    """The `temperature` that divides logits, the labels' thresholds or None, and a document of their effects."""

    temperature: float
    thresholds: tuple[float, ...] | None
    document: dict[str, Any]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis, in float64."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the sigmoid of each logit, in float64."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def fit_temperature(logits: np.ndarray, labels: np.ndarray, multi_label: bool) -> float:
    """Return the divisor of logits (N,C) with the least mean cross-entropy of the labels.

    It is 1 if every prediction is right, so that the minimum is at 0, or if the minimum is not between e^-3 and e^3.
    """
    from scipy.optimize import minimize_scalar

    if np.array_equal(logits > 0 if multi_label else logits.argmax(-1), labels):
        return 1.0

    def loss(log_temperature: float) -> float:
        scaled = logits.astype(np.float64) / np.exp(log_temperature)
        if multi_label:
            return float(np.mean(np.logaddexp(0, scaled) - scaled * labels))
        shifted = scaled - scaled.max(-1, keepdims=True)
        return float(np.mean(np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(labels)), labels]))

    fit = minimize_scalar(loss, bounds=(-_LIMIT, _LIMIT), method="bounded", options={"xatol": 1e-6})
    return 1.0 if abs(fit.x) > _LIMIT - 1e-3 else float(np.exp(fit.x))


def reliability(chances: np.ndarray, labels: np.ndarray, multi_label: bool) -> dict[str, Any]:
    """Return the expected calibration error `ece`, in points, and `bins` of probabilities.

    A bin is [number of predictions, their mean probability, share of right ones], or [0, 0, 0].
    chances: probabilities (N,C). An example is one prediction, of its likeliest label; with `multi_label`, it is C.
    """
    chosen, right = (chances, labels) if multi_label else (chances.max(-1), chances.argmax(-1) == labels)
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], chosen.ravel())
    count, mean, share = (np.bincount(bins, of, BINS) for of in (None, chosen.ravel(), np.ravel(right)))
    least = np.maximum(count, 1)
    return {
        "ece": 100 * float(np.abs(mean - share).sum() / chosen.size),
        "bins": [[int(n), float(p), float(s)] for n, p, s in zip(count, mean / least, share / least, strict=True)],
    }


def predict(chances: np.ndarray, thresholds: Sequence[float], multi_label: bool) -> np.ndarray:
    """Return predictions for probabilities (N,C): the likeliest label that reaches its threshold, or NONE.

    With `multi_label`, return 1 or 0 for each label, (N,C).
    """
    reached = chances >= np.asarray(thresholds)
    if multi_label:
        return reached.astype(np.int32)
    return np.where(reached.any(-1), np.where(reached, chances, -1).argmax(-1), NONE)


def choose_thresholds(
    chances: np.ndarray, labels: np.ndarray, multi_label: bool, criterion: Criterion, least: float
) -> tuple[tuple[float, ...], list[int]]:
    """Return a threshold for each label, and the indices of the labels whose threshold misses the criterion.

    With `multi_label`, each label has a threshold. With two labels, the first is predicted below the threshold of the
    second. Three or more labels share a threshold, below which none is predicted.
    criterion: "f1" for the highest F1, "precision" for the most predictions with a precision of at least `least`; see
    `_best_threshold`.
    """
    classes = chances.shape[1]
    if multi_label:
        pairs = [
            _best_threshold(chances[:, i], labels[:, i], labels[:, i].sum(), criterion, least) for i in range(classes)
        ]
        return tuple(value for value, _ in pairs), [index for index, (_, met) in enumerate(pairs) if not met]
    if classes == 2:
        value, met = _best_threshold(chances[:, 1], labels == 1, (labels == 1).sum(), criterion, least)
        value = max(value, float(np.finfo(np.float64).eps))  # the other label's threshold is at most 1
        # 0 for the likelier label, so that a text always has a label, also if rounded probabilities do not sum to 1
        return (0.0, value) if value >= 0.5 else (float(np.nextafter(1 - value, 2)), 0.0), [] if met else [1]
    value, met = _best_threshold(chances.max(-1), chances.argmax(-1) == labels, len(labels), criterion, least)
    return (value,) * classes, [] if met else [*range(classes)]


def _best_threshold(
    scores: np.ndarray, right: np.ndarray, total: int, criterion: Criterion, least: float
) -> tuple[float, bool]:
    """Return a threshold of scores (N,), 0 or midway between two of them, and whether it meets the criterion.

    right: (N,), whether a prediction is right. total: the number of expected predictions.
    The precision of the predictions counts by its lower bound: that of Clopper and Pearson, one-sided, of CONFIDENCE.
    If no bound is at least `least`, returns the threshold with the highest bound, or 0.5 if `total` is 0.
    """
    from scipy.stats import beta

    if not total:
        return 0.5, False
    order = np.argsort(-scores, kind="stable")
    ordered, hits, count = scores[order], np.cumsum(right[order]), np.arange(1, len(scores) + 1)
    lower = np.append(ordered[1:], -1.0)
    if criterion == "f1":
        quality, met = 2 * hits / (count + total), np.full(len(scores), True)
    else:
        quality = np.where(hits > 0, beta.ppf(1 - CONFIDENCE, np.maximum(hits, 1), count - hits + 1), 0.0)
        met = quality >= least
    quality = np.where(lower < ordered, quality, -1.0)  # no threshold is between equal scores
    reaching = np.flatnonzero(met & (quality >= 0))
    best = int(reaching[-1]) if criterion == "precision" and len(reaching) else int(np.argmax(quality))
    return max(0.0, float(ordered[best] + lower[best]) / 2), len(reaching) > 0


def decide(
    logits: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    multi_label: bool,
    calibrate: bool = False,
    criterion: Criterion = "none",
    least: float = 0.0,
) -> Decision:
    """Choose a temperature, if `calibrate`, and thresholds by the criterion, for logits (N,C) with labels.

    The document has:
    labels: the names. examples: N.
    temperature: if `calibrate`. reliability: that of the logits and, if `calibrate`, of the divided logits.
    thresholds, unmet, precision, recall: with a criterion; `unmet` names the labels whose threshold misses it.
    confusion: number of examples by label and prediction, whose last column is NONE, (C,C+1). With `multi_label`,
    `counts` instead: numbers of right, wrong and missing predictions of each label, (C,3).
    """
    share = sigmoid if multi_label else softmax
    temperature = fit_temperature(logits, labels, multi_label) if calibrate else 1.0
    variants = [share(logits / scale) for scale in dict.fromkeys((1.0, temperature) if calibrate else (1.0,))]
    chances = variants[-1]
    document = {"labels": [*names], "examples": len(labels)} | ({"temperature": temperature} if calibrate else {})
    document["reliability"] = [reliability(variant, labels, multi_label) for variant in variants]
    thresholds = None
    predictions = (chances > 0.5).astype(np.int32) if multi_label else chances.argmax(-1)
    if criterion != "none":
        thresholds, unmet = choose_thresholds(chances, labels, multi_label, criterion, least)
        predictions = predict(chances, thresholds, multi_label)
        document |= {"thresholds": [*thresholds], "unmet": [names[index] for index in unmet]}
        document |= precision_recall(predictions, labels, len(names))
    if multi_label:
        counts = [(predictions * labels).sum(0), (predictions > labels).sum(0), (predictions < labels).sum(0)]
        document["counts"] = np.stack(counts, 1).tolist()
    else:
        confusion = np.zeros((len(names), len(names) + 1), int)
        np.add.at(confusion, (labels, predictions), 1)
        document["confusion"] = confusion.tolist()
    return Decision(temperature, thresholds, document)


def precision_recall(predictions: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Return `precision` and `recall`, in points, over all labels, or over the second of two labels.

    predictions, labels: label indices (N,), NONE for no prediction, or 1 and 0 for each label, (N,C).
    """
    if predictions.ndim == 1:
        predictions, labels = (np.eye(classes + 1, dtype=int)[both][:, :classes] for both in (predictions, labels))
        if classes == 2:
            predictions, labels = predictions[:, 1], labels[:, 1]
    right = (predictions & labels).sum()
    sums = {"precision": predictions.sum(), "recall": labels.sum()}
    return {name: 100 * float(right / total) if total else 0.0 for name, total in sums.items()}


def describe(document: dict[str, Any]) -> list[str]:
    """Return sentences on a document of `decide`, for the console and the report."""
    *before, after = document["reliability"]
    lines = []
    if "temperature" in document:
        lines.append(f"temperature {document['temperature']:.3f}: calibration error {after['ece']:.2f} points")
        lines[-1] += f", {before[0]['ece']:.2f} without" if before else ", as without; no other one is better"
    if "thresholds" in document:
        pairs = [*zip(document["labels"], document["thresholds"], strict=True)]
        if len(pairs) == 2 and "confusion" in document:  # the second label is predicted from one probability on
            (_, first), (label, second) = pairs
            pairs = [(label, second or 1 - first)]
        if len({*document["thresholds"]}) == 1:
            pairs = [("of every label", document["thresholds"][0])]
        named = ", ".join(f"{label} {value:.3f}" for label, value in pairs)
        lines.append(
            f"threshold {named}: precision {document['precision']:.2f}, recall {document['recall']:.2f} on "
            f"{document['examples']:,} development examples"
        )
        if unmet := document["unmet"]:
            lines.append(
                f"no threshold meets the criterion for {', '.join(unmet)}, so the best one is used. Add development "
                "examples, train a better model, or lower min_precision."
            )
    return lines
