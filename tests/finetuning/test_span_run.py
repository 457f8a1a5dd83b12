"""Whole runs of a tiny model on questions with planted answers, from SQuAD's files and a table."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from planted import results, said
from quiz import OWN, finetune, kept, span

from bertzoo.core import config
from bertzoo.finetuning.seeds import SeedJob
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import RowForm
from bertzoo.finetuning.warm_start import load_starting_model
from bertzoo.heads import MaskedLanguageModel
from bertzoo.models import DistilBert
from bertzoo.runs import load_model
from bertzoo.tasks import squad, windows
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.squad_tasks import score_1, score_2
from bertzoo.train import sharding


def test_answers_are_learnt_and_have_the_official_scores(quiz_run: Path, quiz_folder: Path):
    found, questions = results(quiz_run), squad.load_squad(quiz_folder, "dev", "1.1")
    assert found["task"] == "squad1" and found["examples"] == {"train": 80, "dev": 24} and found["skipped"] == {}
    assert found["median"]["dev"].keys() == {"exact_match", "f1"} and found["median"]["dev"]["f1"] > 90
    for row in found["seeds"]:
        steps = [entry["step"] for entry in row["history"]]
        assert steps[0] > 10 and steps == [steps[0], 2 * steps[0], 3 * steps[0]]  # more windows than the 80 questions
        assert row["score"] == row["scores"]["dev"]["f1"] == max(e["score"] for e in row["history"])
        assert not row["collapsed"] and all(np.isfinite(entry["loss"]) for entry in row["history"])
        predictions = kept(quiz_run, row["seed"], "predictions")
        assert list(predictions) == [question.key for question in questions]
        assert score_1(questions, predictions) == row["scores"]["dev"]
        best = kept(quiz_run, row["seed"], "nbest_predictions")
        assert all(best[key][0]["text"] == text for key, text in predictions.items())
        assert not (quiz_run / f"seed-{row['seed']}" / "null_odds.json").exists()


def test_batches_from_inside_an_epoch_equal_the_uninterrupted_ones(quiz_folder: Path):
    family = span(quiz_folder)
    start = load_starting_model(quiz_folder / "model", family.recipe, family)
    task_data, size = SeedJob(family, start, sharding.one_device(), None), family.recipe.batch_size
    steps = -(-len(task_data.train) // size)
    whole = list(itertools.islice(task_data.batches(1, 0), 2 * steps))
    for begun in (5, steps, steps + 2):
        for one, other in zip(task_data.batches(1, begun * size), whole[begun:], strict=False):
            assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    assert sum(float(batch["row_weight"].sum()) for batch in whole[:steps]) == len(task_data.train)
    epochs = [np.concatenate([batch["start"] for batch in whole[i : i + steps]]) for i in (0, steps)]
    assert not np.array_equal(*epochs) and task_data.examples == {"train": 80, "dev": 24}


@pytest.mark.slow
def test_the_joint_head_finds_questions_without_an_answer(quiz_folder: Path, tmp_path):
    options = ["--task=squad2", "--squad.joint=true", "--seeds=1", "--epochs=6", "--squad.candidates=5"]
    assert finetune(quiz_folder, tmp_path / "run", *options, "--reduction=sum") == 0
    (row,), questions = results(tmp_path / "run")["seeds"], squad.load_squad(quiz_folder, "dev", "2.0")
    scores = row["scores"]["dev"]
    assert row["score"] == scores["best_f1"] > 75 and scores["best_exact"] >= scores["exact"]
    odds, predictions = kept(tmp_path / "run", 0, "null_odds"), kept(tmp_path / "run", 0, "predictions")
    found = score_2(questions, predictions, odds, threshold=-2.75)
    assert all(scores[name] == found[name] for name in ("exact", "f1"))
    assert all((odds[key] > -2.75) == (text == "") for key, text in predictions.items())
    best = {key: found[0]["text"] for key, found in kept(tmp_path / "run", 0, "nbest_predictions").items()}
    assert scores["best_f1"] == score_2(questions, best, odds, threshold=0)["best_f1"]
    assert load_model.read_model(tmp_path / "run").head.beam == 5


def encoded(task: Any, tokenizer: Any) -> tuple[windows.Windows, windows.Windows]:
    """The windows of the training questions and of the development questions."""
    train, dev, *_ = task.read_splits(RowForm(tokenizer, task.recipe.max_length, 0))
    return train.windows, dev["dev"].windows


def test_ones_own_questions_are_columns_and_some_are_held_out(logged, quiz_folder: Path, tokenizer):
    learnt, held = encoded(span(quiz_folder, *OWN, task="own"), tokenizer)
    assert len(learnt.questions) + len(held.questions) == 49
    assert not {q.context for q in learnt.questions} & {q.context for q in held.questions}
    parts = ("train", "1 questions", "the answer is not in the paragraph")
    assert any(all(part in line for part in parts) for line in logged)
    assert learnt.rows.keys[0] == learnt.questions[0].key and held.unknown == frozenset()


def test_every_option_of_windows_changes_rows(quiz_folder: Path, tokenizer):
    base = len(encoded(span(quiz_folder), tokenizer)[0].windows)
    for option, more in (("--squad.stride=4", True), ("--max_length=20", True), ("--squad.max_question=1", False)):
        count = len(encoded(span(quiz_folder, option), tokenizer)[0].windows)
        assert (count > base) is more and count != base
    learnt, held = encoded(span(quiz_folder, "--squad.heldout=0.3", "--train_rows=20"), tokenizer)
    titles = {question.article for question in held.questions}
    assert len(learnt.questions) == 20 and not titles & {question.article for question in learnt.questions}
    assert {question.key for question in held.questions} <= {
        q.key for q in squad.load_squad(quiz_folder, "train", "1.1")
    }
    assert max(bucket_lengths([learnt.rows], 2, 24)) == 24


def test_decoding_uses_the_options_of_the_command_line(quiz_folder: Path):
    found = span(quiz_folder, "--squad.longest=7", "--squad.candidates=3", "--squad.threshold=1.5", task="squad2")
    decoding = found.recipe.squad.decoding(True)
    assert (decoding.longest, decoding.candidates, decoding.threshold, decoding.nulls) == (7, 3, 1.5, True)
    assert [
        span(quiz_folder, f"--squad.joint={joint}").recipe.squad.decoding(True).threshold for joint in ("true", "false")
    ] == [-2.75, 0.0]
    usual = config.load(Finetune, ["finetune_squad"], []).squad
    assert usual == type(usual)()


@pytest.mark.slow
def test_a_model_without_token_types_learns_joint_answers(quiz_folder: Path, tokenizer, tmp_path, capsys):
    sizes = {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 32}
    model = DistilBert(vocab_size=tokenizer.vocab_size, initializer_range=0.1, **sizes)
    planted.write(tmp_path / "model", model, MaskedLanguageModel(), tokenizer, np.random.default_rng(0))
    options = [f"--from={tmp_path / 'model'}", "--task=squad1", "--squad.joint=true", "--seeds=1", "--epochs=6"]
    assert finetune(quiz_folder, tmp_path / "run", *options) == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["scores"]["dev"]["f1"] > 75
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"]
