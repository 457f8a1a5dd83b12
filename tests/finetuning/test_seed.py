"""One seed's epochs: which model is saved, what a failure or a kill inside a save leaves, and the layers' rates."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertzoo.core.atomic import WriteError
from bertzoo.finetuning import seeds
from bertzoo.finetuning.seeds import MODEL, SCORES, Seed, layerwise_rates
from bertzoo.finetuning.settings import Finetune
from bertzoo.runs import load_model

EPOCH = "model.toml"  # the stand-in for a model holds the number of its epoch


@pytest.fixture(autouse=True)
def _epochs_for_models(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_model(pretrained: Any, directory: Path) -> None:
        (directory / EPOCH).write_text(str(pretrained.source["epoch"]))

    monkeypatch.setattr(load_model, "write_model", write_model)
    monkeypatch.setattr(seeds, "parameter_shapes", lambda model, head: {})


def seed(folder: Path, scores: Sequence[float], saved: list[float]) -> Seed:
    """Build a seed whose epochs have these scores; its predictions are added to `saved`."""
    figures = iter(scores)

    def score(params: Any) -> tuple[dict[str, Any], Any, Any]:
        number = next(figures)
        return {"score": number, "scores": {}, "collapsed": False, "loss": 1.0}, lambda _: saved.append(number), {}

    task = SimpleNamespace(name="own", notes={}, finish=lambda model, dev, outputs: (model, None))
    start = SimpleNamespace(model=None, head=None, tokenizer=None, record={"path": "m", "parameters_sha256": "0"})
    recipe = Finetune(epochs=3, batch_size=8)
    stage = recipe.stage(rows=8)
    job: Any = SimpleNamespace(recipe=recipe, stage=stage, start=start, task=task, dev={}, teacher=None, score=score)
    return Seed(job, 1, folder)


@pytest.mark.parametrize(
    ("scores", "best", "saved"), [([1, 3, 2], 2, [1, 3]), ([3, 3, 3], 1, [3]), ([1, 2, 3], 3, [1, 2, 3])]
)
def test_the_first_best_epoch_is_saved(scores: list[float], best: int, saved: list[float], tmp_path):
    predictions: list[float] = []
    job = seed(tmp_path, scores, predictions)
    for step in (1, 2, 3):
        job._evaluate(step, {})
    assert (tmp_path / MODEL / EPOCH).read_text() == str(best) == str(job.chosen["epoch"])
    assert predictions == saved
    assert [entry["step"] for entry in json.loads((tmp_path / SCORES).read_text())] == [1, 2, 3]


def test_an_epoch_without_a_finite_loss_does_not_count(tmp_path):
    job = seed(tmp_path, [1, 2, 3], [])
    job._evaluate(1, {})
    score = job._job.score
    job._job.score = lambda params: (score(params)[0] | {"loss": float("nan")}, None, {})  # pyright: ignore
    assert np.isnan(job._evaluate(3, {})["loss"])
    again = Seed(job._job, 1, tmp_path)
    assert [entry["step"] for entry in again.history] == [1] and not again.finished


@pytest.mark.parametrize("fails", ["model", "predictions"])
def test_a_failure_inside_a_save_leaves_the_epoch_to_be_repeated(fails: str, tmp_path, monkeypatch):
    job = seed(tmp_path, [1, 2], predictions := [])
    job._evaluate(1, {})

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if fails == "model":
        monkeypatch.setattr(load_model, "write_model", fail)
    else:
        monkeypatch.setattr(job._job, "score", lambda params: ({"score": 2.0, "scores": {}, "loss": 1.0}, fail, {}))
    with pytest.raises(WriteError if fails == "model" else OSError):
        job._evaluate(2, {})
    assert [entry["step"] for entry in json.loads((tmp_path / SCORES).read_text())] == [1] and predictions == [1]
    assert (tmp_path / MODEL / EPOCH).read_text() == ("1" if fails == "model" else "2")


def test_a_kill_while_a_model_is_replaced_trains_the_seed_anew(tmp_path):
    seed(tmp_path, [1], [])._evaluate(1, {})
    assert [entry["step"] for entry in seed(tmp_path, [], []).history] == [1]
    (tmp_path / MODEL / EPOCH).unlink()  # the file that is taken away first and comes back last
    assert seed(tmp_path, [], []).history == []


NAMES = [
    "embedding/word/embedding",
    "encoder/projection/kernel",
    *(f"encoder/layers_{layer}/attention/query/kernel" for layer in range(12)),
    "pooler/kernel",
    "classifier/output/kernel",
]


def test_rates_equal_electras_code() -> None:
    # _get_layer_lrs: depth 0 the embeddings, i + 1 layer i, n + 2 the task's head; the rate is decay^(n + 2 - depth).
    rate = layerwise_rates(NAMES, 0.8)
    assert rate is not None
    depths = {"embedding": 0, "projection": 0, "pooler": 13, "classifier": 14} | {
        f"layers_{i}": i + 1 for i in range(12)
    }
    for name in NAMES:
        (depth,) = [depth for part, depth in depths.items() if part in name.split("/")]
        assert rate(name) == pytest.approx(0.8 ** (14 - depth))
    assert rate(NAMES[-3]) == pytest.approx(0.64)
