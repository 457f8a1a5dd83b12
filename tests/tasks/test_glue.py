"""GLUE's files: every task's columns and labels, quirks of the TSVs, and errors with file and line."""

import pytest
from labelled import COLUMNS, FOLDERS, LABELS, PAIR, STSB, write, write_split
from messages import mentioning, mentions

from bertzoo.core.errors import UserError
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import double_unordered


def test_there_are_nine_tasks_and_the_diagnostic_set():
    assert list(GLUE) == list(FOLDERS)
    assert GLUE["ax"].train == GLUE["ax"].dev == () and GLUE["ax"].labels == GLUE["mnli"].labels
    assert GLUE["mnli"].dev == ("dev_matched", "dev_mismatched") and GLUE["mnli"].test[1] == "test_mismatched"
    assert [name for name, task in GLUE.items() if task.symmetric] == ["mrpc", "stsb"]
    assert [name for name, task in GLUE.items() if not task.pair] == ["cola", "sst2"]
    metrics = {name: task.metrics for name, task in GLUE.items()}
    assert metrics["cola"] == metrics["ax"] == ("matthews",) and metrics["stsb"] == ("pearson", "spearman")
    assert metrics["mrpc"] == metrics["qqp"] == ("accuracy", "f1")
    assert {metrics[name] for name in ("sst2", "mnli", "qnli", "rte", "wnli")} == {("accuracy",)}


@pytest.mark.parametrize("name", ["mnli", "ax"])
def test_integer_labels_of_the_hub_have_the_hubs_order(name):
    """Hugging Face's glue/mnli counts 0 entailment, 1 neutral, 2 contradiction; BERT's logits have another order."""
    hub = ("entailment", "neutral", "contradiction")
    assert tuple(GLUE[name].aliases.items()) == tuple(zip(hub, hub, strict=True))
    assert GLUE[name].labels == ("contradiction", "entailment", "neutral")


@pytest.mark.parametrize("name", FOLDERS)
def test_every_split_has_its_columns(tmp_path, name):
    task = GLUE[name]
    for split in (*task.train, *task.dev):
        rows = write_split(name, split, tmp_path)
        (a, b, label), read = COLUMNS[name][0], task.read(split, tmp_path)
        assert read.skipped == {} and [e.key for e in read.examples] == ["0", "1", "2"]
        for example, row in zip(read.examples, rows, strict=True):
            assert (example.text_a, example.text_b) == (row[a], None if b is None else row[b])
            expected = LABELS[name].index(row[label]) if LABELS[name] else float(row[label])
            assert example.label == expected and type(example.label) is type(expected)
    for split in task.test:
        rows = write_split(name, split, tmp_path)
        (a, b), examples = COLUMNS[name][1], task.read(split, tmp_path).examples
        found = [(e.key, e.text_a, e.text_b, e.label) for e in examples]
        assert found == [(row[0], row[a], None if b is None else row[b], None) for row in rows]


def test_a_directory_is_known_by_its_other_names_and_by_itself(tmp_path):
    write_split("sst2", "train", tmp_path)
    assert len(GLUE["sst2"].read("train", tmp_path / "SST-2").examples) == 3
    (tmp_path / "SST-2").rename(tmp_path / "sst")
    assert len(GLUE["sst2"].read("train", str(tmp_path)).examples) == 3
    write(tmp_path / "mnli" / "diagnostic.tsv", "index\tsentence1\tsentence2", "7\ta\tb")
    assert GLUE["ax"].read("test", tmp_path).examples[0].key == "7"


def test_quotation_marks_and_line_ends_are_kept(tmp_path):
    long = 'x" ' * 40_000
    write(
        tmp_path / "MRPC" / "train.tsv",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r",
        '1\t7\t8\t" He said\t"no" and " left .\r',
        f"0\t7\t8\t{long}\tnaïve\u2028 \x0b\x85 text\r",
        "1\t7\t8\t\t\r",
    )
    first, second, third = GLUE["mrpc"].read("train", tmp_path).examples
    assert (first.text_a, first.text_b, first.label) == ('" He said', '"no" and " left .', 1)
    assert second.text_a == long and second.text_b == "naïve\u2028 \x0b\x85 text"
    assert (third.text_a, third.text_b) == ("", "")


def test_malformed_rows_are_skipped_and_counted_and_keep_their_number(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    rows = ["0\t1\t2\ta\tb\t1", "1\t1\t2\tbroken", "", "3\t1\t2\ta\tsplit\there\t1", "4\t1\t2\tc\td\t0"]
    write(tmp_path / "QQP" / "dev.tsv", header, *rows)
    read = GLUE["qqp"].read("dev", tmp_path)
    assert [(e.key, e.text_a) for e in read.examples] == [("0", "a"), ("4", "c")]
    assert read.skipped == {"fewer columns than the header": 2, "more columns than the header": 1}
    write(tmp_path / "QQP" / "test.tsv", "id\tquestion1\tquestion2", "0\ta\tb", "1\tbroken")
    with pytest.raises(UserError, match=mentioning("test.tsv", "line 3")):
        GLUE["qqp"].read("test", tmp_path)


NAN = f"{STSB}\tscore", "0" + 8 * "\tx"


@pytest.mark.parametrize(
    ("name", "lines", "parts"),
    [
        ("sst2", ["text\tlabel", "a\t1"], ("'sentence'", "text, label")),
        ("sst2", ["sentence\tlabel", "a\tpos"], ("line 2", "'pos'", "'label'", "0, 1")),
        ("sst2", ["sentence\tlabel", "a\t1", "b\t"], ("line 3", "'label'")),
        ("sst2", ["sentence\tlabel"], ("example",)),
        ("sst2", ["sentence\tlabel\tlabel", "a\t1\t1"], ("'label'", "twice")),
        ("cola", ["a\t2\t\tb"], ("line 1", "'2'", "'1'", "0, 1")),
        ("cola", ["sentence\tlabel", "a\t1"], ("line 1", "2 columns", "4 columns")),
        ("cola", ["x\t1\t\t\0"], ("line 1", "NUL")),
        ("rte", [f"{PAIR}\tlabel", "0\ta\tb\tneutral"], ("line 2", "'neutral'", "entailment, not_entailment")),
        ("stsb", [NAN[0], NAN[1] + "\tnan"], ("line 2", "'nan'", "'score'", "finite")),
        ("stsb", [NAN[0], NAN[1] + "\tx"], ("line 2", "'x'", "'score'")),
        ("stsb", [NAN[0], NAN[1] + "\t5.1"], ("line 2", 5.1, "'score'", "0 to 5")),
    ],
)
def test_errors_name_the_line(tmp_path, name, lines, parts):
    path = write(tmp_path / FOLDERS[name] / "train.tsv", *lines)
    with pytest.raises(UserError) as caught:
        GLUE[name].read("train", tmp_path)
    assert mentions(str(caught.value), path, *parts) and "\n" not in str(caught.value)


def test_text_that_is_not_utf8_raises(tmp_path):
    write(tmp_path / "CoLA" / "train.tsv").write_bytes(b"a\t1\t\tgood\nb\t0\t\tna\xefve\n")
    with pytest.raises(UserError, match=mentioning("train.tsv", "line 2", "UTF-8")):
        GLUE["cola"].read("train", tmp_path)
    write(tmp_path / "CoLA" / "train.tsv").write_bytes(b"")
    with pytest.raises(UserError, match=mentioning("train.tsv")):
        GLUE["cola"].read("train", tmp_path)


def test_the_error_of_a_missing_file_names_its_place(tmp_path):
    wanted = ("CoLA/dev.tsv", "4 columns", "cola/validation-00000-of-00001.parquet")
    with pytest.raises(UserError, match=mentioning(tmp_path, "dev", *wanted)):
        GLUE["cola"].read("dev", tmp_path)
    with pytest.raises(UserError, match=mentioning(tmp_path / "nowhere", "QQP/test.tsv", "id", "question1, question2")):
        GLUE["qqp"].read("test", tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=mentioning("mnli", "'dev'", "train, dev_matched, dev_mismatched, test_matched")
    ):
        GLUE["mnli"].read("dev", tmp_path)
    with pytest.raises(UserError, match=mentioning("gs:/", "bucket/glue", "URL")):
        GLUE["cola"].read("dev", "gs://bucket/glue")


def test_two_sources_in_one_place_raise(tmp_path):
    write_split("rte", "train", tmp_path)
    (tmp_path / "RTE" / "train-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=mentioning("RTE", "train.tsv", "train-00000-of-00001.parquet")):
        GLUE["rte"].read("train", tmp_path)


def test_pairs_are_doubled_the_other_way_round(tmp_path):
    rows = write_split("mrpc", "train", tmp_path)
    examples = double_unordered(GLUE["mrpc"].read("train", tmp_path).examples)
    assert [e.key for e in examples] == ["0", "1", "2", "3", "4", "5"]
    assert [(e.text_a, e.text_b) for e in examples[3:]] == [(row[4], row[3]) for row in rows]
    assert [e.label for e in examples[3:]] == [e.label for e in examples[:3]] == [0, 1, 0]
