"""Tasks from sources that need other people's packages: Hugging Face's Parquet files, and TensorFlow Datasets."""

import json

import pytest
from comparing import needs
from messages import mentioning

needs("pyarrow", "tensorflow", "tensorflow_datasets")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow_datasets as tfds
from labelled import FOLDERS, LABELS

from bertzoo.core.errors import CorpusError, UserError
from bertzoo.tasks import squad
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.glue import GLUE

# TensorFlow Datasets uses a method of protobuf's that is on its way out.
pytestmark = pytest.mark.filterwarnings(r"ignore:label\(\) is deprecated:DeprecationWarning")
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


@pytest.mark.parametrize("name", FOLDERS)
def test_prepared_data_sets_by_name_and_in_the_order_of_the_files(name):
    task = GLUE[name]

    def example(i):
        texts = {column: f"{column} {i}" for column in HUB[name][0]}
        label = 0.5 * i if name == "stsb" else i % len(HUB[name][1])
        return {**texts, "label": np.float32(label) if name == "stsb" else label, "idx": 7 - i}

    def as_data_source(self, split, *args, **kwargs):
        return Mocked(self.info, [example(i) for i in range(8)])

    splits = (*task.train, *task.dev, *task.test)
    with tfds.testing.mock_data(num_examples=8, as_data_source_fn=as_data_source):
        found = {split: task.read(split, f"tfds:glue/{name}").examples for split in splits}
        assert task.read(splits[0], "tfds:glue").examples == found[splits[0]]
    for split, examples in found.items():
        assert [e.key for e in examples] == list("01234567")
        assert [e.text_a for e in examples] == [f"{HUB[name][0][0]} {i}" for i in reversed(range(8))]
        if split in task.test:
            assert {e.label for e in examples} == {None}
        elif name == "stsb":
            assert [e.label for e in examples] == [0.5 * i for i in reversed(range(8))]
        else:
            words = [spelt(name, i % len(HUB[name][1])) for i in reversed(range(8))]
            assert [task.labels[e.label] for e in examples] == words


class Mocked(list):
    """A data source as TensorFlow Datasets' own, of the examples given."""

    def __init__(self, info, examples):
        super().__init__(examples)
        self.dataset_info = info


def test_data_sets_as_they_are_mocked():
    """The examples that TensorFlow Datasets draws of its own features."""
    with tfds.testing.mock_data(num_examples=5):
        expected = tfds.data_source("glue/mnli", split="validation_matched", download=False)
        names = expected.dataset_info.features["label"].names
        expected = {(*(text(e[c]) for c in ("premise", "hypothesis")), names[int(e["label"])]) for e in expected}
        examples = GLUE["mnli"].read("dev_matched", "tfds:glue").examples
        scores = [e.label for e in GLUE["stsb"].read("dev", "tfds:glue/stsb").examples]
    assert {(e.text_a, e.text_b, GLUE["mnli"].labels[e.label]) for e in examples} == expected and len(examples) == 5
    assert all(type(score) is float and 0 <= score <= 5 for score in scores)


@pytest.mark.parametrize(("source", "version"), [("tfds:squad", "1.1"), ("tfds:squad/v2.0", "2.0")])
def test_questions_of_prepared_data_sets(source, version):
    """With the features that TensorFlow Datasets documents for SQuAD, in its form."""

    def example(features, i):
        empty = version == "2.0" and i % 2
        words = [] if empty else [b"c\xc3\xa4t", b"A c\xc3\xa4t"]
        found = {"id": f"{i}".encode(), "title": b"T", "context": "A cät.".encode(), "question": f"what {i}?".encode()}
        starts = np.array([2, 0][: len(words)], np.int32)
        found["answers"] = {"text": np.array(words, object), "answer_start": starts}
        found |= {"plausible_answers": found["answers"], "is_impossible": np.bool_(empty)} if version == "2.0" else {}
        assert found.keys() == features.keys() and found["answers"].keys() == features["answers"].keys()
        return found

    def as_data_source(self, split, *args, **kwargs):
        assert split == "validation"
        return Mocked(self.info, [example(self.info.features, i) for i in range(4)])

    with tfds.testing.mock_data(num_examples=4, as_data_source_fn=as_data_source):
        found = squad.load_squad(source, "dev", version)
        named = (source, "SQuAD 2.0", "squad1", "tfds:squad/v2.0") if version == "1.1" else (source, "SQuAD 1.1")
        with pytest.raises(UserError, match=mentioning(*named)):
            squad.load_squad(source, "dev", "2.0" if version == "1.1" else "1.1")
    assert [(q.key, q.text, q.article) for q in found] == [(f"{i}", f"what {i}?", "T") for i in range(4)]
    assert [q.impossible for q in found] == [version == "2.0" and i % 2 == 1 for i in range(4)]
    assert all(q.answers == (() if q.impossible else (("cät", 2), ("A cät", 0))) for q in found)
    assert all(q.context[a.start :].startswith(a.text) for q in found for a in q.answers)


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_an_unprepared_data_set_raises_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    with pytest.raises(CorpusError, match=mentioning("tfds:glue/rte", "tfds build glue/rte")):
        GLUE["rte"].read("train", "tfds:glue")
