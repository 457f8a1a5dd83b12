"""mteb's scores of the class in docs/embeddings.md equal our own readers' on the same files."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from comparing import needs

needs("mteb")

import datasets
import embedding_runs
import mteb

import bertzoo

PAGE = Path(__file__).parents[2] / "docs" / "embeddings.md"
TABLES = """---
configs:
- {config_name: default, data_files: [{split: test, path: qrels/test.jsonl}]}
- {config_name: corpus, data_files: [{split: corpus, path: corpus.jsonl}]}
- {config_name: queries, data_files: [{split: queries, path: queries.jsonl}]}
---
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedding")
    embedding_runs.prepare(folder)
    assert embedding_runs.finetune(folder, folder / "run", "--epochs=1") == 0
    return folder / "run"


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


def scored(model: Path, name: str, folder: Path, split: str) -> float:
    """The main score, in points, of a task of mteb whose data set lies in `folder`."""
    (code,) = re.findall(r"```python\n(import bertzoo\nimport mteb\n.*?)\nprint", PAGE.read_text(), re.DOTALL)
    documented: dict = {}
    exec(code, documented)
    task = mteb.get_task(name)
    dataset = {**task.metadata.dataset, "path": str(folder)}
    task.metadata = task.metadata.model_copy(update={"dataset": dataset})
    task._eval_splits = [split]
    result = mteb.evaluate(documented["Encoder"](model), task, cache=None, show_progress_bar=False)
    return 100 * float(np.mean([subset["main_score"] for subset in result.task_results[0].scores[split]]))


def test_similarity(model: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    pairs = zip(texts(draw, 40), texts(draw, 40), draw.integers(0, 50, 40) / 10, strict=True)
    rows = [{"sentence1": a, "sentence2": b, "score": float(score)} for a, b, score in pairs]
    lines(tmp_path / "sts" / "validation.jsonl", rows)
    ours = bertzoo.evaluate(model, task="sts", input=tmp_path / "sts" / "validation.jsonl")
    theirs = scored(model, "STSBenchmark.v2", tmp_path / "sts", "validation")
    assert theirs == pytest.approx(ours["score"], abs=1e-4)


def test_retrieval(model: Path, tmp_path: Path) -> None:
    draw, folder = np.random.default_rng(2), tmp_path / "search"
    for name, found in (("corpus", list(dict.fromkeys(texts(draw, 40)))), ("queries", texts(draw, 9))):
        lines(folder / f"{name}.jsonl", [{"_id": f"{name[0]}{i}", "text": text} for i, text in enumerate(found)])
    judged = [(f"q{i}", f"c{draw.integers(30)}") for i in range(9)]
    lines(folder / "qrels" / "test.jsonl", [{"query-id": q, "corpus-id": d, "score": 1} for q, d in judged])
    rows = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t1" for q, d in judged), ""]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows))
    (folder / "README.md").write_text(TABLES)
    ours = bertzoo.evaluate(model, task="retrieval", data_dir=folder)
    # mteb rounds to 5 decimals of a share.
    assert scored(model, "SciFact", folder, "test") == pytest.approx(ours["score"], abs=1e-2)
