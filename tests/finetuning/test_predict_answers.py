"""`evaluate` and `predict` of models that answer questions: the run's scores and answers, and errors."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted
import pytest
import quiz
from messages import mentions
from planted import records, results, said
from quiz import kept

from bertzoo.conversion import huggingface
from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.finetuning.question_answering import noted_options, squad_notes
from bertzoo.heads import JointSpanExtraction, SpanExtraction
from bertzoo.runs import load_model
from bertzoo.tasks import squad
from bertzoo.tasks.squad_tasks import SquadOptions, score_2

JOINT = SquadOptions(joint=True, candidates=4, stride=8, max_question=4, threshold=0)


@pytest.fixture(scope="module")
def joint(quiz_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory with an untrained joint head and the options that training records."""
    made, base = tmp_path_factory.mktemp("joint") / "model", load_model.read_model(quiz_folder / "model")
    source = {"task": "squad2", "max_length": 24, **squad_notes(JOINT, True)}
    planted.write(made, base.model, JointSpanExtraction(beam=4), base.tokenizer, **source)
    return made


@pytest.mark.slow
def test_evaluate_repeats_the_scores_and_files_of_the_run(quiz_run: Path, capsys, tmp_path):
    found = results(quiz_run)
    best, other = found["seeds"][found["best"]], found["seeds"][1 - found["best"]]
    for option, row in (("--batch_size=5", best), (f"--seed={other['seed']}", other)):
        document = json.loads(said(capsys, "evaluate", quiz_run, option, f"--output={tmp_path / 'to'}", "--json")[0])
        assert document["scores"] == row["scores"] and document["examples"] == {"dev": 24}
        assert document["task"] == "squad1" and document["score"] == row["score"]
        history = next(entry for entry in row["history"] if entry["epoch"] == row["epoch"])
        assert document["loss"] == pytest.approx(history["loss"], rel=1e-5)
        assert not (tmp_path / "to" / "null_odds.json").exists()
        assert json.loads((tmp_path / "to/predictions.json").read_text()) == kept(quiz_run, row["seed"], "predictions")
        written = json.loads((tmp_path / "to/nbest_predictions.json").read_text())
        tables = (written, kept(quiz_run, row["seed"], "nbest_predictions"))
        ours, theirs = ({key: answers[0]["text"] for key, answers in table.items()} for table in tables)
        assert ours == theirs


@pytest.mark.slow
def test_a_split_is_a_named_file_or_the_heldout_part(quiz_run: Path, quiz_folder: Path):
    model = load_task_model(quiz_run)
    task = model.task()
    for split in ("train", "dev"):
        file = quiz_folder / f"{split}-v1.1.json"
        assert task.read(split, str(quiz_folder)).examples == squad.read_questions(file)
    one = quiz_folder / "train-v1.1.json"
    assert task.read("dev", str(one)).examples == squad.read_questions(one)
    held = replace(model, recipe=replace(model.recipe, squad=replace(model.recipe.squad, heldout=0.3)))
    parts = tuple(held.task().read(split, str(quiz_folder)).examples for split in ("train", "dev"))
    assert parts == squad.hold_out(squad.read_questions(one), 0.3)


def test_answers_are_those_that_were_scored_with_their_places(quiz_run: Path, quiz_folder: Path, capsys, tmp_path):
    file = quiz_folder / "dev-v1.1.json"
    found, questions = records(capsys, quiz_run, f"--input={file}"), squad.read_questions(file)
    wanted = kept(quiz_run, results(quiz_run)["best"], "predictions")
    assert {each["index"]: each["answer"] for each in found} == wanted
    assert [each["index"] for each in found] == [question.key for question in questions]
    for each, question in zip(found, questions, strict=True):
        assert each.keys() == {"index", "answer", "start", "end", "probability"}
        assert each["answer"] and question.context[each["start"] : each["end"]] == each["answer"]
        assert 0 < each["probability"] <= 1
    best = kept(quiz_run, results(quiz_run)["best"], "nbest_predictions")
    assert [each["probability"] for each in found] == pytest.approx(
        [best[question.key][0]["probability"] for question in questions], abs=1e-5
    )
    said(capsys, "predict", quiz_run, "--split=dev", f"--output={tmp_path / 'out.json'}")
    assert json.loads((tmp_path / "out.json").read_text()) == wanted


def test_neither_order_nor_batches_nor_lengths_change_an_answer(quiz_run: Path, quiz_folder: Path):
    model, questions = load_task_model(quiz_run), squad.read_questions(quiz_folder / "dev-v1.1.json")
    whole = [each.selected for each in model.predict(questions).values]
    order = np.random.default_rng(3).permutation(len(questions))
    other = replace(model, recipe=replace(model.recipe, buckets=3))
    answers = [each.selected for each in other.predict([questions[i] for i in order], 7).values]
    for one, index in zip(answers, order.tolist(), strict=True):
        two = whole[index]
        assert one is not None and two is not None and (one.text, one.at) == (two.text, two.at)
        assert one.probability == pytest.approx(two.probability, abs=1e-5)
    assert len({each.text for each in whole if each}) > 2


def test_questions_come_from_flags_words_lines_and_files(quiz_run: Path, capsys, tmp_path, monkeypatch):
    words, answer = [str(w) for w in np.random.default_rng(5).choice(quiz.OTHERS, 200)], quiz.ANSWERS[0]
    long = " ".join([*words[:150], answer, *words[150:]])
    pairs = [("dora doti?", f'lura "{quiz.ANSWERS[1]}" kera'), ("dora doti?", long), ("dora", "")]
    columns = [{"asked": question, "paragraph": context} for question, context in pairs]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in columns))
    table = [f"--input={tmp_path / 'in.jsonl'}", "--text_a=asked", "--text_b=paragraph"]
    out, err = said(capsys, "predict", quiz_run, *table, "--json")
    wanted = [json.loads(line) for line in out.splitlines()]
    assert mentions(err, "1 of 3 questions", "answer")
    assert wanted[0]["answer"] == quiz.ANSWERS[1] and wanted[2]["answer"] == ""
    # Far beyond the first window, whose place would be another.
    assert answer in wanted[1]["answer"] == long[wanted[1]["start"] : wanted[1]["end"]]
    assert wanted[2]["start"] is wanted[2]["end"] is wanted[2]["probability"] is None
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{question}\t{context}\n" for question, context in pairs)))
    assert records(capsys, quiz_run) == wanted
    assert records(capsys, quiz_run, *(text for pair in pairs for text in pair)) == wanted
    (one,) = records(capsys, quiz_run, *pairs[0])
    assert one == {**wanted[0], "probability": pytest.approx(wanted[0]["probability"], abs=1e-5)}
    said(capsys, "predict", quiz_run, *table, f"--output={tmp_path / 'out.tsv'}")
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert rows[0] == ["index", "answer", "start", "end", "probability"] and rows[3] == ["2", "", "-", "-", "-"]
    assert rows[2][:4] == ["1", wanted[1]["answer"], str(wanted[1]["start"]), str(wanted[1]["end"])]
    out, err = said(capsys, "predict", quiz_run, "bara " * 9, pairs[0][1])
    assert out.endswith("\tbara bara bara bara bara bara bara bara bara\n") and "%" in out
    assert mentions(err, "1 of 1", "cut", " 4 ")


def test_a_head_with_nulls_prints_null_odds(joint: Path, quiz_folder: Path, capsys, tmp_path):
    out, _ = said(capsys, "evaluate", joint, f"--data_dir={quiz_folder}", f"--output={tmp_path}", "--json")
    document, questions = json.loads(out), squad.load_squad(quiz_folder, "dev", "2.0")
    odds, predictions = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("null_odds", "predictions"))
    wanted = score_2(questions, predictions, odds, threshold=0)
    assert document["examples"] == {"dev": 24}
    assert all(document["scores"]["dev"][name] == wanted[name] for name in ("exact", "f1"))
    found = records(capsys, joint, f"--input={quiz_folder / 'dev-v2.0.json'}", "--batch_size=5")
    assert {each["index"]: each["null_odds"] for each in found} == pytest.approx(odds, abs=1e-5)
    assert all((each["answer"] == "") == (each["null_odds"] > 0) == (each["start"] is None) for each in found)
    model = load_task_model(joint)
    assert model.task_class.unnamed(model).task.nulls and model.recipe.squad == JOINT
    assert any(-2.75 < each["null_odds"] <= 0 for each in found) and any(each["null_odds"] > 0 for each in found)


@pytest.mark.parametrize("recorded", ["squad1", ""])
def test_the_task_of_predictions_says_whether_all_questions_have_an_answer(
    recorded, joint, quiz_folder, capsys, tmp_path
):
    made, base = tmp_path / "model", load_model.read_model(joint)
    planted.write(made, base.model, base.head, base.tokenizer, task=recorded, max_length=24, max_question=4, stride=8)
    file = f"--input={quiz_folder / 'dev-v2.0.json'}"
    for options, nulls in (([], False), (["--task=squad1"], False), (["--task=squad2"], True)):
        assert all(("null_odds" in each) == nulls for each in records(capsys, made, file, *options))


def test_a_hugging_face_directory_answers(quiz_run: Path, quiz_folder: Path, capsys, tmp_path):
    best = results(quiz_run)["best"]
    model = load_model.read_model(quiz_run)
    huggingface.write_huggingface(model, tmp_path)
    found = load_task_model(tmp_path)
    assert not found.task_class.unnamed(found).task.nulls and found.recipe.squad == SquadOptions()
    assert found.task_name == "" and found.max_length == 32
    assert mentions(said(capsys, "evaluate", tmp_path, code=2)[1], "squad1", "squad2", "--task")
    options = ["--task=squad1", f"--data_dir={quiz_folder}"]
    assert mentions(said(capsys, "evaluate", tmp_path, *options, code=2)[1], "max_length", "max_question")
    usual = replace(found, max_length=24, recipe=load_task_model(quiz_run).recipe)
    questions = squad.load_squad(quiz_folder, "dev", "1.1")
    assert {each.key: each.text for each in usual.predict(questions).values} == kept(quiz_run, best, "predictions")


def test_the_recorded_options_equal_the_used_ones():
    options = SquadOptions(stride=7, max_question=5, longest=3, candidates=2, threshold=-1.5)
    assert noted_options(squad_notes(options, True), SpanExtraction()) == (options, True)
    assert noted_options(squad_notes(SquadOptions(), False), SpanExtraction()) == (SquadOptions(), False)
    assert noted_options({}, JointSpanExtraction(beam=3)) == (SquadOptions(joint=True, candidates=3), False)
