"""Custom files: every kind of file and task, collected labels, located answers, and errors with their line."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from labelled import write
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.tasks import custom, readers
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad import Answer

CSV = ["id,text,label", '1,"a ""quoted"", text",yes', '2,"two', 'lines",no', "", "3,c,yes"]


def test_csv_has_quotation_and_lines_inside_it(tmp_path):
    write(tmp_path / "train.csv", *CSV)
    task = CustomFiles(train="train.csv").task(tmp_path)
    assert (task.kind, task.labels, task.metrics, task.pair) == ("classification", ("no", "yes"), ("accuracy",), False)
    assert (task.train, task.dev, task.test) == (("train",), (), ())
    found = [(e.key, e.text_a, e.text_b, e.label) for e in task.read("train", tmp_path).examples]
    assert found == [("0", 'a "quoted", text', None, 1), ("1", "two\nlines", None, 0), ("2", "c", None, 1)]


@pytest.mark.parametrize("dev", ["dev.csv", "validation.csv", "dev.jsonl"])
def test_files_with_usual_names_need_no_options(tmp_path, dev):
    names = {"train": "train.tsv", "dev": dev, "test": "test.parquet"}
    for name in (*names.values(), "train.txt", "devel.csv"):
        write(tmp_path / name, "text\tlabel", "a\tx", "b\ty")
    (tmp_path / "train.csv").mkdir()
    own = CustomFiles(text_a="text", kind="regression").with_usual_files(str(tmp_path))
    assert own == CustomFiles(text_a="text", kind="regression", **names)
    named = CustomFiles(train="mine.csv")
    assert named.with_usual_files(str(tmp_path)) is named and CustomFiles().with_usual_files("") == CustomFiles()


def test_two_usual_files_for_one_split_raise(tmp_path):
    for first, second in (("train.csv", "train.tsv"), ("dev.jsonl", "validation.csv")):
        folder = tmp_path / first
        folder.mkdir()
        for name in (first, second):
            write(folder / name, "text,label", "a,x", "b,y")
        with pytest.raises(UserError, match=mentioning(first, second, f"split {first.split('.')[0]}")):
            CustomFiles().with_usual_files(str(folder))
    write(tmp_path / "test.jsonl", '{"text": "a"}')  # has no header to leave out
    assert CustomFiles(header=False).with_usual_files(str(tmp_path)).test == ""


def test_a_cell_of_csv_may_be_long_and_other_readers_keep_their_limit(tmp_path):
    before = csv.field_size_limit()
    write(tmp_path / "a.csv", "text,label", "x" * (before + 1) + ",1", "b,0")
    first, _ = CustomFiles(train="a.csv").task(tmp_path).read("train", tmp_path).examples
    assert len(first.text_a) == before + 1 and csv.field_size_limit() == before


def test_pairs_numbers_and_other_names_of_columns(tmp_path):
    write(tmp_path / "a.tsv", "x\ty\tz", '"a\tb"\t0.5', "c\td\t-1e3")
    own = CustomFiles(kind="regression", train="a.tsv", text_a="x", text_b="y", label="z", metrics=("spearman", "mse"))
    task = own.task(tmp_path)
    assert task.pair and task.labels == () and task.metrics == ("spearman", "mse")
    assert [e[1:4] for e in task.read("train", tmp_path).examples] == [('"a', 'b"', 0.5), ("c", "d", -1000.0)]


def test_in_a_single_column_an_empty_line_is_an_empty_cell(tmp_path):
    (tmp_path / "one.csv").write_text("text\n\nbara\n\n")
    (tmp_path / "two.csv").write_text("\ntext,label\n\nbara,1\n")
    for name, expected in (("one.csv", [(2, [""]), (3, ["bara"]), (4, [""])]), ("two.csv", [(4, ["bara"])])):
        rows = readers.read_table(tmp_path / name).valid_rows(["text"])
        assert [*rows] == [(f"{tmp_path / name} line {number}", cells) for number, cells in expected]


def test_columns_without_a_header_have_numbers(tmp_path):
    write(tmp_path / "a.tsv", "1\tone", "10\tten", "9\tnine")
    own = CustomFiles(train="a.tsv", header=False, text_a="1", label="0")
    task = own.task(tmp_path)
    assert task.labels == ("1", "9", "10")
    assert [(e.text_a, e.label) for e in task.read("train", tmp_path).examples] == [("one", 0), ("ten", 2), ("nine", 1)]


def test_jsonl_labels_are_text_integers_or_truth(tmp_path):
    records = [{"text": "x" * 100_000, "label": True}, {"text": "b", "label": "true"}, {"text": "c", "label": 3}]
    write(tmp_path / "a.jsonl", *map(json.dumps, records))
    task = CustomFiles(train="a.jsonl", labels=("3", "true")).task(tmp_path)
    examples = task.read("train", tmp_path).examples
    assert [e.label for e in examples] == [1, 1, 0] and len(examples[0].text_a) == 100_000


def test_a_test_file_may_lack_labels(tmp_path):
    write(tmp_path / "train.jsonl", '{"text": "a", "label": "x"}', '{"text": "a", "label": "y"}')
    write(tmp_path / "test.csv", "text", "a", "b")
    own = CustomFiles(train="train.jsonl", dev="test.csv", test="test.csv")
    task = own.task(tmp_path)
    assert [e.label for e in task.read("test", tmp_path).examples] == [None, None]
    with pytest.raises(UserError, match=mentioning("test.csv", "'label'")):
        task.read("dev", tmp_path)
    write(tmp_path / "test.csv", "text,label", "a,y", "b,")
    assert [e.label for e in task.read("test", tmp_path).examples] == [1, None]
    with pytest.raises(UserError, match=mentioning("test.csv", "line 3", "'label'")):
        task.read("dev", tmp_path)


@pytest.mark.parametrize(
    ("kind", "train", "test", "expected"),
    [
        ("classification", ["-1", "0", "1"], [1, -1, 0], [2, 0, 1]),
        ("classification", ["0", "1"], [1, -1, 0], [1, None, 0]),
        ("regression", ["0.5", "-1"], [0.5, -1, -0.25], [0.5, -1, -0.25]),
        ("regression", ["0.5", "3"], [-1, -1.0, -1], [None, None, None]),
        ("regression", ["0.5", "3"], [-1, None], [None, None]),
    ],
)
def test_minus_one_hides_a_label_unless_it_is_one(tmp_path, kind, train, test, expected):
    write(tmp_path / "train.csv", "text,label", *(f"a,{label}" for label in train))
    write(tmp_path / "test.jsonl", *(json.dumps({"text": "a", "label": label}) for label in test))
    task = CustomFiles(kind=kind, train="train.csv", test="test.jsonl").task(tmp_path)
    assert [e.label for e in task.read("test", tmp_path).examples] == expected


def test_lists_from_python_are_taken(tmp_path):
    write(tmp_path / "train.csv", "text,label", "a,x", "b,y")
    lists: Any = {"metrics": ["accuracy"], "negatives": []}
    assert CustomFiles(train="train.csv", **lists).task(tmp_path).labels == ("x", "y")


def test_a_no_break_space_separates_no_columns(tmp_path):
    write(tmp_path / "a.conll", "10\u00a0000 O", "EU  B-ORG")
    task = CustomFiles(kind="tokens", train="a.conll", text_a="0", label="1").task(tmp_path)
    assert task.read("train", tmp_path).examples[0].words == ("10\u00a0000", "EU")


CONLL = ["-DOCSTART- -X- O", "", "EU NNP B-ORG", "rejects VBZ O", "", "", "# NN O", "Peter NNP B-PER"]
WORDS = [("EU", "rejects"), ("#", "Peter")]
TAGS = [("B-ORG", "O"), ("O", "B-PER")]


@pytest.mark.parametrize("suffix", ["conll", "tabs.conll", "jsonl", "tsv"])
def test_words_and_their_tags(tmp_path, suffix):
    lines = {
        "conll": CONLL,
        "tabs.conll": [line.replace(" ", "\t") for line in CONLL],
        "jsonl": [json.dumps({"0": words, "-1": tags}) for words, tags in zip(WORDS, TAGS, strict=True)],
        "tsv": ["-1\t0", *(" ".join(tags) + "\t" + " ".join(words) for words, tags in zip(WORDS, TAGS, strict=True))],
    }[suffix]
    write(tmp_path / f"a.{suffix}", *lines)
    task = CustomFiles(kind="tokens", train=f"a.{suffix}", text_a="0", label="-1").task(tmp_path)
    assert task.labels == ("B-ORG", "B-PER", "O") and task.metrics == ("entity_f1",)
    examples = task.read("train", tmp_path).examples
    assert [e.words for e in examples] == WORDS and examples[0].text_a == "EU rejects"
    assert [tuple(task.labels[tag] for tag in e.label) for e in examples] == TAGS


def test_words_without_tags_are_read_for_prediction(tmp_path):
    write(tmp_path / "a.conll", "EU B-ORG", "said O")
    write(tmp_path / "b.jsonl", '{"0": ["EU", "New York"]}')
    task = CustomFiles(kind="tokens", train="a.conll", test="b.jsonl", text_a="0", label="1").task(tmp_path)
    (example,) = task.read("test", tmp_path).examples
    assert example.words == ("EU", "New York") and example.label is None


LISTED = CustomFiles(kind="multi_label", train="a.csv", test="a.csv", separator=";")
FLAGS = CustomFiles(kind="multi_label", train="a.csv", test="a.csv", labels=("rude", "threat"))


def test_any_number_of_labels_in_one_column(tmp_path):
    write(tmp_path / "a.csv", "text,label", "a,y; x", "b,", "c,x;x;", "d,z")
    task = LISTED.task(tmp_path)
    assert (task.labels, task.metrics) == (("x", "y", "z"), ("f1_micro", "f1_macro", "exact_match"))
    expected = [(1, 1, 0), (0, 0, 0), (1, 0, 0), (0, 0, 1)]
    assert [e.label for e in task.read("train", tmp_path).examples] == expected
    assert [e.label for e in task.read("test", tmp_path).examples] == expected
    lines = [{"text": "a", "label": ["y", "x"]}, {"text": "b", "label": []}, {"text": "c", "label": None}]
    write(tmp_path / "b.jsonl", *map(json.dumps, lines))
    later = replace(LISTED, test="b.jsonl", labels=("x", "y")).task(tmp_path)
    assert [e.label for e in later.read("test", tmp_path).examples] == [(1, 1), (0, 0), None]


def test_columns_of_0_and_1(tmp_path):
    write(tmp_path / "a.csv", "id,threat,text,rude", "1,0,a,1", "2,0.0,b,False", "3,1.0,c,true", "4,,d,")
    examples = FLAGS.task(tmp_path).read("test", tmp_path).examples
    assert [e.label for e in examples] == [(1, 0), (0, 0), (1, 1), None]
    write(tmp_path / "a.csv", "text", "a")
    assert FLAGS.task(tmp_path).read("test", tmp_path).examples[0].label is None


TABLE = CustomFiles(train="a.csv", labels=("x", "y"))
LINES, SHEET = replace(TABLE, train="a.jsonl"), replace(TABLE, train="a.xlsx")
WORD_LINES = CustomFiles(kind="tokens", train="a.jsonl", labels=("O", "B-X"))
CONLL_WORDS = replace(WORD_LINES, train="a.conll", text_a="0", label="1")
NUMBERS = CustomFiles(kind="regression", train="a.jsonl")
QUESTIONS = CustomFiles(kind="span", train="a.csv", start="start")
COLUMNS = "question,context,answer,start"
NOT_NUMBERS = [("NaN", "nan"), ("Infinity", "inf"), ("true", "True"), ('"x"', "'x'")]
TOO_GREAT = [("1e39", "1e+39"), ('"-4e38"', "'-4e38'"), ("7" * 400, "7" * 100)]


@pytest.mark.parametrize(
    ("own", "lines", "parts"),
    [
        (TABLE, ["text,label", "a,x,b"], ("line 2", "more columns")),
        (TABLE, ["text,label", 'a,"x'], ("line 2", "CSV")),
        (TABLE, ["text,label", "a,x", " ,y"], ("line 3", "'text'", "empty")),
        (TABLE, ["body,label", "a,x"], ("'text'", "body, label")),
        (LINES, ['{"text": "a", "label": "x"}', "{"], ("line 2", "JSON")),
        (LINES, ['{"text": "a", "label": ' + "7" * 5000 + "}"], ("line 1", "digits")),
        (LINES, ["[" * 100_000], ("line 1", "nested")),
        (LINES, ["[1]"], ("line 1", "object")),
        (LINES, ['{"text": 5, "label": "x"}'], ("line 1", "'text'", "5")),
        (LINES, ['{"text": "\\ud800", "label": "x"}'], ("line 1", "'text'", "surrogate")),
        (LINES, ['{"text": "a", "label": "x"}', '{"text": "a"}'], ("line 2", "'label'")),
        (LINES, ['{"text": "a", "label": "z"}'], ("line 1", "'z'", "'label'", "x, y")),
        (LINES, ['{"text": "a", "label": 1.5}'], ("line 1", 1.5, "'label'")),
        (LINES, [""], ("empty",)),
        (SHEET, ["text"], (".tsv", ".csv", ".jsonl", ".parquet")),
        (FLAGS, ["text,rude,threat", "a,1,2"], ("line 2", "'2'", "'threat'", "0 or 1")),
        (FLAGS, ["text,rude,threat", "a,1,"], ("line 2", "'threat'")),
        (FLAGS, ["text,rude", "a,1"], ("'threat'", "text, rude")),
        (FLAGS, ["text,rude,threat", "a,1,0"], ("'threat'", "own.labels")),
        (LISTED, ["text,label", "a,", "b,"], ("'label'",)),
        (LISTED, ["text,label", "a,x;x"], ("'x'", "'label'")),
        (replace(LISTED, labels=("x", "y")), ["text,label", "a,x;z"], ("line 2", "'z'", "x, y")),
        (replace(LISTED, train="a.jsonl"), ['{"text": "a", "label": 5}'], ("line 1", "5", "'label'")),
        (WORD_LINES, ['{"text": ["a", "b"], "label": ["O"]}'], ("line 1", "2 words", "'text'", "1 label", "'label'")),
        (WORD_LINES, ['{"text": [], "label": []}'], ("line 1", "'text'")),
        (CONLL_WORDS, ["a B", "b", "", "c B"], ("line 2", 1, 2)),
        (CustomFiles(train="a.csv"), ["text,label", "a,x", "b,x"], ("'x'", "'label'")),
        (CustomFiles(train="a.csv"), ["text,label"], ("example",)),
        (QUESTIONS, [COLUMNS, "who?,ada,,0"], ("line 2", "'answer'", "no answer")),
        (QUESTIONS, [COLUMNS, ",ada,ada,0"], ("line 2", "'question'", "empty")),
        (QUESTIONS, [COLUMNS, "who?,,ada,0"], ("line 2", "'context'", "empty")),
        (QUESTIONS, [COLUMNS, "who?,ada,ada,1.5"], ("line 2", "'1.5'", "'start'", "character")),
        (QUESTIONS, [COLUMNS, "who?,ada,ada,x"], ("line 2", "'x'", "'start'", "finite")),
        (QUESTIONS, [COLUMNS, "who?,ada,ada"], ("line 2", "fewer columns")),
        (replace(QUESTIONS, answer="said"), [COLUMNS, "?,ada,ada,0"], ("'said'", "question, context, answer")),
        (replace(QUESTIONS, id="answer"), [COLUMNS, "?,ada,ada,0", "?,ada,ada,0"], ("line 3", "line 2")),
        (
            replace(QUESTIONS, train="a.jsonl"),
            ['{"question": "?", "context": "ada", "answer": ["ada"], "start": [0, 1]}'],
            ("line 1", " 1 ", "'answer'", " 2 ", "'start'"),
        ),
        *(
            (NUMBERS, [f'{{"text": "a", "label": {value}}}'], ("line 1", shown, "'label'", "finite"))
            for value, shown in NOT_NUMBERS + TOO_GREAT
        ),
    ],
)
def test_errors_name_file_and_line(tmp_path, own, lines, parts):
    path = write(tmp_path / own.train, *lines)
    with pytest.raises(UserError) as caught:
        if own.kind == "span":
            custom.read_question_set(own, "train", tmp_path)
        else:
            own.task(tmp_path).read("train", tmp_path)
    assert mentions(str(caught.value), path, *parts) and "\n" not in str(caught.value)


def test_labels_must_exist_and_fit_the_metric(tmp_path):
    write(tmp_path / "a.csv", "text,label", "a,x", "b,x")
    with pytest.raises(ConfigError, match=mentioning("f1", 3)):
        CustomFiles(train="a.csv", labels=("x", "y", "z"), metrics=("f1",)).task(tmp_path)
    with pytest.raises(ConfigError, match=mentioning("kind", "'span'")):
        CustomFiles(kind="span", train="a.csv").task("here")
    with pytest.raises(UserError, match=mentioning("dev", "train")):
        CustomFiles(train="a.csv", labels=("x", "y")).task(tmp_path).read("dev", tmp_path)
    for _ in range(2):  # a missing file, and a directory in its place
        with pytest.raises(UserError, match=mentioning("b.csv")):
            CustomFiles(train="b.csv").task(tmp_path)
        (tmp_path / "b.csv").mkdir(exist_ok=True)


def test_a_label_of_any_number_of_digits_is_one(tmp_path):
    long = "7" * 5000
    write(tmp_path / "a.csv", "text,label", f"a,{long}", "b,10", "c,9")
    assert CustomFiles(train="a.csv").task(tmp_path).labels == ("9", "10", long)


def test_a_column_of_json_lines_may_begin_in_a_later_row(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"text": "a", "pair": "b"}\n{"text": "c", "pair": "d", "label": 0.5}\n')
    files = CustomFiles(kind="texts", text_b="pair", train="x.jsonl")
    with pytest.raises(UserError, match=mentioning("x.jsonl line 1", "label")):
        files.read("train", tmp_path)


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
