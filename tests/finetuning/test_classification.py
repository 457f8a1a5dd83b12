"""The losses of labels and of a teacher against numpy, and the effect of alpha."""

import functools

import jax
import numpy as np
import pytest
import scipy.special
import zoo

from bertzoo.heads import SequenceClassification, TokenClassification
from bertzoo.heads.labels import LabelledObjective
from bertzoo.models import Bert, Compute

SMALL = {"vocab_size": 30, "hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 24, "max_positions": 8}
MODEL = Bert(**SMALL, initializer_range=0.3)
ROWS, LENGTH, CLASSES = 5, 8, 3
softmax = functools.partial(scipy.special.softmax, axis=-1)


def objective(classes: int = CLASSES, **settings) -> LabelledObjective:
    head = SequenceClassification(labels=tuple(map(str, range(classes))))
    return LabelledObjective(model=head.build(MODEL, Compute()), **settings)


def batch(**more: np.ndarray) -> dict[str, np.ndarray]:
    label = np.random.default_rng(0).integers(0, CLASSES, ROWS).astype(np.int32)
    return zoo.batch_of(ROWS, LENGTH, vocabulary=30, spare=1) | {"label": label, **more}


@pytest.fixture(scope="module")
def params():
    return zoo.drawn(objective().init, jax.random.key(1))


@functools.partial(jax.jit, static_argnums=0)
def computed(made, values, rows):
    """The sums and metrics of an objective, and its logits."""
    return *made(values, None, rows, None), made.logits(values, rows, None)


@pytest.mark.parametrize("alpha", [1.0, 0.8])
def test_classes_are_learnt_by_cross_entropy_over_the_rows_that_count(params, alpha: float) -> None:
    """The target is alpha of the label and the rest of the teacher's distribution."""
    teacher = np.random.default_rng(3).normal(size=(ROWS, CLASSES)).astype(np.float32)
    made, rows = objective(alpha=alpha), batch(**({} if alpha == 1 else {"teacher": teacher}))
    target = alpha * np.eye(CLASSES)[rows["label"]] + (1 - alpha) * softmax(teacher.astype(np.float64))
    sums, metrics, logits = jax.tree.map(np.asarray, computed(made, params, rows))
    each = -(target * np.log(softmax(logits.astype(np.float64)))).sum(-1)[:4]
    assert sums["task"] == pytest.approx(each.sum(), rel=1e-5) and made.weights(rows)["task"] == 4
    assert tuple(map(float, metrics["task_accuracy"])) == ((logits.argmax(-1) == rows["label"])[:4].sum(), 4)
    summed = objective(alpha=alpha, reduction="sum")
    assert summed.weights(rows)["task"] == 1 and computed(summed, params, rows)[0]["task"] == sums["task"]


def test_regression_trains_on_squared_error() -> None:
    mixed = objective(classes=1, problem="regression", alpha=0.7)
    label, teacher = np.float32([0.1, 4.2, 3, 5, 1]), np.float32([[1.0], [4.0], [2.0], [5.5], [0]])
    rows = batch(label=label, teacher=teacher)
    sums, metrics, logits = computed(mixed, zoo.drawn(mixed.init, jax.random.key(2)), rows)
    numbers = np.asarray(logits, np.float64)[:, 0]
    expected = (np.square(numbers - 0.7 * label - 0.3 * teacher[:, 0]))[:4].sum()
    assert sums["task"] == pytest.approx(expected, rel=1e-5) and "task_accuracy" not in metrics


@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_several_labels_train_on_the_mean_of_their_sigmoid_cross_entropies(params, alpha: float) -> None:
    draw = np.random.default_rng(8)
    label = draw.integers(0, 2, (ROWS, CLASSES)).astype(np.int32)
    teacher = draw.normal(0, 2, (ROWS, CLASSES)).astype(np.float32)
    rows = batch(label=label, **({} if alpha == 1 else {"teacher": teacher}))
    made = objective(alpha=alpha, problem="multi_label_classification")
    sums, metrics, logits = jax.tree.map(np.asarray, computed(made, params, rows))
    logits = logits.astype(np.float64)
    chances, target = 1 / (1 + np.exp(-logits)), alpha * label + (1 - alpha) / (1 + np.exp(-teacher.astype(np.float64)))
    each = -(target * np.log(chances) + (1 - target) * np.log(1 - chances)).mean(-1)
    gradients = jax.jit(jax.grad(lambda values: made(values, None, rows, None)[0]["task"]))(params)
    assert sums["task"] == pytest.approx(each[:4].sum(), rel=1e-5) and made.weights(rows)["task"] == 4
    bias = ((chances - target) / CLASSES)[:4].sum(0)
    np.testing.assert_allclose(gradients["classifier"]["output"]["bias"], bias, rtol=1e-4)
    right = ((logits > 0) == label).all(-1)[:4].sum()
    assert tuple(map(float, metrics["task_accuracy"])) == (right, 4)


def test_tokens_have_weights_of_their_own() -> None:
    head = TokenClassification(labels=("O", "B", "I"))
    made = LabelledObjective(model=head.build(MODEL, Compute()))
    draw = np.random.default_rng(4)
    weight = draw.integers(0, 2, (ROWS, LENGTH)).astype(np.float32)
    rows = batch(label=draw.integers(0, 3, (ROWS, LENGTH)).astype(np.int32), label_weight=weight)
    sums, _, logits = computed(made, zoo.drawn(made.init, jax.random.key(2)), rows)
    each = -np.log(np.take_along_axis(softmax(np.asarray(logits, np.float64)), rows["label"][..., None], -1))[..., 0]
    assert sums["task"] == pytest.approx((each * weight).sum(), rel=1e-5)
    assert made.weights(rows)["task"] == weight.sum()
