"""Tasks from Hugging Face's Parquet files, which need pyarrow."""

import json

import pytest
from comparing import needs
from messages import mentioning

needs("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from labelled import FOLDERS, LABELS

from bertzoo.core.errors import UserError
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.glue import GLUE

# GLUE at Hugging Face (nyu-mll/glue): the text columns, and the names of its integer labels.
HUB = {
    "cola": (("sentence",), ("unacceptable", "acceptable")),
    "sst2": (("sentence",), ("negative", "positive")),
    "mrpc": (("sentence1", "sentence2"), ("not_equivalent", "equivalent")),
    "stsb": (("sentence1", "sentence2"), None),
    "qqp": (("question1", "question2"), ("not_duplicate", "duplicate")),
    "mnli": (("premise", "hypothesis"), ("entailment", "neutral", "contradiction")),
    "qnli": (("question", "sentence"), ("entailment", "not_entailment")),
    "rte": (("sentence1", "sentence2"), ("entailment", "not_entailment")),
    "wnli": (("sentence1", "sentence2"), ("not_entailment", "entailment")),
    "ax": (("premise", "hypothesis"), ("entailment", "neutral", "contradiction")),
}
# The labels of GLUE's own files and of the leaderboard for each of those names.
SPELT = {
    **dict.fromkeys(("unacceptable", "negative", "not_equivalent", "not_duplicate"), "0"),
    **dict.fromkeys(("acceptable", "positive", "equivalent", "duplicate"), "1"),
}
WNLI = {"not_entailment": "0", "entailment": "1"}


def spelt(name, label):
    """The label of a task in GLUE's own files, by the integer of Hugging Face's."""
    word = HUB[name][1][label]
    return WNLI[word] if name == "wnli" else SPELT.get(word, word)


def table(name, labels, names=None, start=0):
    """A table as Hugging Face has it, with label names if given."""
    columns = {column: [f"{column} {i}" for i in range(len(labels))] for column in HUB[name][0]}
    columns |= {"label": labels, "idx": list(range(start, start + len(labels)))}
    made = pa.table(columns)
    features = {"label": {"names": list(names), "_type": "ClassLabel"}} if names else {}
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


@pytest.mark.parametrize("name", FOLDERS)
def test_parquet_of_every_task(tmp_path, name):
    """Labels are matched by name: MNLI's integers have another order there than logits have here."""
    task = GLUE[name]
    (tmp_path / name).mkdir()
    labels = [0.0, 2.5, 5.0] if name == "stsb" else [*range(len(HUB[name][1])), 0]
    for split in (*task.train, *task.dev):
        file = split.replace("dev", "validation")
        pq.write_table(table(name, labels), tmp_path / name / f"{file}-00000-of-00002.parquet")
        pq.write_table(table(name, labels[::-1], start=9), tmp_path / name / f"{file}-00001-of-00002.parquet")
        examples = task.read(split, tmp_path).examples
        said = labels + labels[::-1]
        expected = said if name == "stsb" else [LABELS[name].index(spelt(name, label)) for label in said]
        assert [e.label for e in examples] == expected
        assert [e.key for e in examples] == [*map(str, range(len(labels))), *map(str, range(9, 9 + len(labels)))]
        assert [(e.text_a, e.text_b) for e in examples[:1]] == [
            (f"{HUB[name][0][0]} 0", (f"{HUB[name][0][-1]} 0" if task.pair else None))
        ]
    for split in task.test:
        pq.write_table(table(name, [-1, -1]), tmp_path / name / f"{split}-00000-of-00001.parquet")
        assert [(e.key, e.label) for e in task.read(split, tmp_path).examples] == [("0", None), ("1", None)]


def test_a_table_that_names_its_integers_is_believed(tmp_path):
    names = ("neutral", "contradiction", "entailment")
    pq.write_table(table("mnli", [0, 1, 2], names), tmp_path / "train.parquet")
    assert [e.label for e in GLUE["mnli"].read("train", tmp_path).examples] == [2, 0, 1]
    pq.write_table(table("mnli", [0, 1, 2], ("entailment", "maybe", "no")), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=mentioning("train.parquet", "row 2", "'maybe'", "'label'")):
        GLUE["mnli"].read("train", tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"label": [1, -1]}, ("row 2", "'label'")),
        ({"label": [1, 7]}, ("row 2", 7, "'label'", "unacceptable, acceptable")),
        ({"label": [1, None]}, ("row 2", "'label'")),
        ({"sentence": ["a", None]}, ("row 2", "'sentence'")),
        ({"sentence": [7531, 2]}, ("row 1", "'sentence'", 7531)),
        ({"sentence": None}, ("'sentence'", "label, idx")),
    ],
)
def test_bad_parquet_raises_with_its_row(tmp_path, changes, named):
    columns = {**table("cola", [0, 1]).to_pydict(), **changes}
    pq.write_table(pa.table({k: v for k, v in columns.items() if v is not None}), tmp_path / "train.parquet")
    with pytest.raises(UserError, match=mentioning(tmp_path / "train.parquet", *named)):
        GLUE["cola"].read("train", tmp_path)


def test_damaged_parquet_raises(tmp_path):
    pq.write_table(table("cola", [0, 1]), tmp_path / "train.parquet")
    whole = (tmp_path / "train.parquet").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:10] + bytes(60) + whole[70:]):
        (tmp_path / "train.parquet").write_bytes(damaged)
        with pytest.raises(UserError, match=mentioning(tmp_path / "train.parquet", "Parquet")):
            GLUE["cola"].read("train", tmp_path)


def test_own_parquet_has_text_and_lists_of_words(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"], "label": [1, 0]}), tmp_path / "a.parquet")
    task = CustomFiles(train="a.parquet").task(tmp_path)
    assert task.labels == ("0", "1") and [e.label for e in task.read("train", tmp_path).examples] == [1, 0]
    words = pa.table({"tokens": [["EU", "said"]], "ner_tags": [[1, 0]]})
    names = {"ner_tags": {"feature": {"names": ["O", "B-ORG"], "_type": "ClassLabel"}, "_type": "Sequence"}}
    words = words.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": names}})})
    pq.write_table(words, tmp_path / "b.parquet")
    task = CustomFiles(kind="tokens", train="b.parquet", text_a="tokens", label="ner_tags").task(tmp_path)
    (example,) = task.read("train", tmp_path).examples
    assert task.labels == ("O", "B-ORG") and example.words == ("EU", "said") and example.label == (1, 0)
