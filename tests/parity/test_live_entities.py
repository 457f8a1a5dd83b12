# pyright: reportMissingImports=false
"""Entities beside transformers' pipeline for token classification, on the same random weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest
from comparing import needs

needs("torch", "transformers")

import transformers

import bertzoo
from bertzoo.conversion import huggingface
from bertzoo.finetuning.entities import EntityTask
from bertzoo.finetuning.evaluate import load_task_model
from bertzoo.heads import TokenClassification
from bertzoo.runs import load_model
from bertzoo.tasks.task import Example

LABELS = {"IO": ("NAME", "O", "PLACE"), "BIO": ("O", "B-NAME", "I-NAME", "B-PLACE", "I-PLACE")}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """For each set of labels our directory and Hugging Face's."""
    folder = tmp_path_factory.mktemp("entities")
    planted.fill(folder)
    base, found = load_model.read_model(folder / "model"), {}
    for name, labels in LABELS.items():
        head = TokenClassification(labels=labels)
        draw = np.random.default_rng(7)
        own = {"kind": "entities"} if name == "BIO" else {}
        made = planted.write(folder / f"{name}-drawn", base.model, head, base.tokenizer, draw, task="own", own=own)
        # Fewer tags I, so that some texts have legal tags only.
        bias = np.float32([-0.5 * label.startswith("I-") for label in labels])
        made = replace(made, params={**made.params, "token_classifier/output/bias": bias})
        (folder / name).mkdir()
        load_model.write_model(made, folder / name)
        (folder / f"{name}-theirs").mkdir()
        huggingface.write_huggingface(made, folder / f"{name}-theirs")
        found[name] = folder / name, folder / f"{name}-theirs"
    return found


def texts() -> list[str]:
    """Of words with one token and with several, unknown ones and punctuation; at most 30 tokens."""
    draw, made = np.random.default_rng(5), []
    for _ in range(60):
        words = ["".join(draw.choice(planted.WORDS, draw.integers(1, 3))) for _ in range(draw.integers(1, 5))]
        words += ["Bára", "Zzz9", "(doti)", "mira,lura."][: draw.integers(5)]
        made.append(" ".join(draw.permutation(words)).capitalize())
    return made


def theirs(folder: Path, aggregation: str) -> Any:
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return transformers.pipeline(
        "token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=aggregation
    )


def same(ours: list[dict], others: list[dict]) -> None:
    assert [(e["start"], e["end"], e["label"]) for e in ours] == [
        (e["start"], e["end"], e["entity_group"]) for e in others
    ]
    np.testing.assert_allclose([e["score"] for e in ours], [e["score"] for e in others], atol=2e-5)


@pytest.mark.parametrize("aggregation", ["first", "max", "average", "simple"])
@pytest.mark.parametrize("labels", LABELS)
def test_entities_are_those_of_the_pipeline(labels: str, aggregation: Any, models: dict[str, tuple[Path, Path]]):
    """Their tags follow no scheme: so do ours of a directory that records none."""
    given = texts()
    expected = theirs(models[labels][1], aggregation)(given)
    assert sum(map(len, expected)) > 60
    for record, others in zip(
        bertzoo.predict(models[labels][1], given, aggregation=aggregation), expected, strict=True
    ):
        same(record["entities"], others)


def test_a_model_of_spans_differs_only_where_their_tags_are_illegal(models: dict[str, tuple[Path, Path]]):
    given, (ours, others) = [*texts(), *planted.WORDS], models["BIO"]
    expected, found = theirs(others, "first")(given), bertzoo.predict(ours, given)
    model = load_task_model(ours)
    task = EntityTask.unnamed(model)
    split = model.encode(task, [Example(str(i), text) for i, text in enumerate(given)], purpose="predict")
    slots, outputs = model.runner([split.rows]).run_all(split)
    free = replace(split, constrained=False).predict(slots, outputs)
    legal = 0
    for nth, (tags, best) in enumerate(zip(free, split.predict(slots, outputs), strict=True)):
        if (tags == best).all():
            legal += 1
            same(found[nth]["entities"], expected[nth])
    assert 5 < legal < len(given) - 5
