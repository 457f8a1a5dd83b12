"""`evaluate` and `predict` of fine-tuned models: the run's scores, the order of the texts, and errors."""

import io
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from messages import mentions
from planted import records, results, said
from tiers import quick
from zoo import pretrained

from bertzoo.conversion import huggingface
from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.finetuning.settings import Finetune
from bertzoo.heads import SequenceClassification, TokenClassification
from bertzoo.models import ConvBert, MobileBert
from bertzoo.models.attention import MixedHeads
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.readers import FEW
from bertzoo.tasks.task import Example


@pytest.fixture(scope="module")
def models(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models with untrained heads: `rte`, `stsb` (its numbers are far above 5) and `tags`."""
    made, base = tmp_path_factory.mktemp("models"), load_model.read_model(folder / "model")
    rte = SequenceClassification(labels=("entailment", "not_entailment"))
    planted.write(made / "rte", base.model, rte, base.tokenizer, task="rte")
    number = SequenceClassification(labels=("number",), problem_type="regression")
    planted.write(made / "stsb", base.model, number, base.tokenizer, task="stsb", scale="5", max_length=16)
    planted.write(made / "tags", base.model, TokenClassification(labels=("O", "B-X", "I-X")), base.tokenizer)
    return made


@pytest.fixture(scope="module")
def rte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """RTE's development set, twenty rows of it."""
    made, draw = tmp_path_factory.mktemp("rte"), np.random.default_rng(2)
    lines = ["index\tsentence1\tsentence2\tlabel"]
    for row in range(20):
        one, other = (" ".join(map(str, draw.choice(planted.WORDS, size))) for size in draw.integers(1, 9, 2))
        lines.append(f'{row}\t"{one}\t{other}\t{("entailment", "not_entailment")[int(draw.integers(2))]}')
    (made / "dev.tsv").write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.slow
def test_evaluate_repeats_the_scores_of_the_run(finished: Path, capsys):
    best = (found := results(finished))["seeds"][found["best"]]
    for run, options, row in (
        (finished, [], best),
        (finished, ["--batch_size=7", "--split=dev"], best),
        (finished, ["--seed=1"], found["seeds"][1]),
        (finished / "seed-0", [], found["seeds"][0]),
        (finished / "seed-0" / "model", [], found["seeds"][0]),
    ):
        document = json.loads(said(capsys, "evaluate", run, *options, "--json")[0])
        assert document["scores"] == row["scores"] and document["examples"] == {"dev": 40}
        history = next(entry for entry in row["history"] if entry["epoch"] == row["epoch"])
        assert document["loss"] == pytest.approx(history["loss"], rel=1e-5)
    assert said(capsys, "evaluate", finished, "--split=train")[0].startswith("own, train, 240 examples: accuracy ")


@pytest.mark.slow
def test_the_files_that_taught_a_run_are_needed_no_more(finished: Path, folder: Path, models: Path, tmp_path, capsys):
    shutil.copy(folder / "dev.csv", tmp_path)
    document = json.loads(said(capsys, "evaluate", finished, f"--data_dir={tmp_path}", "--json")[0])
    assert document["scores"] == (found := results(finished))["seeds"][found["best"]]["scores"]
    wanted = records(capsys, finished, "--split=dev")
    assert records(capsys, finished, "--split=dev", f"--data_dir={tmp_path}") == wanted
    (tmp_path / "dev.csv").write_text("text,label\nbara,maybe\n")
    err = said(capsys, "evaluate", finished, f"--data_dir={tmp_path}", code=2)[1]
    assert mentions(err, "0, 1", "dev.csv", "line 2", "'maybe'", "'label'")
    (tmp_path / "dev.conll").write_text("bara I-X\ndoti O\n")
    own = CustomFiles(kind="tokens", train="none.conll", dev="dev.conll", text_a="0", label="1")
    tags = replace(load_task_model(models / "tags"), recipe=Finetune(task="own", own=own), task_name="own")
    (example,) = tags.task(data_dir=str(tmp_path)).read("dev", str(tmp_path)).examples
    assert [tags.labels[tag] for tag in example.label] == ["I-X", "O"]
    own = CustomFiles(kind="regression", train="none.csv", dev="dev.csv", text_b="other")
    numbers = replace(load_task_model(models / "stsb"), recipe=Finetune(task="own", own=own), task_name="own")
    (tmp_path / "dev.csv").write_text("text,other,label\nbara,doti,2.5\n")
    assert numbers.task(data_dir=str(tmp_path)).read("dev", str(tmp_path)).examples[0].label == 2.5


def test_predictions_are_those_that_were_scored_in_the_order_of_the_texts(finished, folder, capsys, tmp_path):
    found = records(capsys, finished, f"--input={folder / 'dev.csv'}")
    lines = [line.split(",") for line in (folder / "dev.csv").read_text().splitlines()[1:]]
    right = [each["label"] == label for each, (_, label, _) in zip(found, lines, strict=True)]
    best = results(finished)["seeds"][results(finished)["best"]]
    assert 100 * np.mean(right) == pytest.approx(best["scores"]["dev"]["accuracy"])
    assert [each["index"] for each in found] == [str(i) for i in range(40)]
    assert records(capsys, finished, "--split=dev") == found
    for each in found:
        assert each["probability"] == max(each["probabilities"].values()) == each["probabilities"][each["label"]]
        assert sum(each["probabilities"].values()) == pytest.approx(1, abs=1e-12)


SIZES = {"hidden_size": 16, "max_positions": 32, "layers": 2, "heads": 4, "feed_forward_size": 32, "embedding_size": 8}
SEEING = [
    (ConvBert(**SIZES, kernel_size=5, mask_padding=False), 4),
    (ConvBert(**SIZES, kernel_size=5), 0),
    (MobileBert(**SIZES, bottleneck_size=8, feed_forwards=1, mask_padding=False), 1),
    (
        MobileBert(
            **SIZES, bottleneck_size=8, feed_forwards=1, mask_padding=False, attention_input="stream",
            attention=MixedHeads(kernel_size=3, mask_padding=False),
        ),
        3,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "seen"), quick(SEEING, SEEING[0]))
def test_a_model_that_sees_padding_predicts_the_same_in_any_batch(
    model: Any, seen: int, folder: Path, tokenizer, tmp_path
):
    assert model.padding_seen == seen
    model = replace(model, vocab_size=tokenizer.vocab_size)
    head = SequenceClassification(labels=("0", "1"))
    load_model.write_model(replace(pretrained(model, head), tokenizer=tokenizer), tmp_path)
    kept = load_task_model(tmp_path)
    texts = [line.split(",")[0] for line in (folder / "dev.csv").read_text().splitlines()[1:]]
    examples = [Example(str(i), text) for i, text in enumerate(texts)]
    # All rows padded to the longest length, as in the reference codes.
    whole = replace(kept, recipe=replace(kept.recipe, buckets=1)).predict(examples).probabilities
    order = np.random.default_rng(3).permutation(len(texts))
    for size, buckets in ((1, 8), (7, 4)):
        other = replace(kept, recipe=replace(kept.recipe, buckets=buckets))
        found = other.predict([examples[i] for i in order], size).probabilities
        np.testing.assert_allclose(found, whole[order], atol=1e-6)
    assert np.ptp(whole[:, 0]) > 0.1
    rows = kept.encode(kept.task_class.unnamed(kept), examples).rows
    shortest = min(replace(kept, recipe=replace(kept.recipe, buckets=8)).runner([rows]).lengths)
    assert shortest == 8 * -(-(rows.lengths.min() + seen) // 8)


def test_texts_come_from_words_lines_and_files(finished: Path, capsys, tmp_path, monkeypatch):
    texts = ['"bara" doti', "kera", "lura\tbara"]
    wanted = records(capsys, finished, *texts)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts) + "\n"))
    assert records(capsys, finished) == wanted
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"said": text}) + "\n" for text in texts))
    assert records(capsys, finished, f"--input={tmp_path / 'in.jsonl'}", "--text_a=said") == wanted
    said(capsys, "predict", finished, *texts, f"--output={tmp_path / 'out.tsv'}")
    table = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert table[0] == ["index", "label", "probability"]
    assert table[1:] == [[each["index"], each["label"], f"{each['probability']:.6f}"] for each in wanted]
    said(capsys, "predict", finished, *texts, f"--output={tmp_path / 'out.jsonl'}")
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == wanted
    out, _ = said(capsys, "predict", finished, "bara")
    assert out.split("\t")[1] == "bara\n" and out.split()[0] in ("0", "1") and "%" in out


def test_empty_and_long_texts_are_counted(finished: Path, capsys):
    long = "bara " * 20_000
    out, err = said(capsys, "predict", finished, "", long, "doti", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert len(found) == 3 and [each.get("cut", False) for each in found] == [False, True, False]
    assert err.count("1 of 3") == 2 and mentions(err, " 24 ", "empty")
    assert records(capsys, finished, "bara " * 22)[0]["probabilities"] == pytest.approx(found[1]["probabilities"])


def test_a_pair_is_two_arguments_or_a_line_with_a_tab(models: Path, capsys, tmp_path, monkeypatch):
    texts = ['bara "doti', "kera", "lura", 'mi"ra nora']
    wanted = records(capsys, models / "rte", *texts)
    assert len(wanted) == 2 and wanted[0]["probability"] != wanted[1]["probability"]
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{texts[0]}\t{texts[1]}\r\n{texts[2]}\t{texts[3]}\n"))
    assert records(capsys, models / "rte") == wanted
    (tmp_path / "in.tsv").write_text(f"b\ta\n{texts[1]}\t{texts[0]}\n{texts[3]}\t{texts[2]}\n")
    columns = ["--text_a=a", "--text_b=b"]
    assert records(capsys, models / "rte", f"--input={tmp_path / 'in.tsv'}", *columns) == wanted
    swapped = records(capsys, models / "rte", texts[1], texts[0])[0]
    assert swapped["probability"] != pytest.approx(wanted[0]["probability"], abs=1e-9)
    monkeypatch.setattr("sys.stdin", io.StringIO("bara\tdoti\nkera\n"))
    assert mentions(said(capsys, "predict", models / "rte", code=2)[1], "line 2", "0 tabs")
    assert mentions(said(capsys, "predict", models / "rte", *texts[:3], code=2)[1], "3 texts", "pair")


def test_numbers_are_scaled_and_clipped_to_the_tasks_range(models: Path, folder: Path, capsys, tmp_path):
    model = load_task_model(models / "stsb")
    assert model.max_length == 16
    examples = [Example("0", "bara", "doti"), Example("1", "kera lura", "")]
    bias = model.pretrained.params["classifier/output/bias"]
    free = replace(model, task_name="")
    for shift, kept in ((0.0, None), (9.0, 5.0), (-9.0, 0.0)):
        params = {**model.pretrained.params, "classifier/output/bias": bias + np.float32(shift)}
        moved = replace(model.pretrained, params=params)
        numbers = replace(free, pretrained=moved).predict(examples).values
        clipped = replace(model, pretrained=moved).predict(examples).values
        np.testing.assert_array_equal(clipped, np.clip(numbers, 0, 5))
        assert kept is None or (clipped == kept).all()
        plain = replace(free, pretrained=moved, recipe=replace(free.recipe, scale=1.0)).predict(examples).values
        np.testing.assert_allclose(numbers, 5 * plain, rtol=1e-6)
    found = records(capsys, models / "stsb", "bara", "doti")
    assert found == [{"index": "0", "number": pytest.approx(model.predict(examples).values[0], abs=1e-6)}]


def test_every_word_has_a_tag_except_cut_ones(models: Path, capsys, tmp_path):
    words = ["bara", "doti"] * 20
    (found, empty) = records(capsys, models / "tags", " ".join(words), "")
    assert found["words"] == words and len(found["tags"]) == 40 and found["cut"] is True
    kept = [tag for tag in found["tags"] if tag is not None]
    assert 0 < len(kept) < 40 and found["tags"] == kept + [None] * (40 - len(kept)) and set(kept) <= {"O", "B-X", "I-X"}
    assert empty["tags"] == [] and "cut" not in empty
    (tmp_path / "in.conll").write_text("".join(f"{word} X\n" for word in words) + "\nbara X\n")
    listed = records(capsys, models / "tags", f"--input={tmp_path / 'in.conll'}", "--text_a=0")
    assert listed[0] == found and listed[1]["words"] == ["bara"]
    out, err = said(capsys, "predict", models / "tags", " ".join(words))
    assert out.split() == [f"{word}/{tag or '-'}" for word, tag in zip(words, found["tags"], strict=True)]
    assert mentions(err, "1 of 1", "cut")


def test_labels_are_matched_by_name_and_a_hugging_face_directory_is_read(models: Path, rte: Path, tmp_path, capsys):
    def score(path: Path) -> dict:
        return json.loads(said(capsys, "evaluate", path, "--task=rte", f"--data_dir={rte}", "--json")[0])

    wanted = score(models / "rte")
    model = load_model.read_model(models / "rte")
    head = replace(model.head, labels=model.head.labels[::-1])
    params = {
        name: array[..., ::-1] if name.startswith("classifier/output") else array
        for name, array in model.params.items()
    }
    for folder, found in (("theirs", model), ("turned", replace(model, head=head, params=params))):
        (tmp_path / folder).mkdir()
        huggingface.write_huggingface(found, tmp_path / folder)
        assert score(tmp_path / folder) == {**wanted, "loss": pytest.approx(wanted["loss"], rel=1e-5)}
    mirrored = replace(model, head=head)  # the names alone are turned, so that all that was right is wrong
    (tmp_path / "mirrored").mkdir()
    huggingface.write_huggingface(mirrored, tmp_path / "mirrored")
    accuracy = wanted["scores"]["dev"]["accuracy"]
    assert score(tmp_path / "mirrored")["scores"]["dev"]["accuracy"] == pytest.approx(100 - accuracy)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "RUN", "--split=test"], ("own", "test set")),
        (["evaluate", "RUN", "--seed=7"], ("--seed=7",)),
        (["evaluate", "RUN", "--batch_size=0"], ("--batch_size=0", " 1")),
        (["evaluate", "RUN", "--stage=0"], ("--stage", "fine-tuned")),
        (["evaluate", "RUN", "--task=rte", "--data_dir=RTE"], ("0, 1", "rte", "entailment")),
        (["evaluate", "TAGS"], ("tags", "task", "--task")),
        (["evaluate", "TAGS", "--task=rte", "--data_dir=RTE"], ("tokens", "rte", "classification")),
        (["evaluate", "STSB"], ("dev", "stsb", "--data_dir")),
        (["evaluate", "MODEL"], ("model", "head", "masked")),
        (["evaluate", "STSB", "--seed=0"], ("--seed=0", "stsb")),
        (["predict", "RUN", "bara", "--split=dev"], ("--split", "TEXT")),
        (["predict", "RUN", "bara", "--output=x.csv"], ("x.csv", ".jsonl", ".tsv")),
        (["predict", "RUN", "bara", "--pair"], ("--pair", "single")),
        (["predict", "RUN", "bara", "--text_a=x"], ("--text_a", "--input")),
        (["predict", "RUN", "bara", "--top=3"], ("--top", "fine-tuned")),
        (["predict", "RUN", "bara", "--data_dir=x"], ("--data_dir", "--split", "--task")),
        (["predict", "RUN", "--input=DEV", "--text_a=tekst"], ("dev.csv", "'tekst'")),
        (["predict", "STSB", "--input=DEV"], ("--input", "--text_b")),
        (["predict", "TAGS", "bara", "doti", "--pair"], ("--pair", "task")),
        (["evaluate", "RUN", "--output=x"], ("--output ",)),
        (["evaluate", "RUN", "--task=squad1"], ("classification", "squad1", "questions")),
        (["predict", "RUN", "a", "--output=x.json"], ("x.json", "questions")),
        (["evaluate", "ANSWERS", "--split=test"], ("SQuAD 1.1", "test set")),
        (["evaluate", "ANSWERS", "--task=cola"], ("cola", "questions", "squad1", "squad2")),
        (["evaluate", "ANSWERS", "--output=FILE"], ("--output=", "dev-v1.1.json", "is a file")),
        (["evaluate", "ANSWERS", "--output=FILE/x"], ("dev-v1.1.json/x", "Not a directory")),
        (["evaluate", "ANSWERS", "--task=squad1", "--data_dir=MODEL"], ("dev-v1.1.json", "exist")),
        (["predict", "ANSWERS", "--input=FILE", "--text_a=x"], ("--text_a", "table")),
        (["predict", "ANSWERS", "--input=ROWS"], ("'question'", "asked, paragraph, said")),
        (["predict", "ANSWERS", "--split=validation"], ("--split=validation", "train", "dev", "test")),
        (["submission", "OUT.zip", "ANSWERS"], ("squad1", "GLUE")),
    ],
)
def test_impossible_options_print_one_error(
    words, message, finished, folder, models, rte, quiz_run, quiz_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    places = {
        **{"RUN": finished, "MODEL": folder / "model", "TAGS": models / "tags", "STSB": models / "stsb", "RTE": rte},
        **{"DEV": folder / "dev.csv", "ANSWERS": quiz_run, "FILE": quiz_folder / "dev-v1.1.json"},
        "ROWS": quiz_folder / "own.jsonl",
    }
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    assert mentions(said(capsys, *words, code=2)[1], *message) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none/x.tsv", ("none/x.tsv", "No such file")),
        ("file/x.jsonl", ("file/x.jsonl", "Not a directory")),
        ("folder.tsv", ("folder.tsv", "directory")),
    ],
)
def test_an_unwritable_output_raises_before_any_prediction(place, message, models, tmp_path, monkeypatch, capsys):
    def load(*_: object) -> None:
        raise AssertionError("a model is read")

    monkeypatch.setattr("bertzoo.finetuning.saved_model.load_saved", load)
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "file").touch()
    err = said(capsys, "predict", models / "rte", "bara", "doti", f"--output={tmp_path / place}", code=2)[1]
    assert mentions(err, *message) and err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.tsv"]


def test_the_input_is_not_overwritten(finished: Path, folder: Path, models: Path, rte: Path, tmp_path, capsys):
    table = tmp_path / "in.tsv"
    table.write_text("text\nbara\n")
    (tmp_path / "link.tsv").symlink_to(table)
    for output in ("in.tsv", "link.tsv"):
        err = said(capsys, "predict", finished, f"--input={table}", f"--output={tmp_path / output}", code=2)[1]
        assert mentions(err, output, "input") and table.read_text() == "text\nbara\n"
    before = (rte / "dev.tsv").read_text()
    words = ["predict", models / "rte", "--split=dev", f"--data_dir={rte}"]
    assert mentions(said(capsys, *words, f"--output={rte / 'dev.tsv'}", code=2)[1], rte / "dev.tsv", "directory")
    assert (rte / "dev.tsv").read_text() == before
    said(capsys, *words, f"--output={tmp_path / 'out.tsv'}")
    assert len((tmp_path / "out.tsv").read_text().splitlines()) == 21
    # The input files are recognised; another file beside them may be overwritten.
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text((folder / name).read_text())
    own = ["predict", finished, "--split=dev", f"--data_dir={tmp_path}"]
    (tmp_path / "train.csv").rename(tmp_path / "kept.csv")
    (tmp_path / "train.csv").symlink_to(tmp_path / "out.tsv")
    assert mentions(said(capsys, *own, f"--output={tmp_path / 'out.tsv'}", code=2)[1], "out.tsv", "input")
    (tmp_path / "train.csv").unlink()
    said(capsys, *own, f"--output={tmp_path / 'out.tsv'}")
    assert len((tmp_path / "out.tsv").read_text().splitlines()) == 41


def test_skipped_rows_are_logged_and_splits_selectable(models: Path, rte: Path, tmp_path, capsys):
    text = (rte / "dev.tsv").read_text()
    (tmp_path / "dev.tsv").write_text(text + "20\tshort\n")
    out, err = said(capsys, "predict", models / "rte", "--split=dev", f"--data_dir={tmp_path}", "--json")
    assert len(out.splitlines()) == 20 and mentions(err, "dev", " 1 rows", "columns")
    out, err = said(capsys, "evaluate", models / "rte", f"--data_dir={tmp_path}", "--json")
    assert json.loads(out)["skipped"] == {"dev": {FEW: 1}} and mentions(err, "dev", " 1 rows")
    words = ["predict", tmp_path / "mnli", "--task=mnli", "--split=dev", f"--data_dir={tmp_path}"]
    base = load_model.read_model(models / "rte")
    mnli = SequenceClassification(labels=("entailment", "neutral", "contradiction"))
    planted.write(tmp_path / "mnli", base.model, mnli, base.tokenizer, task="mnli")
    assert mentions(said(capsys, *words, code=2)[1], "dev_matched", "dev_mismatched")
    out, err = said(capsys, "predict", models / "rte", "bara", " ", "kera", "doti", "--json")
    assert mentions(err, "1 of 2", "empty")  # of a pair the second


@pytest.mark.slow
def test_standard_input_must_be_utf_8_whatever_the_locale(finished: Path):
    words = [sys.executable, "-m", "bertzoo", "predict", finished]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(words, input=b"bara\n\xff\xfe\n", capture_output=True, env=environment)
    assert done.returncode == 2 and mentions(done.stderr.decode(), "standard input", "UTF-8", "invalid start byte")


def test_an_unfinished_run_asks_for_a_seed(finished: Path, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "results.json").unlink()
    assert mentions(said(capsys, "evaluate", run, code=2)[1], run, "is unfinished")
    assert said(capsys, "evaluate", run, "--seed=1")[0]
