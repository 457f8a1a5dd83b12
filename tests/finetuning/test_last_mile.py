"""Class weights, few examples, calibration, thresholds and baselines of a run that classifies texts."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
import sklearn.metrics
from in_jax import Export
from matplotlib.figure import Figure
from messages import mentioning, mentions
from planted import WORDS, records, results, said
from sklearn.utils.class_weight import compute_class_weight

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.labels import LabelSplit, LabelTask
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import RowForm
from bertzoo.heads import SequenceClassification
from bertzoo.heads.labels import CLASS_WEIGHT
from bertzoo.runs import load_model

LABELS = ("bill", "ship", "talk")
OPTIONS = ["--seeds=1", "--epochs=12", "--patience=3", "--class_weights=balanced", "--calibrate=true"]
OPTIONS += ["--threshold=precision", "--min_precision=0.93"]


@pytest.fixture(scope="module")
def mails(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of three labels, one of them rare. A fifth of the texts has no word that tells the label."""
    made, draw = tmp_path_factory.mktemp("mails"), np.random.default_rng(1)
    for name, count in (("train", 400), ("dev", 600), ("test", 2000)):
        lines = ["text,label"]
        for label in draw.choice(3, count, p=[0.6, 0.3, 0.1]):
            words = [*draw.choice(WORDS[12:], draw.integers(3, 9))]
            if draw.random() < 0.8:
                words.insert(int(draw.integers(len(words))), draw.choice(WORDS[4 * label : 4 * label + 4]))
            lines.append(f"{' '.join(words)},{LABELS[label]}")
        (made / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return made


@pytest.fixture(scope="module")
def run(folder: Path, mails: Path) -> Path:
    options = [f"--data_dir={mails}", "--own.test=test.csv", *OPTIONS]
    assert planted.finetune(folder, mails / "run", *options) == 0
    return mails / "run"


def scores_of(capsys: pytest.CaptureFixture, *words: object) -> dict:
    return json.loads(said(capsys, "evaluate", *words, "--json")[0])


@pytest.mark.slow
def test_a_run_saves_its_temperature_and_thresholds(run: Path, capsys):
    model = tomllib.loads((run / "seed-0/model/model.toml").read_text())
    decision = json.loads((run / "seed-0/decision.json").read_text())
    assert model["head"]["thresholds"] == decision["thresholds"] and len({*decision["thresholds"]}) == 1
    assert model["source"]["temperature"] == decision["temperature"] != 1
    before, after = decision["reliability"]
    assert after["ece"] < before["ece"] and not decision["unmet"]
    document = scores_of(capsys, run)
    assert document["ece"] == pytest.approx(after["ece"], abs=0.01)
    for name in ("precision", "recall"):
        assert document["scores"]["dev"][name] == pytest.approx(decision[name])
    (seed,) = results(run)["seeds"]
    assert len(seed["history"]) < 12 and seed["decision"] == decision  # the patience ended the run


@pytest.mark.slow
def test_the_precision_holds_on_the_test_part_and_predict_leaves_texts_without_label(
    run: Path, mails, tmp_path, capsys
):
    split = records(capsys, run, "--split=test")
    threshold = json.loads((run / "seed-0/decision.json").read_text())["thresholds"][0]
    true = [line.split(",")[1] for line in (mails / "test.csv").read_text().splitlines()[1:]]
    labelled = [(one["label"], label) for one, label in zip(split, true, strict=True) if one["label"]]
    assert 0 < len(labelled) < 2000 and np.mean([a == b for a, b in labelled]) >= 0.93
    for one in split:
        assert one["probability"] == max(one["probabilities"].values())
        assert (one["label"] is not None) == (one["probability"] >= threshold)
    scores = scores_of(capsys, run, "--split=test")["scores"]["test"]
    right = sum(a == b for a, b in labelled)
    assert scores["accuracy"] == scores["recall"] == pytest.approx(right / 20)
    assert scores["precision"] == pytest.approx(100 * right / len(labelled))
    lines = said(capsys, "predict", run, "--split=test", f"--output={tmp_path / 'a.tsv'}")[0]
    assert not lines and sum("\t-\t" in line for line in (tmp_path / "a.tsv").read_text().splitlines()) == sum(
        one["label"] is None for one in split
    )
    shown = said(capsys, "predict", run, "--split=test")[0].splitlines()
    assert [line.startswith("- ") for line in shown] == [one["label"] is None for one in split]


@pytest.mark.slow
def test_the_report_has_baselines_and_confusions(run: Path, mails: Path, capsys, monkeypatch):
    simple = json.loads((run / "baselines.json").read_text())
    assert simple["rows"] == 400 and results(run)["baselines"] == simple
    common, words, vectors = (scores["dev"]["accuracy"] for scores in simple["scores"].values())
    labels = [line.split(",")[1] for line in (mails / "dev.csv").read_text().splitlines()[1:]]
    assert common == pytest.approx(labels.count("bill") / 6) and min(words, vectors) > common + 10
    drawn, save = {}, Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda one, path, **more: drawn.update({path: one}) or save(one, path, **more)
    )
    said(capsys, "report", run)
    text, decision = (run / "report.md").read_text(), json.loads((run / "seed-0/decision.json").read_text())
    assert mentions(text, "tf-idf", f"{words:.2f}", f"{vectors:.2f}", f"{decision['temperature']:.3f}", "none")
    rows = zip(LABELS, decision["confusion"], strict=True)
    assert all(f"| {' | '.join(map(str, [name, *row]))} |" in text for name, row in rows)
    _, *lines = drawn[run / "reliability.png"].axes[0].lines  # after the diagonal
    for line, curve in zip(lines, decision["reliability"], strict=True):
        np.testing.assert_array_equal(line.get_xydata(), [bin[1:] for bin in curve["bins"] if bin[0]])
        assert sum(count for count, _, _ in curve["bins"]) == decision["examples"]


@pytest.mark.slow
def test_a_hugging_face_directory_keeps_the_thresholds(run: Path, tmp_path, capsys):
    said(capsys, "convert", run, tmp_path / "hf", "--to=huggingface")
    ours, theirs = load_model.read_model(run), load_model.read_model(tmp_path / "hf")
    assert ours.head.thresholds == theirs.head.thresholds
    text = " ".join(WORDS[12:16])
    (one,), (other,) = records(capsys, run, text), records(capsys, tmp_path / "hf", text)
    assert one["label"] == other["label"] and one["probability"] == pytest.approx(other["probability"], abs=1e-5)


@pytest.mark.slow
def test_a_file_applies_the_thresholds_and_its_card_states_them(run: Path, mails: Path, tmp_path, monkeypatch, capsys):
    Export(tmp_path).stand_in(monkeypatch)
    file = Export(tmp_path)(run, "--lengths=24")
    ours, theirs = (records(capsys, path, f"--input={mails / 'dev.csv'}") for path in (run, file))
    labels = [one["label"] for one in theirs]
    assert [one["label"] for one in ours] == labels and None in labels
    np.testing.assert_allclose(*([one["probability"] for one in side] for side in (ours, theirs)), rtol=1e-4)
    document = json.loads(file.with_name(f"{file.name}.json").read_text())
    decision = json.loads((run / "seed-0/decision.json").read_text())
    assert document["head"]["thresholds"] == decision["thresholds"]
    assert document["source"]["temperature"] == decision["temperature"]
    assert document["scores"]["file"]["precision"] == pytest.approx(decision["precision"])
    card = (file.with_name(f"{file.name}.files") / "README.md").read_text()
    assert mentions(card, f"`talk` {decision['thresholds'][2]:.4g}", "temperature")


def task(data: Path, **options: str) -> LabelTask:
    given = {"task": "own", "own.train": "train.csv", "own.dev": "dev.csv", "data_dir": str(data)} | options
    found = resolve_task(config.load(Finetune, ["finetune"], [*given.items()]))
    assert isinstance(found, LabelTask)
    return found


def training(tokenizer: Any, found: LabelTask) -> LabelSplit:
    split = found.read_splits(RowForm(tokenizer, 24, 0))[0]
    assert isinstance(split, LabelSplit)
    return split


def weights_of(split: LabelSplit) -> np.ndarray:
    assert split.weights is not None
    return split.weights


def test_balanced_weights_are_scikit_learns_and_weigh_the_rows(tokenizer: Any, mails: Path):
    train = training(tokenizer, task(mails, class_weights="balanced"))
    labels = np.array([example.label for example in train.examples])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(weights_of(train), expected, rtol=1e-6)
    (slot, *_) = train.plan(8, (24,), seed=0)
    np.testing.assert_allclose(train.batch(slot, 8)["row_weight"], expected[labels[slot.rows]], rtol=1e-6)
    given = training(tokenizer, task(mails, class_weights="[1, 2, 5.5]"))
    np.testing.assert_allclose(given.batch(slot, 8)["row_weight"], np.array([1, 2, 5.5])[labels[slot.rows]])
    assert training(tokenizer, task(mails)).weights is None


def test_weights_of_several_labels_weigh_where_the_label_applies(tokenizer: Any, tmp_path: Path):
    flags = np.random.default_rng(2).integers(0, 2, (20, 2)) | np.eye(20, 2, dtype=int)
    lines = [f"bara,{one},{two}" for one, two in flags]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,a,b", *lines]))
    options = {"own.kind": "multi_label", "own.labels": '["a","b"]'}
    train = training(tokenizer, task(tmp_path, class_weights="balanced", **options))
    np.testing.assert_allclose(weights_of(train), (20 - flags.sum(0)) / flags.sum(0), rtol=1e-6)
    (slot, *_) = train.plan(8, (24,), seed=0)
    expected = np.where(flags[slot.rows], weights_of(train), 1)
    np.testing.assert_allclose(train.batch(slot, 8)[CLASS_WEIGHT][: len(slot.rows)], expected)
    few = training(tokenizer, task(tmp_path, per_class="2", **options))
    assert 2 <= len(few.examples) <= 6 and all(sum(e.label[i] for e in few.examples) >= 2 for i in range(2))
    for name in ("train", "dev"):  # every example has the label a
        (tmp_path / f"{name}.csv").write_text("text,a,b\nbara,1,0\ndoti,1,1\n")
    with pytest.raises(ConfigError, match=mentioning("class_weights", "'a'")):
        training(tokenizer, task(tmp_path, class_weights="balanced", **options))


@pytest.mark.parametrize("option", ["train_rows", "per_class"])
def test_texts_without_labels_stay_when_few_examples_are_drawn(option: str, tokenizer: Any, mails: Path):
    (mails / "more.jsonl").write_text('{"text": "bara"}\n' * 30)
    options = {"own.train": "train.csv", "own.dev": "dev.csv", "own.unlabelled": "more.jsonl", "alpha": "0.5"}
    labels = [example.label for example in training(tokenizer, task(mails, **options, **{option: "9"})).examples]
    assert labels.count(None) == 30 and len(labels) == 30 + (9 if option == "train_rows" else 27)


def test_few_examples_are_drawn_of_each_label(tokenizer: Any, mails: Path, logged):
    first, again, other = (
        [example.key for example in training(tokenizer, task(mails, per_class="8", seed=seed)).examples]
        for seed in ("0", "0", "1")
    )
    assert first == again != other and first == sorted(first, key=int)
    counts = np.bincount([example.label for example in training(tokenizer, task(mails, per_class="8")).examples])
    assert counts.tolist() == [8, 8, 8]
    many = training(tokenizer, task(mails, per_class="100"))
    counts = np.bincount([example.label for example in many.examples])
    assert counts[0] == counts[1] == 100 > counts[2] and mentions(" ".join(logged), "talk", counts[2])


def test_macro_f1_counts_an_unlabelled_text_as_missed() -> None:
    from bertzoo.tasks import metrics

    labels, predictions = np.array([0, 0, 1, 2, 2]), np.array([0, -1, 1, 2, 1])
    expected = 100 * sklearn.metrics.f1_score(labels, predictions, labels=[0, 1, 2], average="macro")
    assert metrics.f1_macro(predictions, labels) == pytest.approx(expected)


def test_thresholds_are_a_probability_for_each_label() -> None:
    for thresholds, word in (((0.5,), "LABEL_0"), ((0.5, 1.5), "1.5")):
        with pytest.raises(ConfigError, match=mentioning("thresholds", word)):
            SequenceClassification(thresholds=thresholds)
    head = {"labels": ["a", "b"], "thresholds": [0.0, 0.75], "problem_type": None}
    assert mentions(SequenceClassification.result({"head": head, "source": {}}, None), "`b` 0.75", "head.thresholds")
