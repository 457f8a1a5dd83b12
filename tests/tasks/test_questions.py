"""Custom questions: columns in every kind of table, given and located starts, and errors."""

import json

import pytest
from labelled import write
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.tasks import custom
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad import Answer


def test_columns_may_be_renamed_and_starts_are_located(tmp_path):
    write(tmp_path / "a.csv", "nr,q,c,a", '7,who?,"ada, then bob, then ada",ada', "8,when?,in 1843, 1843 ", "9,?,x,y")
    own = CustomFiles(kind="span", train="a.csv", question="q", context="c", answer="a", id="nr")
    found = custom.read_question_set(own, "train", tmp_path)
    assert [(q.key, q.text, q.answers) for q in found.examples] == [
        ("7", "who?", (Answer("ada", 0),)), ("8", "when?", (Answer("1843", 3),)), ("9", "?", (Answer("y", None),)),
    ]  # fmt: skip
    assert found.ambiguous == 1 and {q.article for q in found.examples} == {"ada, then bob, then ada", "in 1843", "x"}
    assert [q.impossible for q in found.examples] == [False] * 3


def test_given_starts_and_several_answers_are_read(tmp_path):
    record = {"question": "?", "context": "ada and ada", "answer": ["ada", "and"], "at": [8, 4]}
    write(tmp_path / "a.jsonl", json.dumps(record), json.dumps(record | {"answer": "ada", "at": 0}))
    found = custom.read_question_set(CustomFiles(kind="span", train="a.jsonl", start="at"), "train", tmp_path)
    first, second = found.examples
    assert first.answers == (Answer("ada", 8), Answer("and", 4)) and second.answers == (Answer("ada", 0),)
    assert found.ambiguous == 0 and [q.key for q in found.examples] == ["0", "1"]


def test_an_empty_answer_means_unanswerable(tmp_path):
    write(tmp_path / "a.tsv", "question\tcontext\tanswer", "who?\tada\t", "who?\tada\tada")
    own = CustomFiles(kind="span", train="a.tsv", test="t.tsv", unanswerable=True)
    assert [q.impossible for q in custom.read_question_set(own, "train", tmp_path).examples] == [True, False]
    assert custom.question_task(own).nulls and not custom.question_task(CustomFiles(kind="span")).nulls
    write(tmp_path / "t.tsv", "question\tcontext", "who?\tada")
    (asked,) = custom.read_question_set(CustomFiles(kind="span", test="t.tsv"), "test", tmp_path).examples
    assert asked.answers == ()


HEAD = "question,context,answer,start"
WRONG = {
    "who?,ada,,0": ("'answer'", "no answer"),
    ",ada,ada,0": ("'question'", "empty"),
    "who?,,ada,0": ("'context'", "empty"),
    "who?,ada,ada,1.5": ("'1.5'", "'start'", "character"),
    "who?,ada,ada,x": ("'x'", "'start'", "finite"),
    "who?,ada,ada": ("fewer columns",),
}


@pytest.mark.parametrize("line", WRONG)
def test_errors_name_file_and_line(tmp_path, line):
    write(tmp_path / "a.csv", HEAD, line)
    with pytest.raises(UserError, match=mentioning("a.csv", "line 2", *WRONG[line])):
        custom.read_question_set(CustomFiles(kind="span", train="a.csv", start="start"), "train", tmp_path)


def test_missing_columns_and_repeated_ids_raise(tmp_path):
    write(tmp_path / "a.csv", "question,context,answer", "?,ada,ada", "?,ada,ada")
    with pytest.raises(UserError, match=mentioning("'said'", "question, context, answer")):
        custom.read_question_set(CustomFiles(kind="span", train="a.csv", answer="said"), "train", tmp_path)
    with pytest.raises(UserError, match=mentioning("a.csv", "line 3", "line 2")):
        custom.read_question_set(CustomFiles(kind="span", train="a.csv", id="answer"), "train", tmp_path)
    record = {"question": "?", "context": "ada", "answer": ["ada"], "start": [0, 1]}
    write(tmp_path / "b.jsonl", json.dumps(record))
    with pytest.raises(UserError, match=mentioning("b.jsonl", "line 1", " 1 ", "'answer'", " 2 ", "'start'")):
        custom.read_question_set(CustomFiles(kind="span", train="b.jsonl", start="start"), "train", tmp_path)
