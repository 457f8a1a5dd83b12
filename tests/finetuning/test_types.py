"""Models with no or one segment: [SEP] alone separates pairs and questions, as in transformers."""

import json
from pathlib import Path

import chex
import flax.linen as nn
import jax
import numpy as np
import planted
import pytest
import quiz
from planted import records, results, said
from tiers import quick

from bertzoo.heads import MaskedLanguageModel, SequenceClassification
from bertzoo.models import Bert, Compute, DistilBert, MobileBert

SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 32}
DRAWN = {**SIZES, "initializer_range": 0.1}
SMALL = {**SIZES, "embedding_size": 8, "bottleneck_size": 8, "feed_forwards": 1}


@pytest.fixture(scope="module")
def models(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `none` and `one`, named by their number of segments, and pairs whose second text decides the label."""
    made = tmp_path_factory.mktemp("types")
    for name, model in (
        ("none", DistilBert(vocab_size=tokenizer.vocab_size, **DRAWN)),
        ("one", Bert(vocab_size=tokenizer.vocab_size, token_types=1, **DRAWN)),
    ):
        planted.write(made / name, model, MaskedLanguageModel(), tokenizer, np.random.default_rng(0))
    draw = np.random.default_rng(3)
    for split, count in (("train", 240), ("dev", 40)):
        lines = ["one,other,label"]
        for label in draw.integers(0, 2, count):
            first, *rest = (str(word) for word in draw.choice(planted.WORDS[8:], 4))
            lines.append(f"{first},{' '.join(rest)} {draw.choice((planted.BAD, planted.GOOD)[label])},{label}")
        (made / f"{split}.csv").write_text("\n".join(lines) + "\n")
    return made


@pytest.mark.parametrize("name", quick(["none", "one"], "none"))
@pytest.mark.slow
def test_pairs_are_learnt(name: str, models: Path, tmp_path, capsys):
    options = [f"--from={models / name}", "--own.text_a=one", "--own.text_b=other", "--own.label=label", "--seeds=1"]
    assert planted.finetune(models, tmp_path / "run", *options) == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["scores"]["dev"]["accuracy"] > 90
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"]
    texts = "bara doti", "lura kera"
    (found,), (turned,) = (records(capsys, tmp_path / "run", *pair) for pair in (texts, texts[::-1]))
    assert found["probability"] != pytest.approx(turned["probability"], abs=1e-9)


@pytest.mark.slow  # finetuning/test_span_run.py has questions of the usual kind
@pytest.mark.parametrize(("name", "options"), [("none", ["--squad.joint=true"]), ("one", [])])
def test_questions_are_learnt(name: str, options: list[str], models: Path, quiz_folder: Path, tmp_path, capsys):
    more = ["--task=squad1", f"--from={models / name}", "--seeds=1", "--epochs=6", *options]
    assert quiz.finetune(quiz_folder, tmp_path / "run", *more) == 0
    (row,) = results(tmp_path / "run")["seeds"]
    assert row["scores"]["dev"]["f1"] > 75
    document = json.loads(said(capsys, "evaluate", tmp_path / "run", "--json")[0])
    assert document["scores"] == row["scores"]


ONE_TYPE = [Bert(vocab_size=40, token_types=1, **SIZES), MobileBert(vocab_size=40, token_types=1, **SMALL)]


@pytest.mark.slow
@pytest.mark.parametrize("model", quick(ONE_TYPE, ONE_TYPE[0]))
def test_with_one_segment_all_tokens_belong_to_it(model: Bert | MobileBert):
    """The backward pass too, where a look-up beyond a table's end would be lost."""
    module = SequenceClassification().build(model, Compute())
    draw = np.random.default_rng(0)
    ids, mask = draw.integers(0, 40, (2, 8)).astype(np.int32), np.ones((2, 8), np.int32)
    types = np.int32([[0, 0, 1, 1, 1, 1, 1, 1]] * 2)
    params = nn.unbox(module.init(jax.random.key(0), ids, types, mask)["params"])

    def loss(params, types):
        return (module.apply({"params": params}, ids, types, mask).logits ** 2).sum()

    given, none = (jax.value_and_grad(loss)(params, each) for each in (types, 0 * types))
    assert given[0] == none[0] and params["embedding"]["token_type"]["embedding"].shape[0] == 1
    chex.assert_trees_all_close(given[1], none[1], rtol=1e-6, atol=1e-7)
