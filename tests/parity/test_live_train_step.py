"""benchmarks/speed/train_step.py: both sides train the same objective, step by step in turns; no time is asserted."""

import math
from typing import Any

import numpy as np
import pytest
from comparing import needs

needs("torch", "transformers")
from benchmarks.lib import processes
from benchmarks.speed import huggingface, train_step, transfer_stage

SIZED = ["bert_base", "squeezebert", "mobilebert", "convbert_base", "convbert_small", "electra_small"]


def test_both_sides_learn_one_batch(monkeypatch):
    """Both losses fall from the vocabulary's logarithm, at the same pace."""
    monkeypatch.setattr(huggingface, "LEARNING_RATE", 1e-3)
    monkeypatch.setattr(processes, "limit_jax", lambda setting: None)
    setting, shape = processes.Setting(2), (8, 16, 4)
    batch = train_step.random_batch(*shape, seed=0)
    first, last = [], []
    for make in (train_step.our_step, train_step.their_step):
        step = make("convbert_small", setting, shape)
        losses = [step(batch) for _ in range(4)]
        first.append(losses[0])
        last.append(losses[-1])
    assert first == pytest.approx([math.log(train_step.VOCABULARY)] * 2, abs=0.2)
    assert all(before - after > 0.5 for before, after in zip(first, last, strict=True))
    assert last[0] == pytest.approx(last[1], abs=0.5)


def test_a_stage_of_a_transfer(monkeypatch):
    """Both sides of a stage learn one batch; the models have two layers, and the second one learns."""
    monkeypatch.setattr(processes, "limit_jax", lambda setting: None)
    monkeypatch.setattr(transfer_stage, "LAYER", 2)
    plain = transfer_stage.recipe_of
    monkeypatch.setattr(transfer_stage, "recipe_of", lambda *given: _cut(plain(*given)))
    setting, shape = processes.Setting(2), (8, 32, 4)
    batch = train_step.random_batch(*shape, seed=0)
    for make in (train_step.our_step, train_step.their_step):
        step = make(train_step.TRANSFER, setting, shape)
        losses = [step(batch) for _ in range(8)]
        assert all(math.isfinite(loss) for loss in losses) and losses[-1] < losses[0]


def test_a_stage_has_one_loss():
    """The other side's is ours, of the same states and attention maps."""
    import torch

    from bertzoo.objectives import transfer

    random = np.random.default_rng(0)
    states = [random.normal(size=(2, 5, 8)).astype(np.float32) * scale for scale in (1, 3)]
    maps = [random.dirichlet(np.ones(5), size=(2, 4, 5)).astype(np.float32) for _ in range(2)]
    of = {"feature": transfer.feature_map, "mean": transfer.mean, "variance": transfer.variance}
    every = np.ones((2, 5), np.float32)
    parts = {name: function(states[1], states[0], every) for name, function in of.items()}
    parts["attention"] = transfer.attention(maps[1], maps[0], every)
    ours = sum(
        transfer_stage.WEIGHTS[name] * float(part) / every.size / transfer_stage.LAYERS for name, part in parts.items()
    )
    assert float(transfer_stage.their_loss(*map(torch.from_numpy, (*states, *maps)))) == pytest.approx(ours, rel=1e-5)


@pytest.mark.parametrize("model", SIZED)
def test_both_implementations_have_equal_parameter_counts(model: str):
    """Parameters, but for the poolers and second biases that the other side's classes have."""
    import torch

    from bertzoo.train.state import shapes_of

    ours = sum(math.prod(leaf.shape) for leaf in shapes_of(train_step.objective(model)).values())
    with torch.device("meta"):
        network = huggingface.network(model)
    theirs = {name: leaf.numel() for name, leaf in network.named_parameters() if ".pooler." not in name}
    assert sum(theirs.values()) == ours, [name for name in theirs if "layer" not in name]


def _cut(recipe: Any) -> Any:
    from dataclasses import replace

    return replace(recipe, model=replace(recipe.model, layers=2), teacher=replace(recipe.teacher, layers=2))


def test_their_operations_are_of_every_position():
    """Twelve layers of maps, scores and values, then the head's map and its logits, forward and twice backward."""
    width, tokens, vocabulary = 768, 128, 30522
    layer = 2 * tokens * (4 * width**2 + 2 * width * 4 * width) + 4 * tokens**2 * width
    head = 2 * tokens * (width**2 + width * vocabulary)
    assert train_step.their_row_flops("bert_base", (8, tokens, 20)) == 3 * (12 * layer + head)
