"""`predict` and `evaluate` of an exported file equal those of its model; a graph in JAX replaces LiteRT."""

import importlib.util
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from messages import mentions
from planted import records, said

import bertzoo
from bertzoo.heads import SequenceClassification
from bertzoo.runs import load_model

pytestmark = pytest.mark.slow


def close(value: Any) -> Any:
    """The value with numbers that compare within float32's rounding."""
    if isinstance(value, dict):
        return {name: close(item) for name, item in value.items()}
    if isinstance(value, list):
        return [close(item) for item in value]
    return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value


TEXTS = [f"{planted.WORDS[i]} " * (1 + 3 * i) for i in range(6)]


@pytest.mark.parametrize("name", ["rte", "several", "stsb", "tags", "spans", "heads"])
def test_a_file_predicts_as_its_model(name: str, models: Path, export: Any, capsys):
    file = export(models / name, "--lengths=8,24")
    expected = records(capsys, models / name, *TEXTS)
    pairs = name in ("rte", "stsb")
    assert len(expected) == (3 if pairs else 6)
    assert records(capsys, file, *TEXTS) == close(expected)
    (runtime,) = export.loaded
    assert len(runtime.lengths) == len(expected) and set(runtime.lengths) <= {8, 24} and 24 in runtime.lengths
    texts = list(zip(TEXTS[::2], TEXTS[1::2], strict=True)) if pairs else TEXTS
    assert bertzoo.predict(file, texts) == close(expected)


def test_a_file_of_shorter_rows_cuts_its_texts(models: Path, export: Any, tmp_path, capsys):
    (tmp_path / "texts").write_text("bara doti\n")
    file = export(models / "tags", "--lengths=8", "--precision=int8-static", f"--calibration={tmp_path / 'texts'}")
    (record,) = records(capsys, file, "bara " * 20)
    assert record["cut"] and record["tags"][6:] == [None] * 14 and None not in record["tags"][:6]


def test_a_file_finds_entities_of_texts_longer_than_its_rows(models: Path, export: Any, tmp_path, capsys):
    text = "bara doti, " * 20
    spans = [{"start": 11 * place, "end": 11 * place + 4, "label": "X"} for place in (0, 3, 19)]
    (tmp_path / "later.jsonl").write_text(json.dumps({"text": text, "spans": spans}) + "\n")
    words = ("evaluate", models / "spans", f"--input={tmp_path / 'later.jsonl'}", "--json")
    expected = json.loads(said(capsys, *words)[0])
    assert 0 < expected["scores"]["test"]["entity_f1"] < 100
    file = export(models / "spans", "--lengths=24")
    assert json.loads(said(capsys, "evaluate", file, *words[2:])[0])["scores"] == expected["scores"]
    (record,) = records(capsys, file, text)
    assert max(entity["end"] for entity in record["entities"]) > 200
    assert all(text[e["start"] : e["end"]] == e["text"] for e in record["entities"])


def test_a_file_is_scored_as_its_model(models: Path, export: Any, capsys):
    """The file's labels are in another order than the task's."""
    file, data = export(models / "rte", "--lengths=24"), f"--data_dir={models / 'RTE'}"
    expected = json.loads(said(capsys, "evaluate", models / "rte", data, "--json")[0])
    document = json.loads(said(capsys, "evaluate", file, data, "--json")[0])
    assert document == close({name: value for name, value in expected.items() if name != "loss"})
    assert document["examples"] == {"dev": 24} and export.loaded[0].lengths == [24] * 24
    assert bertzoo.evaluate(file, data_dir=models / "RTE") == document
    labels = [line.split("\t")[3] for line in (models / "RTE" / "dev.tsv").read_text().splitlines()[1:]]
    split = records(capsys, file, "--split=dev", data)
    right = sum(row["label"] == label for row, label in zip(split, labels, strict=True))
    assert document["scores"]["dev"]["accuracy"] == pytest.approx(100 * right / 24)


def test_a_file_names_the_classes_of_glue(models: Path, export: Any, tmp_path, capsys):
    """Tables and JSON keep GLUE's labels, as those of the model; an app and the printed lines have names."""
    base, source = load_model.read_model(models / "rte"), tmp_path / "sst2"
    head = SequenceClassification(labels=("0", "1"))
    planted.write(source, base.model, head, base.tokenizer, task="sst2", max_length=24)
    rows = [f"{text.strip()}\t{i % 2}" for i, text in enumerate(TEXTS)]
    (tmp_path / "dev.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    file = export(source, "--lengths=24")
    description = json.loads(file.with_name("sst2.tflite.json").read_text())
    assert description["head"]["labels"] == ["negative", "positive"]
    expected = records(capsys, source, *TEXTS)
    assert {record["label"] for record in expected} <= {"0", "1"} and records(capsys, file, *TEXTS) == close(expected)
    lines = said(capsys, "predict", file, *TEXTS)[0].splitlines()
    names = {"0": "negative", "1": "positive"}
    assert [line.split()[0] for line in lines] == [names[record["label"]] for record in expected]
    assert said(capsys, "predict", source, *TEXTS)[0].splitlines() == lines
    words = ("--json", f"--data_dir={tmp_path}")
    scores = [json.loads(said(capsys, "evaluate", path, *words)[0])["scores"] for path in (source, file)]
    assert scores[0] == scores[1]


def test_a_file_of_several_labels_is_scored_as_its_model(models: Path, export: Any, tmp_path, capsys):
    """The file's labels are in another order than the task's; MediaPipe's files give sigmoids instead of logits."""
    lines = [f"{text.strip()},{i % 2},{i // 3},{i % 3 // 2}" for i, text in enumerate(TEXTS)]
    (tmp_path / "later.csv").write_text("\n".join(["text,good,bad,long", *lines]) + "\n")
    words = ("evaluate", models / "several", f"--input={tmp_path / 'later.csv'}", "--json")
    expected = json.loads(said(capsys, *words)[0])
    file = export(models / "several", "--lengths=24")
    document = json.loads(said(capsys, "evaluate", file, *words[2:])[0])
    assert document == close({name: value for name, value in expected.items() if name != "loss"})
    logits = np.float32([[-200, -3, 0, 0.5, 12]])
    head = SequenceClassification(problem_type="multi_label_classification")
    computed = head.convert_outputs({"probabilities": (0.5 + 0.5 * np.tanh(logits / 2)).astype(np.float32)})["logits"]
    assert np.isfinite(computed).all()
    np.testing.assert_allclose(computed[0, 1:], logits[0, 1:], rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("name", ["span", "joint"])
def test_a_file_answers_questions(name: str, models: Path, export: Any, capsys):
    file, data = export(models / name, "--lengths=16,24"), f"--data_dir={models / 'quiz'}"
    pair = ("bara doti?", "lura doti mira " * 9)
    assert records(capsys, file, *pair) == close(records(capsys, models / name, *pair))
    expected, document = (
        json.loads(said(capsys, "evaluate", path, data, "--json")[0]) for path in (models / name, file)
    )
    assert document == close({key: value for key, value in expected.items() if key != "loss"})
    assert document["examples"] == {"dev": 24}


def test_a_file_fills_blanks_as_its_model(models: Path, export: Any, capsys):
    file, text = export(models / "masked", "--lengths=8,16"), "bara [MASK] doti [MASK]"
    expected = records(capsys, models / "masked", text, "--top=60")
    assert records(capsys, file, text, "--top=60") == close(expected)
    assert export.loaded[0].lengths == [8, 8]
    assert bertzoo.predict(file, [text]) == close(bertzoo.predict(models / "masked", [text]))
    error = said(capsys, "predict", file, "bara [MASK] " * 10, code=2)[1]
    assert mentions(error, 22, 16, file)


def test_a_file_of_the_users_own_task_scores_later_files(models: Path, export: Any, tmp_path, capsys):
    options = ["--own.kind=regression", "--own.label=number", "--seeds=1", "--epochs=1"]
    assert planted.finetune(models, tmp_path / "run", *options) == 0
    file, copy, later = export(tmp_path / "run", "--lengths=24"), tmp_path / "copy", tmp_path / "later.csv"
    assert planted.cli.main(["convert", str(tmp_path / "run"), str(copy), "--to=bertzoo"]) == 0
    later.write_text("".join((models / "dev.csv").read_text().splitlines(keepends=True)[:21]))
    expected, *others = (
        json.loads(said(capsys, "evaluate", path, f"--input={later}", "--json")[0])
        for path in (tmp_path / "run", copy, file)
    )
    assert expected["examples"] == {"test": 20} and expected["task"] == "own"
    assert others == [close(expected), close({key: value for key, value in expected.items() if key != "loss"})]
    numbers = records(capsys, tmp_path / "run", f"--input={later}")
    assert len(numbers) == 20 and records(capsys, file, f"--input={later}") == close(numbers)
    record = json.loads(file.with_name("run.tflite.json").read_text())["source"]["own"]
    assert (record["kind"], record["label"]) == ("regression", "number")
    assert "train.csv" not in json.dumps(record)  # the names of files stay on this machine
    for verb in ("evaluate", "predict"):
        error = said(capsys, verb, file, "--split=dev", f"--data_dir={models}", code=2)[1]
        assert mentions(error, file, "dev", "--input")


def test_the_advice_for_a_split_without_labels_works(models: Path, export: Any, tmp_path, capsys):
    file, data = export(models / "rte", "--lengths=24"), shutil.copytree(models / "RTE", tmp_path / "a folder")
    (data / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tbara doti\tkera\n")
    error = said(capsys, "evaluate", file, "--split=test", f"--data_dir={data}", code=2)[1]
    program, *words = shlex.split(error.split("`")[1])
    assert program == "bertzoo" and len(said(capsys, *words)[0].splitlines()) == 1
    assert mentions(said(capsys, "predict", file, "--split=test", code=2)[1], file, "test", "--data_dir")


def test_unsupported_uses_of_a_file_raise(models: Path, export: Any, capsys):
    files = {name: export(models / name, "--lengths=24") for name in ("rte", "masked", "none", "own")}
    rte, data = files["rte"], f"--data_dir={models / 'RTE'}"
    for words, parts in (
        (("predict", rte, "bara", "doti", "--seed=1"), ("--seed", rte)),
        (("predict", rte, "bara", "doti", "--batch_size=1"), ("--batch_size", rte)),
        (("predict", rte, "bara", "doti", "--checkpoint=1"), ("--checkpoint", rte)),
        (("predict", rte, "bara", "doti", "--top=1"), ("--top", rte)),
        (("predict", files["masked"], "bara [MASK]", "--split=dev"), ("--split", files["masked"])),
        (("predict", files["none"], "bara"), ("bertzoo embed", files["none"])),
        (("predict", "nowhere.tflite", "bara"), ("nowhere.tflite", "bertzoo convert")),
        (("evaluate", files["masked"]), ("masked", files["masked"])),
        (("evaluate", files["own"]), ("own", "--task", files["own"])),
        (("evaluate", rte), ("dev", "rte", "--data_dir", rte)),
        (("evaluate", rte, data, "--stage=0"), ("--stage", rte)),
        (("evaluate", rte, data, "--task=mnli"), ("mnli", 2, 3)),
    ):
        assert mentions(said(capsys, *words, code=2)[1], *parts), words


def test_missing_companions_are_named(models: Path, export: Any, tmp_path, capsys):
    file = export(models / "rte", "--lengths=24")

    def change(document: Path, **changes: Any) -> None:
        document.write_text(json.dumps(json.loads(document.read_text()) | changes))

    damages: list[tuple[Callable[[Path, Path, Path], object], tuple[str, ...]]] = [
        (lambda file, document, folder: document.unlink(), ("rte.tflite.json", "bertzoo convert")),
        (lambda file, document, folder: shutil.rmtree(folder), ("rte.tflite.files", "tokenizer", "bertzoo convert")),
        (lambda file, document, folder: change(document, head={"kind": "unknown"}), ("rte.tflite.json", "unknown")),
        (
            lambda file, document, folder: change(document, inputs={"token_type]ids": "int32"}),
            ("rte.tflite.json", "inputs.token_type]ids"),
        ),
        (lambda file, document, folder: file.write_bytes(b"other"), ("rte.tflite.json", "rte.tflite", "hash")),
    ]
    for number, (damage, parts) in enumerate(damages):
        copy = shutil.copytree(file.parent, tmp_path / "copies" / str(number), ignore=lambda *_: ["copies"])
        damage(*(copy / f"{file.name}{end}" for end in ("", ".json", ".files")))
        for verb in ("predict", "evaluate"):
            assert mentions(said(capsys, verb, copy / file.name, code=2)[1], copy, *parts)
    assert not export.loaded  # before the file is opened


def test_a_missing_runtime_is_named(models: Path, export: Any, monkeypatch, capsys):
    file = export(models / "rte", "--lengths=24")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = said(capsys, "predict", file, "bara", "doti", code=2)[1]
    assert mentions(error, ".tflite", "ai_edge_litert", "pip install -c constraints.txt -e '.[litert]'")
