"""Calibration and thresholds against scikit-learn, scipy and brute force."""

import numpy as np
import pytest
import sklearn.calibration
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from bertzoo.tasks import decision
from bertzoo.tasks.decision import NONE, sigmoid, softmax

drawn = st.integers(0, 2**32 - 1)
kinds = pytest.mark.parametrize("several", [False, True], ids=["one", "several"])


def overconfident(seed: int, several: bool, scale: float, count: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N,3) and labels that are as likely as the logits divided by `scale` say."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 3, (count, 3))
    if several:
        return logits * scale, (draw.random((count, 3)) < sigmoid(logits)).astype(np.int32)
    return logits * scale, (draw.random((count, 1)) > softmax(logits).cumsum(1)).sum(1)


def cross_entropy(logits: np.ndarray, labels: np.ndarray, several: bool) -> float:
    if several:
        return float(
            np.mean([sklearn.metrics.log_loss(y, p) for y, p in zip(labels.T, sigmoid(logits).T, strict=True)])
        )
    return float(sklearn.metrics.log_loss(labels, softmax(logits)))


@kinds
def test_the_temperature_has_the_least_cross_entropy_and_calibrates(several: bool) -> None:
    logits, labels = overconfident(1, several, 2.5)
    made = decision.decide(logits, labels, "abc", several, calibrate=True)
    least = cross_entropy(logits / made.temperature, labels, several)
    others = [cross_entropy(logits / (made.temperature * factor), labels, several) for factor in (0.5, 0.99, 1.01, 2)]
    assert least < min(others) and made.temperature == pytest.approx(2.5, rel=0.05)
    before, after = made.document["reliability"]
    assert before["ece"] > 4 and after["ece"] < 2


@kinds
def test_without_a_least_value_the_temperature_is_1(several: bool) -> None:
    labels = np.eye(3, dtype=np.int32) if several else np.arange(3)
    assert decision.fit_temperature(4 * np.eye(3) - 1, labels, several) == 1  # all right: the sharper, the better
    made = decision.decide(4 * np.eye(3) - 1, labels, "abc", several, calibrate=True)
    assert made.temperature == 1 and len(made.document["reliability"]) == 1
    rough, truth = overconfident(1, several, 1.0)
    assert decision.fit_temperature(rough * np.exp(4), truth, several) == 1  # beyond e^3


@kinds
@given(seed=drawn)
@settings(deadline=None, max_examples=25)
def test_the_calibration_error_is_that_of_equal_bins(several: bool, seed: int) -> None:
    logits, labels = overconfident(seed, several, 1.5, count=200)
    chances = (sigmoid if several else softmax)(logits)
    found = decision.reliability(chances, labels, several)
    scores, right = (chances.ravel(), labels.ravel()) if several else (chances.max(1), chances.argmax(1) == labels)
    shares, means = sklearn.calibration.calibration_curve(right, scores, n_bins=15)
    filled = [bin for bin in found["bins"] if bin[0]]
    np.testing.assert_allclose([[mean, share] for _, mean, share in filled], np.stack([means, shares], 1))
    error = 0.0
    for low in np.arange(15) / 15:
        inside = (scores > low) & (scores <= low + 1 / 15)
        error += abs(scores[inside].sum() - right[inside].sum()) / len(scores)
    assert found["ece"] == pytest.approx(100 * error) and sum(bin[0] for bin in found["bins"]) == len(scores)


@given(seed=drawn, decimals=st.sampled_from([1, 6]))
@settings(deadline=None, max_examples=40)
def test_the_threshold_of_two_labels_has_the_highest_f1(seed: int, decimals: int) -> None:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, 40)
    scores = np.round(np.clip(0.5 * draw.random(40) + 0.3 * labels, 0.001, 0.999), decimals)
    chances = np.stack([1 - scores, scores], 1)
    thresholds, unmet = decision.choose_thresholds(chances, labels, False, "f1", 0)
    predictions = decision.predict(chances, thresholds, False)
    precision, recall, _ = sklearn.metrics.precision_recall_curve(labels, scores)  # at every threshold
    best = np.max(2 * precision * recall / np.maximum(precision + recall, 1e-9)) if labels.any() else 0
    assert sklearn.metrics.f1_score(labels, predictions) == pytest.approx(best)
    assert set(predictions) <= {0, 1} and unmet == ([] if labels.any() else [1])


@pytest.mark.parametrize("criterion", ["f1", "precision"])
def test_two_labels_of_which_one_is_always_right_have_legal_thresholds(criterion: decision.Criterion) -> None:
    scores = np.array([0.0, 0.3, 0.6, 1.0])
    chances = np.stack([1 - scores, scores], 1)
    thresholds, _ = decision.choose_thresholds(chances, np.ones(4, int), False, criterion, 0.1)
    assert all(0 <= value <= 1 for value in thresholds)
    assert decision.predict(chances[1:], thresholds, False).tolist() == [1, 1, 1]


@given(seed=drawn, classes=st.sampled_from([2, 3]), least=st.sampled_from([0.5, 0.8, 0.95]))
@settings(deadline=None, max_examples=20)
def test_the_threshold_for_a_precision_predicts_the_most(seed: int, classes: int, least: float) -> None:
    draw = np.random.default_rng(seed)
    logits = draw.normal(0, 2, (150, classes))
    labels = (logits + draw.normal(0, 1, logits.shape)).argmax(1)
    chances = np.clip(np.round(softmax(logits), 1), 0.01, 0.99)
    chosen = np.full(150, 1) if classes == 2 else chances.argmax(1)
    scores, right = chances[np.arange(150), chosen], chosen == labels
    sizes = []
    for cut in np.unique(scores):
        count = int((scores >= cut).sum())
        test = binomtest(int(right[scores >= cut].sum()), count, alternative="greater")
        if test.proportion_ci(0.95, "exact").low >= least:
            sizes.append(count)
    thresholds, unmet = decision.choose_thresholds(chances, labels, False, "precision", least)
    predictions = decision.predict(chances, thresholds, False)
    predicted = int((predictions == 1).sum() if classes == 2 else (predictions != NONE).sum())
    assert bool(unmet) == (not sizes) and (not sizes or predicted == max(sizes))


def test_each_of_several_labels_has_its_own_threshold() -> None:
    logits, labels = overconfident(3, True, 1.0, count=400)
    labels[:, 2] = 0
    chances = sigmoid(logits)
    thresholds, unmet = decision.choose_thresholds(chances, labels, True, "f1", 0)
    alone = [decision.choose_thresholds(chances[:, [i]], labels[:, [i]], True, "f1", 0)[0][0] for i in range(3)]
    assert thresholds == tuple(alone) and unmet == [2] and thresholds[2] == 0.5
    np.testing.assert_array_equal(decision.predict(chances, thresholds, True), chances >= thresholds)


@given(seed=drawn)
@settings(deadline=None, max_examples=50)
def test_the_likeliest_label_that_reaches_its_threshold_is_predicted(seed: int) -> None:
    draw = np.random.default_rng(seed)
    chances, thresholds = softmax(draw.normal(size=(20, 4))), draw.random(4).tolist()
    for row, label in zip(chances, decision.predict(chances, thresholds, False), strict=True):
        reaching = [i for i in range(4) if row[i] >= thresholds[i]]
        assert label == (max(reaching, key=lambda i: row[i]) if reaching else NONE)


@pytest.mark.slow  # 200 draws
def test_a_precision_chosen_on_one_part_holds_on_another() -> None:
    """docs/finetune.md has these numbers: of 200 draws, those with a threshold and those that hold."""
    found = held = held_without_bound = 0
    for seed in range(200):
        logits, labels = overconfident(seed, False, 1.0, count=20_500)
        chances, dev, rest = softmax(logits), slice(500), slice(500, None)
        thresholds, unmet = decision.choose_thresholds(chances[dev], labels[dev], False, "precision", 0.95)
        likeliest = chances.max(1)
        found += not unmet
        held += not unmet and likeliest[rest][likeliest[rest] >= thresholds[0]].mean() >= 0.95
        order = np.argsort(-likeliest[dev])
        precision = np.cumsum((chances.argmax(1) == labels)[dev][order]) / np.arange(1, 501)
        cut = likeliest[dev][order][np.flatnonzero(precision >= 0.95)[-1]]
        held_without_bound += likeliest[rest][likeliest[rest] >= cut].mean() >= 0.95
    assert (found, held, held_without_bound) == pytest.approx((194, 184, 83), abs=3)


@pytest.mark.parametrize("classes", [2, 3])
def test_precision_and_recall_equal_scikit_learns(classes: int) -> None:
    draw = np.random.default_rng(5)
    measures = (sklearn.metrics.precision_score, sklearn.metrics.recall_score)
    labels, predictions = draw.integers(0, classes, 60), draw.integers(-1 if classes == 3 else 0, classes, 60)
    one = {"average": "micro", "labels": [1] if classes == 2 else [0, 1, 2]}
    for true, found, options in ((labels, predictions, one), (*draw.integers(0, 2, (2, 60, 3)), {"average": "micro"})):
        expected = [100 * measure(true, found, **options) for measure in measures]
        count = classes if true is labels else 3
        assert [*decision.precision_recall(found, true, count).values()] == pytest.approx(expected)


@kinds
def test_the_document_counts_predictions(several: bool) -> None:
    logits, labels = overconfident(7, several, 1.0, count=300)
    made = decision.decide(logits, labels, "abc", several, criterion="precision", least=0.9)
    assert made.thresholds is not None and made.document["thresholds"] == [*made.thresholds]
    predictions = decision.predict((sigmoid if several else softmax)(logits), made.thresholds, several)
    if several:
        expected = [
            [tp, fp, fn] for (_, fp), (fn, tp) in sklearn.metrics.multilabel_confusion_matrix(labels, predictions)
        ]
        assert made.document["counts"] == expected
    else:
        matrix = sklearn.metrics.confusion_matrix(labels, predictions, labels=[0, 1, 2, NONE])
        assert made.document["confusion"] == matrix[:3].tolist() and any(row[3] for row in matrix)
    assert len(decision.describe(made.document)) >= 1
