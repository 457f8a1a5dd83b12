"""A head's labels under a task's: other cases and names, other orders, and none; scores and collapses by kind."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from messages import mentioning
from planted import said

from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.labels import LabelSplit, relabel
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import RowForm, score_predictions
from bertzoo.heads import SequenceClassification
from bertzoo.heads.labels import TEACHER
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Example, Task


@pytest.mark.parametrize(
    ("task", "head", "order"),
    [
        ("sst2", ("NEGATIVE", "POSITIVE"), (0, 1)),
        ("sst2", ("positive", "negative"), (1, 0)),
        ("mnli", ("contradiction", "entailment", "neutral"), (0, 1, 2)),
        ("mnli", ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), (2, 0, 1)),
        ("wnli", ("Entailment", "Not_entailment"), (1, 0)),
        ("rte", ("NOT_ENTAILMENT", "ENTAILMENT"), (1, 0)),
    ],
)
def test_labels_match_the_hubs_in_any_case_and_order(logged, task, head, order, folder):
    """order: where in the head each label of the task is."""
    draw = np.random.default_rng(0)
    params = {"classifier/output/kernel": draw.normal(size=(4, len(head))), "embedding": draw.normal(size=(3, 4))}
    model = load_model.read_model(folder / "model")
    found = replace(model, head=SequenceClassification(labels=head), params=params)
    made = relabel(found, GLUE[task], "here")
    assert made.head.labels == GLUE[task].labels and not logged
    wanted = params["classifier/output/kernel"][:, list(order)]
    np.testing.assert_array_equal(made.params["classifier/output/kernel"], wanted)
    assert made.params["embedding"] is params["embedding"]


def test_thresholds_move_with_their_labels(folder: Path):
    model = load_model.read_model(folder / "model")
    head = SequenceClassification(labels=("positive", "negative"), thresholds=(0.7, 0.0))
    model = replace(model, head=head, params={"classifier/output/bias": np.array([1.0, 2.0])})
    assert relabel(model, GLUE["sst2"], "here").head.thresholds == (0.0, 0.7)


class RenamedClassification(SequenceClassification):
    parameters = ("renamed",)


def test_a_head_with_other_parameter_names_is_reordered_or_rejected(folder: Path):
    model = replace(load_model.read_model(folder / "model"), head=RenamedClassification(labels=("1", "0")))
    model = replace(model, params={"renamed/output/bias": np.array([1.0, 2.0])})
    assert relabel(model, GLUE["sst2"], "here").params["renamed/output/bias"].tolist() == [2, 1]
    with pytest.raises(TypeError, match=mentioning("here", "renamed/output/bias")):
        relabel(replace(model, params={"classifier/output/bias": np.ones(2)}), GLUE["sst2"], "here")


def test_labels_without_names_match_by_number_with_one_note(folder: Path, tmp_path, capsys):
    base = load_model.read_model(folder / "model")
    head = SequenceClassification(labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    planted.write(tmp_path / "model", base.model, head, base.tokenizer)
    (tmp_path / "dev_matched.tsv").write_text("sentence1\tsentence2\tgold_label\nbara\tdoti\tneutral\n")
    shutil.copy(tmp_path / "dev_matched.tsv", tmp_path / "dev_mismatched.tsv")
    for verb, split in (("evaluate", "dev"), ("predict", "dev_matched")):
        err = said(capsys, verb, tmp_path / "model", "--task=mnli", f"--data_dir={tmp_path}", f"--split={split}")[1]
        assert err.count("contradiction, entailment, neutral") == 1
    found = CustomFiles(labels=("US", "us"), train="none.csv").task(tmp_path)
    model = replace(base, head=SequenceClassification(labels=("us", "Us")))
    with pytest.raises(ConfigError, match=mentioning("US")):
        relabel(model, found, "here")


@pytest.mark.parametrize(
    ("own", "given", "logits", "expected"),
    [
        ({"labels": ("no", "yes")}, "no", [[1, 2], [3, 1], [0, 1]], [0, 0, 1]),
        ({"kind": "regression"}, 4, [[0.1], [0.25], [-0.5]], [4, 0.5, -1]),
        (
            {"kind": "multi_label", "labels": ("no", "yes"), "separator": ";"},
            "no;yes",
            [[1, 2], [3, 1], [-1, -2]],
            [[1, 1], [1, 1], [0, 0]],
        ),
    ],
)
def test_texts_without_labels_get_those_of_the_teacher(own, given, logits, expected, tokenizer, tmp_path):
    """The labels of a training file stay; a run's scale is 2."""
    other = 1 if own.get("kind") == "regression" else "no"
    (tmp_path / "train.csv").write_text(f"text,label\nbara doti,{given}\n")
    (tmp_path / "dev.csv").write_text(f"text,label\nbara,{given}\nkera,{other}\n")
    (tmp_path / "more.jsonl").write_text('{"text": "kera"}\n{"text": "luso"}\n')
    files: Any = {"train": "train.csv", "dev": "dev.csv", "unlabelled": "more.jsonl"}
    scale = 2.0 if own.get("kind") == "regression" else 1.0
    recipe = Finetune(task="own", data_dir=str(tmp_path), own=CustomFiles(**own, **files), alpha=0.5, scale=scale)
    task = resolve_task(recipe)
    train: Any = task.read_splits(RowForm(tokenizer, 16, 0))[0]
    flipped = replace(train, examples=[train.examples[0]._replace(label=-7), *train.examples[1:]])
    assert train.digest == replace(train).digest != flipped.digest
    assert len(train) == 3 and "label" not in train.batch(train.plan(3, (16,))[0], 3)
    taught = train.add_teacher(np.array(logits, np.float32))
    np.testing.assert_array_equal(taught.rows.label, np.array(expected, np.float32))
    (slot,) = taught.plan(3, (16,))
    batch = taught.batch(slot, 3)
    np.testing.assert_array_equal(batch["label"], np.array(expected, np.float32)[slot.rows] / scale)
    np.testing.assert_array_equal(batch[TEACHER], np.array(logits, np.float32)[slot.rows])


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
        (replace(NUMBERS, metrics=("pearson", "mse")), (0, 1, 2), [0, 0, 1], ("pearson",)),  # an error chooses nothing
    ],
)
def test_the_metrics_that_decide_a_score(task: Task, labels: Any, predictions: Any, deciding: tuple[str, ...]):
    splits = {name: split(task, labels) for name in ("dev", "other")}
    figures = score_predictions({"dev": np.array(predictions), "other": np.array(labels)}, splits)
    scores = [figures["scores"][name][metric] for name in splits for metric in deciding]
    assert len(set(figures["scores"]["dev"].values())) > 1 and scores[-1] == pytest.approx(100)
    assert figures["score"] == pytest.approx(np.mean(scores))
