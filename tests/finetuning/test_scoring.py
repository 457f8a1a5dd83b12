"""Scores of predictions and collapses, by the kind of the task."""

from typing import Any

import numpy as np
import pytest

from bertzoo.finetuning.labels import LabelSplit
from bertzoo.finetuning.scoring import score_predictions
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Example, Task

CLASSES = CustomFiles(train="none.csv", labels=("x", "y")).task("")
SEVERAL = CustomFiles(kind="multi_label", train="none.csv", labels=("x", "y")).task("")
TAGS = CustomFiles(kind="tokens", train="none.csv", labels=("O", "B-X")).task("")
NUMBERS = CustomFiles(kind="regression", train="none.csv").task("")


def split(task: Task, labels: Any) -> LabelSplit:
    rows: Any = None  # nothing is computed
    examples = [Example(str(i), "a", label=label) for i, label in enumerate(labels)]
    return LabelSplit(task=task, examples=examples, rows=rows)


@pytest.mark.parametrize(
    ("task", "labels", "predictions", "collapsed"),
    [
        (CLASSES, (0, 1), [1, 1], True),
        (CLASSES, (0, 1), [1, 0], False),
        (TAGS, ((0, 1), (0, 0, 1)), [[0, 0], [0, 0, -1]], True),  # the last word is cut off
        (TAGS, ((0, 1), (0, 0, 1)), [[0, 0], [0, 1, -1]], False),
        (SEVERAL, ((0, 1), (1, 1)), [[1, 0], [1, 0]], True),
        (SEVERAL, ((0, 1), (1, 1)), [[1, 0], [0, 0]], False),
        (NUMBERS, (0.5, 1.5), [1.0, 1.0], True),
        (NUMBERS, (0.5, 1.5), [1.0, 1.0 + 1e-4], False),
    ],
)
def test_equal_predictions_count_as_a_collapse(task: Task, labels: Any, predictions: list[Any], collapsed: bool):
    found = [np.array(each) for each in predictions] if task.kind == "tokens" else np.array(predictions)
    assert score_predictions({"dev": found}, {"dev": split(task, labels)})["collapsed"] is collapsed


@pytest.mark.parametrize(
    ("task", "labels", "predictions", "deciding"),
    [
        (GLUE["mrpc"], (0, 1, 1), [1, 1, 1], ("accuracy", "f1")),  # the mean of all
        (SEVERAL, ((0, 1), (1, 1)), [[0, 1], [1, 0]], ("f1_micro",)),  # the first alone
    ],
)
def test_the_metrics_that_decide_a_score(task: Task, labels: Any, predictions: Any, deciding: tuple[str, ...]):
    splits = {name: split(task, labels) for name in ("dev", "other")}
    figures = score_predictions({"dev": np.array(predictions), "other": np.array(labels)}, splits)
    scores = [figures["scores"][name][metric] for name in splits for metric in deciding]
    assert len(set(figures["scores"]["dev"].values())) > 1 and scores[-1] == 100
    assert figures["score"] == pytest.approx(np.mean(scores))
