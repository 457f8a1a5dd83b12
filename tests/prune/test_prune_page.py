"""benchmarks/prune.py: the smaller BERT that it compares with, and what it writes of figures."""

import json

import numpy as np
import pytest
from scripts import loaded
from zoo import LAYERS, SIZES, pretrained

from bertzoo import pruned
from bertzoo.convert import directory
from bertzoo.models import Bert
from bertzoo.models.tasks import MaskedLanguageModel


@pytest.fixture
def script(monkeypatch):
    return loaded("prune", monkeypatch)


def test_fewer_layers_are_the_lower_ones(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "LAYERS", 2)
    whole, made = tmp_path / "whole", tmp_path / "made"
    whole.mkdir()
    directory.write(pretrained(Bert(**SIZES, **LAYERS), MaskedLanguageModel(sentence=True)), whole)
    before, after = directory.read(whole), directory.read(script.shortened(whole, 1, made))
    assert after.model == Bert(**SIZES, **LAYERS | {"layers": 1})
    assert set(before.params) - set(after.params) == {name for name in before.params if "layers_1/" in name}
    for name, array in after.params.items():
        np.testing.assert_array_equal(array, before.params[name])
    assert script.count(made) < script.count(whole)


def test_the_page_has_every_seed_and_the_slant(script, tmp_path, monkeypatch):
    """Layers in the order of their numbers, of which the tenth has two digits."""
    monkeypatch.setattr(script, "LAYERS", 12)
    losses = iter(np.arange(5, 8, 0.1))

    def each():
        return [
            {"parameters": 100 + seed, "mlm_loss": next(losses), "mlm_hidden_loss": 1.0, "unigram_entropy": 6.0}
            for seed in range(2)
        ]

    for seed in range(2):
        sizes = {f"encoder/layers_{n}/{place}": 10 * (n + 1) + 2 * seed for n in range(12) for place in PLACES}
        cut = {
            "iteration": 1,
            "unit": "parameters",
            "budget": 1,
            "cost": {},
            "sizes": {"before": sizes, "after": sizes},
        }
        file = pruned.cut(tmp_path / f"{seed}-schuBERT-all", 1)
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(cut))
    page = script.page({"unpruned": each(), "uniform": each()}, tmp_path)
    assert "| unpruned | 100 to 101 | 5.050 | 5.000, 5.100 | 1.000 |" in page
    assert "| uniform | 100 to 101 | 5.250 | 5.200, 5.300 | 1.000 |" in page
    assert f"- feed-forward size: {', '.join(f'{10 * n + 1}.0' for n in range(1, 13))}" in page
    assert "get to 6.000" in page


PLACES = ("attention/a", "attention/k", "attention/v", "feed_forward/f")
