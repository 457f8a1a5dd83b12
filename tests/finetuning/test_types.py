"""Models without segments: [SEP] alone separates pairs and questions, as in transformers."""

import json
from pathlib import Path

import numpy as np
import planted
import pytest
import quiz
from planted import records, results, said

from bertzoo.heads import MaskedLanguageModel
from bertzoo.models import DistilBert

SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 32}
DRAWN = {**SIZES, "initializer_range": 0.1}


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without segments, and pairs whose second text decides the label."""
    made = tmp_path_factory.mktemp("types")
    model = DistilBert(vocab_size=tokenizer.vocab_size, **DRAWN)
    planted.write(made / "model", model, MaskedLanguageModel(), tokenizer, np.random.default_rng(0))
    draw = np.random.default_rng(3)
    for split, count in (("train", 240), ("dev", 40)):
        lines = ["one,other,label"]
        for label in draw.integers(0, 2, count):
            first, *rest = (str(word) for word in draw.choice(planted.WORDS[8:], 4))
            lines.append(f"{first},{' '.join(rest)} {draw.choice((planted.BAD, planted.GOOD)[label])},{label}")
        (made / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.slow
def test_pairs_are_learnt(models: Path, tmp_path, capsys):
    options = [f"--from={models / 'model'}", "--own.text_a=one", "--own.text_b=other", "--own.label=label", "--seeds=1"]
    assert planted.finetune(models, tmp_path / "run", *options) == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["scores"]["dev"]["accuracy"] > 90
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"]
    texts = "bara doti", "lura kera"
    (found,), (turned,) = (records(capsys, tmp_path / "run", *pair) for pair in (texts, texts[::-1]))
    assert found["probability"] != pytest.approx(turned["probability"], abs=1e-9)


@pytest.mark.slow  # finetuning/test_span_run.py has questions of the usual kind
@pytest.mark.parametrize("options", [["--squad.joint=true"], []])
def test_questions_are_learnt(options: list[str], models: Path, quiz_folder: Path, tmp_path, capsys):
    more = ["--task=squad1", f"--from={models / 'model'}", "--seeds=1", "--epochs=6", *options]
    assert quiz.finetune(quiz_folder, tmp_path / "run", *more) == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["scores"]["dev"]["f1"] > 75
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"]
