"""mteb's scores of a model equal our own readers' on the same files."""

import json
from pathlib import Path

import numpy as np
import pytest
from comparing import needs

needs("mteb")

import datasets
import embedding_runs
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.finetuning.evaluate import TaskModel, evaluate_split, load_task_model

TABLES = """---
configs:
- {config_name: default, data_files: [{split: test, path: qrels/test.jsonl}]}
- {config_name: corpus, data_files: [{split: corpus, path: corpus.jsonl}]}
- {config_name: queries, data_files: [{split: queries, path: queries.jsonl}]}
---
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TaskModel:
    folder = tmp_path_factory.mktemp("embedding")
    embedding_runs.prepare(folder)
    assert embedding_runs.finetune(folder, folder / "run", "--epochs=1") == 0
    return load_task_model(folder / "run")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is fetched or kept elsewhere."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def lines(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def texts(draw: np.random.Generator, count: int) -> list[str]:
    return [" ".join(draw.choice(embedding_runs.WORDS, 4)) for _ in range(count)]


def test_similarity(model: TaskModel, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    pairs = zip(texts(draw, 40), texts(draw, 40), draw.integers(0, 50, 40) / 10, strict=True)
    rows = [{"sentence1": a, "sentence2": b, "score": float(score)} for a, b, score in pairs]
    lines(tmp_path / "sts" / "validation.jsonl", rows)
    ours = evaluate_split(model, task="sts", input=str(tmp_path / "sts" / "validation.jsonl"))
    theirs = evaluate_split(model, task="mteb:STSBenchmark", data_dir=str(tmp_path / "sts"), split="dev")
    assert theirs["scores"] == {"validation": {"cosine_spearman": pytest.approx(ours["score"], abs=1e-4)}}


def test_retrieval(model: TaskModel, tmp_path: Path) -> None:
    draw, folder = np.random.default_rng(2), tmp_path / "search"
    for name, found in (("corpus", list(dict.fromkeys(texts(draw, 40)))), ("queries", texts(draw, 9))):
        lines(folder / f"{name}.jsonl", [{"_id": f"{name[0]}{i}", "text": text} for i, text in enumerate(found)])
    judged = [(f"q{i}", f"c{draw.integers(30)}") for i in range(9)]
    lines(folder / "qrels" / "test.jsonl", [{"query-id": q, "corpus-id": d, "score": 1} for q, d in judged])
    rows = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t1" for q, d in judged), ""]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows))
    (folder / "README.md").write_text(TABLES)
    ours = evaluate_split(model, task="retrieval", data_dir=str(folder))
    theirs = evaluate_split(model, task="mteb:SciFact", data_dir=str(folder))
    # mteb rounds to 5 decimals of a share.
    assert theirs["scores"] == {"test": {"ndcg_at_10": pytest.approx(ours["score"], abs=1e-2)}}


def test_wrong_names_and_folders(model: TaskModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=mentioning("mteb:Missing")):
        evaluate_split(model, task="mteb:Missing")
    with pytest.raises(UserError, match=mentioning("--data_dir", "nowhere")):
        evaluate_split(model, task="mteb:STSBenchmark", data_dir=str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=mentioning("--input", "--data_dir")):
        evaluate_split(model, task="mteb:STSBenchmark", input="a.csv")
