"""SQuAD's files: fields read, and errors that name file and question."""

import json
import time

import pytest
from asking import TOKENIZER, asked, published, question, write
from messages import mentioning, mentions

from bertzoo.core.errors import UserError
from bertzoo.tasks import squad, windows

NONE = {"id": "z", "question": "what is z?", "answers": [], "is_impossible": True}


def test_questions_come_in_order_with_their_paragraph(tmp_path):
    table = published("A cat. A dog.", asked("b", "cat", 2), asked("a", "dog", 9))
    table["data"].append({"title": "U", "paragraphs": [{"context": "x y", "qas": [asked("c", "y", 2)]}]})
    file = write(tmp_path / "train-v1.1.json", table)
    found = squad.load_squad(tmp_path, "train", "1.1")
    assert [(q.key, q.text, q.context, q.article) for q in found] == [
        ("b", "what is b?", "A cat. A dog.", "T"),
        ("a", "what is a?", "A cat. A dog.", "T"),
        ("c", "what is c?", "x y", "U"),
    ]
    assert [q.answers for q in found] == [(("cat", 2),), (("dog", 9),), (("y", 2),)]
    assert not any(q.impossible for q in found)
    assert found[2].location == f"{file} article 1 paragraph 0 question c"
    assert squad.load_squad(file, "dev", "1.1") == found == squad.read_questions(file)


def test_version_2_marks_questions_without_an_answer(tmp_path):
    file = write(tmp_path / "dev-v2.0.json", published("A cat.", asked("a", "cat", 2, is_impossible=False), NONE))
    assert [q.impossible for q in squad.load_squad(tmp_path, "dev", "2.0")] == [False, True]
    with pytest.raises(UserError, match=mentioning("question z", "1.1")):
        squad.load_squad(file, "dev", "1.1")
    answered = write(tmp_path / "train-v1.1.json", published("A cat.", asked("a", "cat", 2)))
    with pytest.raises(UserError, match=mentioning("train-v1.1.json", "2.0")):
        squad.load_squad(answered, "train", "2.0")
    assert len(squad.load_squad(answered, "train", "1.1")) == len(squad.read_questions(answered)) == 1
    unmarked = {name: value for name, value in NONE.items() if name != "is_impossible"}
    assert squad.read_questions(write(tmp_path / "a.json", published("A cat.", unmarked)))[0].impossible
    unknown = {name: value for name, value in unmarked.items() if name != "answers"}
    assert not squad.read_questions(write(tmp_path / "a.json", published("A cat.", unknown)))[0].impossible


def test_a_byte_order_mark_and_an_empty_question_are_read(tmp_path):
    file, table = tmp_path / "a.json", published("A cat.", asked("a", "cat", 2) | {"question": ""})
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(table).encode())
    assert squad.read_questions(file)[0].text == ""


def damaged(field, value, inside=None):
    given = asked("a", "cat", 2)
    (given if inside is None else given["answers"][0])[field] = value
    return published("A cat.", given)


BAD = {
    "{": ("JSON", "line 1"),
    "[]": ("object",),
    '{"data": 3}': ("data", "list"),
    "[" * 100_000: ("nested",),
    '{"data": [3]}': ("data.0", "object"),
    '{"data": []}': ("question",),
    '{"data": [{"paragraphs": [{"context": "x"}]}]}': ("data.0.paragraphs.0.qas",),
    '{"data": [{"paragraphs": [{"qas": [{"id": "a"}]}]}]}': ("data.0.paragraphs.0.context",),
    json.dumps(damaged("id", 3)): ("article 0", "paragraph 0", "question 0", "id is 3"),
    json.dumps(damaged("question", None)): ("paragraph 0", "question 0", "question is null"),
    json.dumps(damaged("question", "\ud800")): ("question a", "'question'", "surrogate"),
    json.dumps(damaged("answers", "cat")): ("question 0", "answers", "list"),
    json.dumps(damaged("answers", [3])): ("question 0", "answers.0"),
    json.dumps(damaged("answer_start", "2", "answers")): ("question 0", "answers.0.answer_start", "'2'"),
    json.dumps(damaged("answer_start", True, "answers")): ("question 0", "answers.0.answer_start", "true"),
    json.dumps(damaged("is_impossible", 1)): ("question 0", "is_impossible", "1"),
    json.dumps(damaged("is_impossible", True)): ("question a", "is_impossible", "'cat'"),
    json.dumps(published("A cat.", asked("a", "cat", 2), asked("a", "A", 0))): ("question a", " id "),
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_errors_name_damaged_files(tmp_path, text):
    with pytest.raises(UserError) as error:
        squad.read_questions(write(tmp_path / "a.json", text))
    assert mentions(str(error.value), tmp_path / "a.json", *BAD[text]) and "\n" not in str(error.value)


def test_errors_name_missing_parts(tmp_path):
    with pytest.raises(UserError, match=mentioning("dev-v2.0.json")):
        squad.load_squad(tmp_path, "dev", "2.0")
    with pytest.raises(UserError, match=mentioning("gs:/a/b", "URL")):
        squad.load_squad("gs:/a/b", "dev", "2.0")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(UserError, match=mentioning("b.json", "UTF-8")):
        squad.read_questions(tmp_path / "b.json")
    with pytest.raises(UserError, match=mentioning("c.json")):
        squad.read_questions(tmp_path / "c.json")
    for name in ("validation-0.parquet", "validation-1.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=mentioning(tmp_path, "2 files", "validation*.parquet")):
        squad.load_squad(tmp_path, "dev", "2.0")


def test_whole_articles_are_held_out():
    questions = [question("x", key=str(i))._replace(article=f"article {i % 20}") for i in range(100)]
    kept, held = squad.hold_out(questions, 0.3)
    assert [q.key for q in questions if q in held] == [q.key for q in held] and 10 <= len(held) <= 50
    assert not {q.article for q in kept} & {q.article for q in held} and len(kept) + len(held) == 100
    assert squad.hold_out(kept + held, 0.3)[1] == held
    with pytest.raises(UserError, match=mentioning("0.0", 20)):
        squad.hold_out(questions, 0.0)


def test_a_paragraph_of_100000_characters_takes_no_time(tmp_path):
    context = "born in japan (1895). " * 5000
    file = write(
        tmp_path / "a.json", published(context, asked("a", "1895", context.rindex("1895")), asked("b", context[:-1], 0))
    )
    began = time.monotonic()
    made = windows.make_windows(squad.read_questions(file), TOKENIZER, windows.Windowing(), labels=True)
    assert time.monotonic() - began < 10
    assert len(made.windows) > 400 and any(window.start for window in made.windows if window.question == 0)
    word = write(tmp_path / "b.json", published("x" * 100_000, asked("a", "x" * 100_000, 0)))
    made = windows.make_windows(squad.read_questions(word), TOKENIZER, windows.Windowing(), labels=True)
    assert made.text(0, made.windows[0].start, made.windows[0].end) == "x" * 100_000
