"""Every model can be fine-tuned and can teach; effects of options, and the number of compiled programs."""

import itertools
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import planted
import pytest
from beginning import build_tokenizer
from messages import mentions
from planted import results, said
from tiers import quick
from zoo import UNEVEN

from bertzoo import models
from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning import labels
from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.finetuning.run import resolve_task
from bertzoo.finetuning.seeds import SeedJob
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.warm_start import StartingModel, load_starting_model
from bertzoo.heads import MaskedLanguageModel, SentenceEmbedding, SequenceClassification
from bertzoo.runs import load_model
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import encode
from bertzoo.tasks.task import Example, double_unordered
from bertzoo.train import sharding

WIDTHS = {"hidden_size": 16, "max_positions": 32, "initializer_range": 0.1}
SIZES = {**WIDTHS, "layers": 2, "heads": 4, "feed_forward_size": 32}
KINDS = [
    (models.Albert, {**SIZES, "embedding_size": 8}),
    (models.Bert, SIZES),
    (models.ConvBert, {**SIZES, "embedding_size": 8, "kernel_size": 5, "feed_forward_groups": 2}),
    (models.DistilBert, SIZES),
    (models.Electra, {**SIZES, "embedding_size": 8}),
    (models.MobileBert, {**SIZES, "embedding_size": 8, "bottleneck_size": 8, "feed_forwards": 2}),
    (models.ModernBert, {**SIZES, "window": 6}),
    (models.SchuBert, WIDTHS | UNEVEN),
    (models.SqueezeBert, SIZES),
]
SHORT = ["--task=mrpc", "--batch_size=16", "--max_length=24", "--buckets=2", "--optimizer.learning_rate=1e-2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("zoo") / "MRPC"
    planted.fill_pairs(made, "MRPC", np.random.default_rng(5))
    return made


def recipe(data: Path, *options: str) -> Finetune:
    words = [option.removeprefix("--").split("=", 1) for option in [*SHORT, f"--data_dir={data}", *options]]
    return config.load(Finetune, ["finetune"], [(key, value) for key, value in words])


def test_a_table_learns_no_labels_and_every_other_model_is_covered(
    folder: Path, data: Path, tokenizer, tmp_path, capsys
):
    assert {each for each, _ in KINDS} | {models.Static} == set(get_args(models.Model))
    table = tmp_path / "table"
    planted.write(table, models.Static(vocab_size=tokenizer.vocab_size, **WIDTHS), SentenceEmbedding(), tokenizer)
    options = [*SHORT, f"--from={table}", f"--data_dir={data}", *NOT_OWN]
    assert planted.finetune(folder, tmp_path / "run", *options) == 2
    assert mentions(capsys.readouterr().err, "static", "layers", "mrpc")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sizes"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
def test_every_model_is_fine_tuned(kind: Any, sizes: dict, data: Path, tokenizer, tmp_path, capsys):
    model = kind(vocab_size=tokenizer.vocab_size, **sizes)
    planted.write(tmp_path / "model", model, MaskedLanguageModel(), tokenizer)
    options = [*SHORT, f"--from={tmp_path / 'model'}", f"--data_dir={data}", "--seeds=1", "--epochs=4"]
    assert planted.finetune(tmp_path, tmp_path / "run", *options, *NOT_OWN, "--layer_decay=0.8") == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["history"][-1]["loss"] < row["history"][0]["loss"]
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"] and isinstance(load_model.read_model(tmp_path / "run").model, kind)


NOT_OWN = ["--own.train=", "--own.dev="]


def of_another_kind(path: Path, kind: Any, sizes: dict, head: Any, **source: Any) -> None:
    """A model with a tokenizer of its own and shorter rows."""
    theirs = build_tokenizer(planted.WORDS[::-1], 60)
    model = kind(vocab_size=theirs.vocab_size, **{**sizes, "max_positions": 12})
    planted.write(path, model, head, theirs, max_length=12, **source)


@pytest.mark.parametrize(("kind", "sizes"), quick(KINDS, KINDS[3], KINDS[5]), ids=[kind.__name__ for kind, _ in KINDS])
def test_a_teacher_of_any_kind_reads_by_its_own_tokenizer(kind: Any, sizes: dict, data: Path, tmp_path):
    of_another_kind(tmp_path / "teacher", kind, sizes, SequenceClassification(labels=("1", "0")), task="mrpc")
    examples, mesh = GLUE["mrpc"].read("train", data).examples, sharding.one_device()
    logits, record = labels.teacher_logits(tmp_path / "teacher", recipe(data), GLUE["mrpc"], examples, mesh)
    # In the order of the examples and of the task's labels, which is not that of its head.
    model = load_task_model(tmp_path / "teacher")
    told = model.task("mrpc").adapt(model).predict(examples).probabilities
    np.testing.assert_allclose(labels.softmax(logits), told, atol=1e-6)
    assert np.ptp(told[:, 0]) > 1e-3 and record["path"] == str(tmp_path / "teacher")
    turned = load_task_model(tmp_path / "teacher").predict(examples).probabilities
    np.testing.assert_allclose(turned[:, ::-1], told, atol=1e-6)


def test_every_row_has_the_teachers_logits(logged, folder: Path, data: Path, tmp_path):
    nameless = SequenceClassification(labels=("LABEL_0", "LABEL_1"))
    of_another_kind(tmp_path / "teacher", models.DistilBert, SIZES, nameless, task="mrpc")
    made = recipe(data, "--double_unordered=true", "--alpha=0.5")
    family = resolve_task(made)
    begun = load_starting_model(folder / "model", made, family)
    task_data = SeedJob(family, begun, sharding.one_device(), tmp_path / "teacher")
    (line,) = (line for line in logged if "LABEL_0" in line)
    assert "--teacher" in line
    examples = double_unordered(GLUE["mrpc"].read("train", data).examples)
    model = load_task_model(tmp_path / "teacher")
    told = model.task("mrpc").adapt(model).predict(examples).probabilities
    rows = encode(examples, begun.tokenizer, made.max_length, "classification")
    ids = [tuple(rows.ids[start : start + length]) for start, length in zip(rows.starts, rows.lengths, strict=True)]
    expected, seen = dict(zip(ids, told, strict=True)), 0
    for batch in itertools.islice(task_data.batches(3, 0), 12):
        for row, mask, logits in zip(batch["input_ids"], batch["attention_mask"], batch["teacher"], strict=True):
            np.testing.assert_allclose(labels.softmax(logits), expected[tuple(row[mask > 0])], atol=1e-6)
            seen += 1
    assert seen == len(examples) == 192 and np.ptp(told[:, 0]) > 1e-3


@pytest.mark.parametrize("scale", [1, 5])
def test_a_regression_teacher_predicts_in_its_students_scale(scale: int, data: Path, tmp_path):
    head = SequenceClassification(labels=("number",), problem_type="regression")
    of_another_kind(tmp_path / "teacher", models.DistilBert, SIZES, head, scale="5.0")
    examples = [Example(str(i), text, "kera", 3.0) for i, text in enumerate(planted.WORDS)]
    logits, _ = labels.teacher_logits(
        tmp_path / "teacher", recipe(data, f"--scale={scale}"), GLUE["stsb"], examples, sharding.one_device()
    )
    numbers = load_task_model(tmp_path / "teacher").predict(examples).values
    np.testing.assert_allclose(scale * logits[:, 0], numbers, atol=1e-5)
    assert np.ptp(numbers) > 1e-3


@pytest.mark.slow
def test_lower_layers_are_learnt_more_slowly(folder: Path, finished: Path, tmp_path):
    options = ["--seeds=1", "--epochs=1", "--layer_decay=0.01"]
    assert planted.finetune(folder, tmp_path / "run", *options) == 0
    before = load_model.read_model(folder / "model").params

    def moved(run: Path, part: str) -> float:
        after = load_model.read_model(run).params
        return max(float(np.abs(after[name] - before[name]).max()) for name in before if name.startswith(part))

    # The layer has a hundredth of the head's rate, the embedding a ten-thousandth.
    assert moved(tmp_path / "run", "embedding") < 1e-3 * moved(finished, "embedding")
    assert moved(tmp_path / "run", "encoder") < 0.1 * moved(finished, "encoder")


def test_dropout_applies_to_the_encoder_or_the_head(folder: Path, data: Path):
    for options, encoder, head in (
        ([], (0.1, 0.1), 0.1),
        (["--encoder_dropout=0"], (0.0, 0.0), 0.1),
        (["--dropout=0.3", "--encoder_dropout=0.2"], (0.2, 0.2), 0.3),
    ):
        made = recipe(data, *options)
        begun = load_starting_model(folder / "model", made, resolve_task(made))
        assert (begun.model.dropout, begun.model.attention_dropout) == encoder and begun.head.dropout == head
    assert load_model.read_model(folder / "model").model.dropout == 0.1


@pytest.mark.parametrize(
    ("head", "options", "hidden"),
    [
        (MaskedLanguageModel(), (), "gelu"),
        (MaskedLanguageModel(), ("--hidden=none",), "none"),
        (SequenceClassification(labels=("0", "1"), hidden="relu"), ("--keep_head=true",), "relu"),
    ],
)
def test_heads_of_modernbert_have_a_hidden_layer_unless_another_is_chosen(head, options, hidden, data: Path, tmp_path):
    sizes = {"hidden_size": 8, "layers": 1, "heads": 2, "feed_forward_size": 6}
    of_another_kind(tmp_path / "model", models.ModernBert, sizes, head, task="mrpc")
    made = recipe(data, "--max_length=12", *options)
    begun = load_starting_model(tmp_path / "model", made, resolve_task(made))
    assert begun.head.hidden == begun.recipe.hidden == hidden


@pytest.mark.slow
def test_a_run_compiles_one_program_per_length_and_reports_a_collapse(folder: Path, tmp_path, capsys):
    options = ["--epochs=1", "--optimizer.learning_rate=0", "--buckets=2"]
    assert planted.finetune(folder, tmp_path / "run", *options) == 0
    found = results(tmp_path / "run")
    logs = [(tmp_path / "run" / f"seed-{seed}" / "metrics.jsonl").read_text() for seed in (0, 1)]
    assert [log.count('"event": "compiled"') for log in logs] == [2, 0]  # the second seed runs the first one's programs
    assert [row["collapsed"] for row in found["seeds"]] == [True, True]
    assert capsys.readouterr().out.count("; every example got the same prediction") == 2


def test_a_task_starts_from_another_tasks_model_without_its_head(finished: Path, data: Path):
    made, first = recipe(data), load_model.read_model(finished)
    begun = load_starting_model(finished, made, resolve_task(made))
    assert begun.head.labels == ("0", "1") and begun.report[1:] == ["starting fresh: classifier (trained for the task)"]
    assert {name.split("/")[0] for name in begun.initial} == {"embedding", "encoder", "pooler"}
    for name, array in begun.initial.items():
        np.testing.assert_array_equal(array, first.params[name])


def start(path: Path, folder: Path, *options: tuple[str, str]) -> StartingModel:
    """The model at `path` under the head of the planted task, with keep_head and more options."""
    shared = [word.removeprefix("--").split("=", 1) for word in planted.OPTIONS]
    overrides = [*((key, value) for key, value in shared), ("data_dir", str(folder)), ("keep_head", "true"), *options]
    finetune = config.load(Finetune, ["finetune"], overrides)
    return load_starting_model(path, finetune, resolve_task(finetune))


def test_a_head_is_kept_on_demand(finished: Path, folder: Path):
    first, begun = load_model.read_model(finished), start(finished, folder, ("dropout", "0.3"))
    assert begun.initial.keys() == first.params.keys() and begun.head.dropout == 0.3
    for name, array in begun.initial.items():
        np.testing.assert_array_equal(array, first.params[name])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("labels", [("own.labels", '["1","0"]')]),
        ("hidden", [("hidden", "gelu")]),
        ("pooler", [("pooler", "false")]),
        ("scale", [("own.kind", "regression"), ("own.label", "number"), ("scale", "2")]),
        ("own", [("own.text_b", "number")]),
        ("own", [("own.kind", "tokens"), ("pooler", "true")]),
        ("kind", []),
    ],
)
def test_a_head_of_other_outputs_is_not_kept(key, options, finished, folder, tmp_path):
    if key == "kind":
        finished = folder / "model"
    if key == "scale":
        head, first = SequenceClassification(labels=("number",)), load_model.read_model(finished)
        finished = tmp_path / "numbers"
        planted.write(finished, first.model, head, first.tokenizer)  # without a record of a scale, which is then 1
    with pytest.raises(ConfigError) as error:
        start(finished, folder, *options)
    assert mentions(str(error.value), "keep_head", key, str(finished))
