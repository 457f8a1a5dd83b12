"""Two heads on one model: their losses, a run on a table with a class and spans, and its predictions and scores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import planted
import pytest
import zoo
from messages import mentioning, mentions
from planted import BAD, GOOD, WORDS, records, results, said

import bertzoo
from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.finetuning.entities import EntityTask
from bertzoo.finetuning.labels import LabelTask
from bertzoo.finetuning.multi_task import MultiTask
from bertzoo.finetuning.run import check_teacher, resolve_task
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import RowForm
from bertzoo.models import Bert, Compute
from bertzoo.runs import load_model
from bertzoo.tasks.custom import CustomFiles, HeadColumns
from bertzoo.tasks.rows import Slot

HEADS = '[{name="mood",weight=2.0},{name="places",kind="entities"}]'
OWN = CustomFiles(
    train="train.jsonl", dev="dev.jsonl",
    heads=(HeadColumns(name="mood", weight=2.0), HeadColumns(name="places", kind="entities")),
)  # fmt: skip
OPTIONS = ["--own.train=train.jsonl", "--own.dev=dev.jsonl", f"--own.heads={HEADS}", "--max_length=16", "--seeds=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts that are good or bad by their first word, with PLACES; some texts fill several rows."""
    folder, draw = tmp_path_factory.mktemp("heads"), np.random.default_rng(4)
    for name, count in (("train", 160), ("dev", 30)):
        lines = []
        for _ in range(count):
            good = int(draw.integers(2))
            text, spans = str(draw.choice((BAD, GOOD)[good])), []
            for _ in range(draw.integers(1, 24)):
                word = str(draw.choice(WORDS[8:]))
                if word in WORDS[8:11]:
                    spans.append({"start": len(text) + 1, "end": len(text) + 1 + len(word), "label": "PLACE"})
                text += f" {word}"
            lines.append(json.dumps({"text": text, "label": ("bad", "good")[good], "spans": spans}))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_loss_and_gradients_are_the_weighted_sums_of_two_models(folder: Path, data: Path):
    recipe = Finetune(task="own", data_dir=str(data), own=OWN, max_length=16, dropout=0.0)
    tokenizer: Any = load_model.read_model(folder / "model").tokenizer
    form = RowForm(tokenizer, 16, 0)
    model = Bert(**zoo.SIZES | {"vocab_size": tokenizer.vocab_size}, **zoo.LAYERS, dropout=0.0, attention_dropout=0.0)
    task: Any = resolve_task(recipe)
    assert isinstance(task, MultiTask) and [type(one) for one in task.task] == [LabelTask, EntityTask]
    examples = task.read("train", str(data)).examples
    split = task.encode(examples, "train", form, "train")
    assert len(split) > len(examples) and split.size == len(examples)
    slot = Slot(np.arange(12), 16)
    batch = split.batch(slot, 14)
    later = np.array([window.first > 0 for window in split.windows.windows[:12]])
    assert later.any() and not batch["mood/row_weight"][:12][later].any() and not batch["mood/row_weight"][12:].any()
    joint = task.objective(task.head.build(model, Compute()))
    params = zoo.drawn(joint.init, jax.random.key(0))

    tail = split.batch(Slot(np.flatnonzero(later), 16), 14)
    assert joint.totals(tail)["mood"] == 0 < joint.weights(tail)["mood"]

    def value(objective: Any, values: Any, rows: dict) -> Any:
        def mean(values: Any) -> Any:
            sums, weights = objective(values, None, rows, None)[0], objective.weights(rows)
            return sum(sums[term] / weights[term] for term in sums)

        return jax.value_and_grad(mean)(values)

    whole, gradient = value(joint, params, batch)
    expected, trunk = 0.0, None
    for place, (weight, name) in enumerate(((2.0, "mood"), (1.0, "places"))):
        alone = task.task[place]
        objective = alone.objective(alone.head.build(model, Compute()))
        own = {**params, **params[f"heads_{place}"]}
        rows = alone.encode([e._replace(label=e.label[place]) for e in examples], "train", form, "train")
        if name == "mood":  # its rows are the first windows
            texts = [window.text for window in split.windows.windows[:12] if window.first == 0]
            ours = rows.batch(Slot(np.array(texts), 16), 14)
            assert np.array_equal(ours["input_ids"][: len(texts)], batch["input_ids"][:12][~later])
        else:
            ours = rows.batch(slot, 14)
        loss_alone, gradient_alone = value(objective, own, ours)
        expected += weight * loss_alone
        scaled = jax.tree.map(lambda array: weight * array, gradient_alone)  # noqa: B023
        head = {name: scaled[name] for name in params[f"heads_{place}"]}
        assert optax.tree.norm(optax.tree.sub(gradient[f"heads_{place}"], head)) <= 1e-6 * optax.tree.norm(head)
        shared = {name: scaled[name] for name in ("embedding", "encoder", "pooler") if name in scaled}
        zeros = jax.tree.map(np.zeros_like, {"pooler": params["pooler"]})
        trunk = zeros | shared if trunk is None else optax.tree.add(trunk, zeros | shared)
    assert whole == pytest.approx(float(expected), rel=1e-6)
    shared = {name: gradient[name] for name in trunk}
    assert optax.tree.norm(optax.tree.sub(shared, trunk)) <= 1e-6 * optax.tree.norm(trunk)


def test_heads_that_label_texts_share_rows(folder: Path, tmp_path: Path):
    count = 5
    rows: list[dict[str, Any]] = [
        {"text": f"bara {WORDS[8 + i]}", "label": "ab"[i % 2], "stars": i / 2, "tags": ("x;y", "y", "")[i % 3]}
        for i in range(count)
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    heads = (
        HeadColumns(name="mood"),
        HeadColumns(name="stars", kind="regression", label="stars", weight=0.5),
        HeadColumns(name="tags", kind="multi_label", label="tags", separator=";", weight=3.0),
    )
    own = CustomFiles(train="train.jsonl", dev="train.jsonl", heads=heads)
    recipe = Finetune(task="own", data_dir=str(tmp_path), own=own)
    task: Any = resolve_task(recipe)
    tokenizer: Any = load_model.read_model(folder / "model").tokenizer
    split = task.encode(task.read("train", str(tmp_path)).examples, "train", RowForm(tokenizer, 16, 0), "train")
    assert split.windows is None and len(split) == split.size == count
    slot = Slot(np.array([4, 2, 0, 1, 3]), 16)
    batch = split.batch(slot, 6)
    model = Bert(**zoo.SIZES | {"vocab_size": tokenizer.vocab_size}, **zoo.LAYERS | {"layers": 1})
    joint = task.objective(task.head.build(model, Compute()))
    params = zoo.drawn(joint.init, jax.random.key(0))
    logits, (losses, _) = jax.jit(lambda p: (joint.predict(p, batch), joint(p, None, batch, None)))(params)
    outputs = {name: np.asarray(values, np.float64) for name, values in logits.items()}
    mood, stars, tags = (outputs[f"{one.name}_logits"][:count] for one in heads)
    true = [rows[i] for i in slot.rows]
    classes = np.array(["ab".index(row["label"]) for row in true])
    flags = np.array([[name in row["tags"].split(";") for name in "xy"] for row in true])
    expected = {
        "mood": np.sum(np.log(np.exp(mood).sum(-1)) - mood[np.arange(count), classes]),
        "stars": 0.5 * np.sum((stars[:, 0] - [row["stars"] for row in true]) ** 2),
        "tags": 3 * np.sum(np.log1p(np.exp(np.where(flags, -tags, tags))).mean(-1)),
    }
    assert {name: float(loss) for name, loss in losses.items()} == pytest.approx(expected, rel=1e-5)
    assert {name: float(weight) for name, weight in joint.weights(batch).items()} == dict.fromkeys(expected, count)
    records = list(task.decode(split, [slot], [outputs]).records)
    for place, row in enumerate(slot.rows):
        found = records[row]["heads"]
        assert found["mood"]["label"] == "ab"[mood[place].argmax()]
        assert found["stars"]["number"] == pytest.approx(stars[place, 0], abs=1e-4)
        assert found["tags"]["labels"] == [name for name, logit in zip("xy", tags[place], strict=True) if logit > 0]


@pytest.mark.slow
def test_a_run_scores_and_predicts_both(folder: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    run = tmp_path / "run"
    assert planted.finetune(folder, run, f"--data_dir={data}", *OPTIONS, "--epochs=6") == 0
    (seed,) = results(run)["seeds"]
    scores = seed["scores"]["dev"]
    assert list(scores) == ["mood_accuracy", *(f"places_entity_{name}" for name in ("f1", "precision", "recall"))]
    assert seed["score"] == np.mean([scores["mood_accuracy"], scores["places_entity_f1"]]) > 90
    for path in (run, run / "seed-0" / "model"):
        words = ["evaluate", path, f"--input={data / 'dev.jsonl'}"] if path != run else ["evaluate", run]
        document = json.loads(said(capsys, *words, "--json")[0])
        assert list(document["scores"].values()) == [scores]
    rows = [json.loads(line) for line in (data / "dev.jsonl").read_text().splitlines()]
    found = records(capsys, run, f"--input={data / 'dev.jsonl'}")
    right = [row["label"] == one["heads"]["mood"]["label"] for row, one in zip(rows, found, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(scores["mood_accuracy"])
    for row, one in zip(rows, found, strict=True):
        assert all(row["text"][e["start"] : e["end"]] == e["text"] for e in one["heads"]["places"]["entities"])
    assert bertzoo.predict(run, [row["text"] for row in rows], aggregation="first") == found
    out, _ = said(capsys, "predict", run, rows[0]["text"])
    assert mentions(out, f"mood: {found[0]['heads']['mood']['label']}", "places: ")
    err = said(capsys, "predict", run, "bara", f"--output={tmp_path / 'out.tsv'}", code=2)[1]
    assert mentions(err, "out.tsv", ".jsonl")
    again = tmp_path / "again"
    more = [f"--data_dir={data}", *OPTIONS, f"--from={run}", "--keep_head=true", "--epochs=1"]
    assert planted.finetune(folder, again, *more) == 0
    assert results(again)["seeds"][0]["score"] > 90
    said(capsys, "report", run)
    assert mentions((run / "report.md").read_text(), "mood_accuracy", "places_entity_f1")


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        ('[{name="a"}]', ["heads", "'a'"]),
        ('[{name="a"},{name="a",label="other"}]', ["'a'", "two heads"]),
        ('[{name="a b"},{name="c",kind="entities"}]', ["'a b'"]),
        ('[{name="a"},{name="b",kind="span"}]', ["span", "own.heads"]),
        ('[{name="a"},{name="b",kind="entities",label="x"}]', ["label = 'x'", "entities", "own.heads"]),
        ('[{name="a"},{name="b",weight=0.0}]', ["weight = 0.0"]),
        ('[{name="a",kind="entities"},{name="b",kind="entities",aggregation="max"}]', ["first and max"]),
        ('[{name="a"},{name="b",kind="entities",metrics=["f1"]}]', ["f1", "entities"]),
    ],
)
def test_errors_of_heads(heads: str, names: list[str]):
    with pytest.raises(ConfigError, match=mentioning(*names)):
        recipe = config.load(Finetune, ["finetune"], [("task", "own"), ("own.heads", heads)])
        MultiTask.of(replace(recipe, own=replace(recipe.own, train="train.jsonl")))


def test_heads_leave_no_label_for_the_table():
    with pytest.raises(ConfigError, match=mentioning("label = 'x'", "heads")):
        replace(OWN, label="x")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"own": replace(OWN, heads=(*OWN.heads, HeadColumns(name="c", label="topic")))}, ["topic", "train.jsonl"]),
        ({"threshold": "f1"}, ["threshold = 'f1'", "several heads"]),
        ({"alpha": 0.5}, ["alpha = 0.5", "teacher"]),
        ({"task": "cola", "own": replace(OWN, train="", dev="")}, ["own.heads = ['mood', 'places']", "cola"]),
    ],
)
def test_errors_of_a_run(changes: dict[str, Any], names: list[str], data: Path):
    recipe = Finetune(task="own", data_dir=str(data), own=OWN)
    with pytest.raises(UserError, match=mentioning(*names)):
        changed = replace(recipe, **changes)
        check_teacher(changed, resolve_task(changed), None)
