"""The package mteb as an option of `evaluate`: errors without it and for wrong options, and the split's name."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from messages import mentions

import bertzoo
from bertzoo.cli import main as cli


def test_without_the_package_an_error_has_the_command(place: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    assert cli.main(["evaluate", str(place / "run"), "--task=mteb:STSBenchmark"]) == 2
    assert mentions(capsys.readouterr().err, "--task=mteb:STSBenchmark", "pip install 'mteb")


class Tasks:
    """The module mteb with one task, whose score of a split is 0.5."""

    def __init__(self):
        metadata = SimpleNamespace(dataset={"path": "far/away"}, main_score="cosine_spearman")
        metadata.model_copy = lambda update: SimpleNamespace(**{**vars(metadata), **update})
        self.task = SimpleNamespace(metadata=metadata, _eval_splits=["test"])

    def get_task(self, name: str) -> SimpleNamespace:
        return {"STSBenchmark": self.task}[name]

    def evaluate(self, encoder: object, task: SimpleNamespace, **_: object) -> SimpleNamespace:
        scores = {split: [{"main_score": 0.5}] for split in task._eval_splits}
        return SimpleNamespace(task_results=[SimpleNamespace(scores=scores)])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--task=mteb:Missing"], ["--task=mteb:Missing"]),
        (["--task=mteb:STSBenchmark", "--input=a.csv"], ["--input=a.csv", "--data_dir"]),
        (["--task=mteb:STSBenchmark"], ["--data_dir", "far/away"]),
        (["--task=mteb:STSBenchmark", "--data_dir=nowhere"], ["--data_dir", "nowhere"]),
    ],
)
def test_wrong_options(options: list[str], parts: list[str], place: Path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", Tasks())
    assert cli.main(["evaluate", str(place / "run"), *options]) == 2
    assert mentions(capsys.readouterr().err, *parts)


def test_a_split_by_our_name_or_mteb_s(place: Path, monkeypatch):
    for split, scored in (("", "test"), ("dev", "validation"), ("train", "train")):
        monkeypatch.setitem(sys.modules, "mteb", Tasks())
        found = bertzoo.evaluate(place / "run", task="mteb:STSBenchmark", data_dir=place, split=split)
        assert found["scores"] == {scored: {"cosine_spearman": 50.0}}
