"""Whole fine-tuning runs of a tiny model on a task that words decide."""

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentions, undocumented
from planted import finetune, results

from bertzoo.cli import main as cli
from bertzoo.conversion.tensors import digest
from bertzoo.core import config
from bertzoo.finetuning import seeds
from bertzoo.finetuning.settings import Finetune
from bertzoo.heads import MaskedLanguageModel, parameter_shapes
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.rows import bucket_lengths, encode


def test_a_run_learns_and_writes_its_results(finished: Path, folder: Path):
    found = results(finished)
    assert found["median"]["dev"]["accuracy"] > 90 and found["examples"] == {"train": 240, "dev": 40}
    assert [row["seed"] for row in found["seeds"]] == [0, 1] and not any(row["collapsed"] for row in found["seeds"])
    for row in found["seeds"]:
        assert [entry["step"] for entry in row["history"]] == [15, 30, 45, 60]
        best = max(row["history"], key=lambda entry: entry["score"])
        assert (row["epoch"], row["score"]) == (best["epoch"], best["score"])
        assert not (finished / f"seed-{row['seed']}" / "checkpoints").exists()
    assert found["min"]["dev"]["accuracy"] == min(row["score"] for row in found["seeds"])
    assert found["from"] == str(folder / "model") and found["model"]["kind"] == "bert"
    shapes = parameter_shapes(load_model.read_model(folder / "model").model, MaskedLanguageModel(sentence=True))
    backbone = [shape for name, shape in shapes.items() if name.split("/")[0] in ("embedding", "encoder", "pooler")]
    assert found["model"]["parameters"] == sum(int(np.prod(shape)) for shape in backbone)


def test_a_seeds_folder_is_read_as_its_model(finished: Path):
    read, wanted = (load_model.read_model(finished / place) for place in ("seed-1", "seed-1/model"))
    assert digest(read.params) == digest(wanted.params)
    assert digest(read.params) != digest(load_model.read_model(finished / "seed-0").params)


def test_the_formats_page_names_every_file_and_key(finished: Path):
    assert undocumented(finished) - {"seed-0", "seed-1"} == set()
    assert undocumented(finished / "seed-0") - {"dev_accuracy"} == set()


def test_speed_counts_the_real_lengths_of_rows(finished: Path, folder: Path, tokenizer):
    task = CustomFiles(train="train.csv", dev="dev.csv").task(folder)
    rows, dev = (encode(task.read(split, folder).examples, tokenizer, 24, task.kind) for split in ("train", "dev"))
    lengths, lines = bucket_lengths([rows, dev], 2, 24), (finished / "seed-0" / "metrics.jsonl").read_text()
    earlier, record = [json.loads(line) for line in lines.splitlines() if '"train"' in line][-2:]
    # After the previous record, when all programs are compiled.
    steps = [slot.length for epoch in (0, 1, 2, 3) for slot in rows.plan(16, lengths, seed=0, epoch=epoch)]
    mean = np.mean(steps[earlier["step"] : record["step"]])
    assert len(lengths) == 2 and min(lengths) < mean < max(lengths) <= 24
    assert record["tokens_per_second"] == pytest.approx(mean * record["examples_per_second"])
    model = load_model.read_model(finished).model
    # Two products for each weight, once forward and twice backward: keys and values of all tokens, queries, outputs,
    # feed-forward and pooler, in the one layer, of the first of a row; attention and the classes are small.
    weights = 2 * 16 * 16 + (3 * 16 * 16 + 2 * 16 * 32) / mean
    flops = record["flops_per_second"] / record["tokens_per_second"]
    assert (model.hidden_size, model.layers) == (16, 1) and 6 * weights < flops < 1.2 * 6 * weights


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_models(finished: Path, folder: Path, tmp_path, monkeypatch, capsys):
    plain = seeds.Seed._evaluate

    def interrupted(self, step, params):
        if step == 15:
            signal.raise_signal(signal.SIGTERM)
        return plain(self, step, params)

    with monkeypatch.context() as patch:
        patch.setattr(seeds.Seed, "_evaluate", interrupted)
        assert finetune(folder, tmp_path / "run") == 3
    assert mentions(capsys.readouterr().err, "command again") and not (tmp_path / "run" / "results.json").exists()
    assert finetune(folder, tmp_path / "run") == 0
    mine, theirs = results(tmp_path / "run"), results(finished)
    assert mine["seeds"] == theirs["seeds"]
    for seed in (0, 1):
        one, other = (
            load_model.read_model(run / f"seed-{seed}" / "model").params for run in (tmp_path / "run", finished)
        )
        assert all(np.array_equal(one[name], other[name]) for name in other) and one.keys() == other.keys()


def test_a_finished_run_trains_only_added_seeds(finished: Path, folder: Path, capsys):
    before = results(finished)
    assert finetune(folder, finished) == 0
    assert results(finished) == before and "seed 0" not in capsys.readouterr().err
    assert finetune(folder, finished, "--epochs=5") == 2
    assert "epochs: 4 -> 5" in capsys.readouterr().err
    assert finetune(folder, finished, "--seeds=1") == 2
    err = capsys.readouterr().err
    assert mentions(err, "seed 1", "seeds = 1", "seeds = 2")
    assert results(finished) == before


@pytest.mark.slow
def test_a_seed_without_its_model_trains_anew(finished: Path, folder: Path, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / "run")
    best = results(run)["best"]
    shutil.rmtree(run / f"seed-{best}" / "model")
    assert cli.main(["predict", str(run), "bara"]) == 2
    err = capsys.readouterr().err
    assert mentions(err, run / f"seed-{best}" / "model") and err.count("\n") == 1
    assert finetune(folder, run) == 0
    said = capsys.readouterr().err
    assert mentions(said, f"seed {best}", run / f"seed-{best}" / "model") and f"seed {1 - best}\n" not in said
    one, other = (load_model.read_model(path / f"seed-{best}" / "model").params for path in (run, finished))
    assert all(np.array_equal(one[name], other[name]) for name in other) and results(run) == results(finished)


@pytest.mark.slow
def test_model_and_teacher_behind_urls(finished: Path, folder: Path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(folder / "model", tmp_path / "bucket" / "model")
    url, run = f"file://{tmp_path}/bucket/model", tmp_path / "run"
    options = [f"--from={url}", f"--teacher=file://{finished}", "--alpha=0.5", "--seeds=1", "--epochs=1"]
    assert finetune(folder, run, *options) == 0
    record = json.loads((run / "run.json").read_text())
    expected = {name: load_model.read_model(path) for name, path in (("from", folder / "model"), ("teacher", finished))}
    assert {name: record[name]["parameters_sha256"] for name in expected} == {
        name: digest(model.params) for name, model in expected.items()
    }
    assert [record[name]["path"] for name in expected] == [url, f"file://{finished}"] and results(run)["from"] == url
    (tmp_path / "bucket" / "model" / load_model.PARAMETERS).unlink()
    capsys.readouterr()
    assert finetune(folder, run, *options) == 2
    assert mentions(capsys.readouterr().err, f"{url}/{load_model.PARAMETERS}")


@pytest.mark.parametrize(
    ("scores", "finished"),
    [([5.0, 4.0], False), ([5.0, 4.0, 5.0], True), ([4.0, 5.0, 4.0], False), ([1.0, 2.0, 3.0, 4.0], True)],
)
def test_a_seed_is_finished_after_its_patience_or_its_epochs(scores: list[float], finished: bool, tmp_path):
    (tmp_path / seeds.MODEL).mkdir()
    (tmp_path / seeds.MODEL / load_model.MODEL).touch()
    epochs = [
        {"epoch": i + 1, "step": 10 * (i + 1), "score": s, "scores": {}, "collapsed": False}
        for i, s in enumerate(scores)
    ]
    (tmp_path / seeds.SCORES).write_text(json.dumps(epochs))
    options = {"task": "cola", "patience": "2", "epochs": "4", "batch_size": "16"}
    recipe = config.load(Finetune, ["finetune"], list(options.items()))
    job: Any = SimpleNamespace(recipe=recipe, stage=recipe.stage(rows=160))
    assert seeds.Seed(job, 0, tmp_path).finished is finished
