"""Whether a model says one thing of everything, by the kind of its task."""

from typing import Any

import numpy as np
import pytest

from bertzoo.finetuning import saved_model
from bertzoo.finetuning.scoring import LabelScorer, LabelSplit
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.task import Example, Task

CLASSES = CustomFiles(train="none.csv", labels=("x", "y")).task("")
TAGS = CustomFiles(kind="tokens", train="none.csv", labels=("O", "B-X")).task("")
NUMBERS = CustomFiles(kind="regression", train="none.csv").task("")


@pytest.mark.parametrize(
    ("task", "labels", "predictions", "collapsed"),
    [
        (CLASSES, (0, 1), [1, 1], True),
        (CLASSES, (0, 1), [1, 0], False),
        (TAGS, ((0, 1), (0, 0, 1)), [[0, 0], [0, 0, -1]], True),  # the last word is cut off
        (TAGS, ((0, 1), (0, 0, 1)), [[0, 0], [0, 1, -1]], False),
        (NUMBERS, (0.5, 1.5), [1.0, 1.0], True),
        (NUMBERS, (0.5, 1.5), [1.0, 1.0 + 1e-4], False),
    ],
)
def test_equal_predictions_count_as_a_collapse(
    task: Task, labels: Any, predictions: list[Any], collapsed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective: Any = None  # nothing is computed
    judge = LabelScorer(task, objective, saved_model.mesh(), batch_size=1, lengths=(8,))
    found = [np.array(each) for each in predictions] if task.kind == "tokens" else np.array(predictions)
    monkeypatch.setattr(judge, "predict", lambda params, rows: (found, 0.5))
    rows: Any = None
    examples = [Example(str(i), "a", label=label) for i, label in enumerate(labels)]
    assert judge(None, {"dev": LabelSplit(examples, rows)})["collapsed"] is collapsed
