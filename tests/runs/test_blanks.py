"""`bertzoo predict` fills the blanks of any masked language model, wherever it is stored."""

import json
from pathlib import Path

import jax
import numpy as np
import planted
import pytest
from messages import mentions
from planted import said
from tiers import quick

import bertzoo
from bertzoo.conversion import huggingface
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.heads import MaskedLanguageModel, NoHead, ReplacedTokens
from bertzoo.models import Bert
from bertzoo.runs import load_model

TEXT = "bara [MASK] doti [MASK]"
SIZES = {"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "max_positions": 16}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pretrained]:
    """A model directory `masked` and the same model as a Hugging Face directory; heads that fill no blanks."""
    folder = tmp_path_factory.mktemp("blanks")
    planted.fill(folder)
    tokenizer = load_model.read_model(folder / "model").tokenizer
    assert tokenizer is not None
    model = Bert(vocab_size=-(-tokenizer.vocab_size // 128) * 128, **SIZES)  # more rows than entries
    heads = {"masked": MaskedLanguageModel(), "none": NoHead(), "replaced": ReplacedTokens()}
    for name, head in heads.items():
        planted.write(folder / name, model, head, tokenizer)
    (folder / "huggingface").mkdir()
    huggingface.write_huggingface(load_model.read_model(folder / "masked"), folder / "huggingface")
    return {path.name: load_model.read_model(path) for path in sorted(folder.iterdir()) if path.is_dir()}


@pytest.mark.parametrize("name", quick(["masked", "huggingface"], "masked"))
def test_a_directory_with_a_masked_head(name: str, models: dict[str, Pretrained], capsys):
    pretrained = models[name]
    tokenizer, (module, params) = pretrained.tokenizer, pretrained.module()
    assert tokenizer is not None
    specials, (first,), (second,) = tokenizer.specials, *tokenizer.encode_batch(["bara", "doti"])
    ids = np.array([[specials.cls, first, specials.mask, second, specials.mask, specials.sep]], np.int32)
    logits = module.apply({"params": params}, ids, 0 * ids, 0 * ids + 1, np.array([[2, 4]])).masked_logits
    chances = jax.nn.softmax(logits[0, :, : tokenizer.vocab_size])
    expected = [
        {tokenizer.token(int(i)): pytest.approx(float(row[i]), rel=1e-5) for i in np.argsort(-row)[:3]}
        for row in np.asarray(chances)
    ]
    (record,) = json.loads(said(capsys, "predict", pretrained.origin, TEXT, "--top=3", "--json")[0])
    assert record == {"text": TEXT, "blanks": expected}
    assert bertzoo.predict(pretrained.origin, [TEXT], top=3) == [record]
    assert len(bertzoo.predict(pretrained.origin, [TEXT])[0]["blanks"][0]) == 5


def test_a_checkpoint_of_a_run_and_its_model_directory(finished_run: Path, tmp_path, capsys):
    newest = max(int(path.name) for path in (finished_run / "checkpoints").iterdir() if path.name.isdecimal())
    load_model.write_model(load_model.read_model(finished_run), tmp_path)
    records = [
        json.loads(said(capsys, "predict", path, "one [MASK] two", "--json")[0])[0]["blanks"][0]
        for path in (finished_run, finished_run / "checkpoints" / str(newest), tmp_path)
    ]
    assert records[1] == pytest.approx(records[0], rel=1e-5) and records[2] == pytest.approx(records[0], rel=1e-5)


def test_models_that_fill_no_blanks_raise(models: dict[str, Pretrained], capsys):
    masked = models["masked"].origin
    for words, parts in (
        ((models["none"].origin, TEXT), ("none", "none")),
        ((models["replaced"].origin, TEXT), ("replaced", "Fine-tune")),
        ((masked, "bara"), ("'bara'", "[MASK]")),
        ((masked, "bara [MASK] " * 8), (18, 16)),
        ((masked, TEXT, "--top=0"), ("--top=0", models["masked"].tokenizer.vocab_size)),
        ((masked, TEXT, "--split=dev"), ("--split", masked)),
        ((masked, TEXT, "--checkpoint=3"), ("--checkpoint", masked)),
        ((masked, TEXT, "--seed=3"), ("--seed=3", masked)),
        ((masked, TEXT, "--python=x"), ("--python", masked)),
    ):
        assert mentions(said(capsys, "predict", *words, code=2)[1], *parts), words
    assert mentions(said(capsys, "evaluate", masked, code=2)[1], masked, "masked")
