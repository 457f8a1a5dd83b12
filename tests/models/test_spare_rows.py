"""Spare rows of the vocabulary: a run with them learns what one without learns, and nothing is ever in them."""

import functools

import jax
import numpy as np
import pytest

from bertzoo.errors import ConfigError
from bertzoo.models import Bert, Compute, MobileBert
from bertzoo.nn import sample
from bertzoo.objectives import Masked
from bertzoo.train import optim, sharding, state, step

SMALL = {"vocab_size": 50, "hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 24, "max_positions": 12}
MODELS = {
    "bert": Bert(**SMALL, dropout=0.1),
    "mobilebert": MobileBert(**SMALL, embedding_size=8, bottleneck_size=8, feed_forwards=1),  # has an untied output
}
ROWS, SPARE = 64, slice(50, None)


def batch() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(5)
    ids = draw.integers(0, 50, (4, 12)).astype(np.int32)
    places = draw.integers(0, 12, (4, 3)).astype(np.int32)
    return {
        "input_ids": ids,
        "token_type_ids": ids % 2,
        "attention_mask": np.ones_like(ids),
        "masked_positions": places,
        "masked_ids": draw.integers(0, 50, (4, 3)).astype(np.int32),
        "masked_weights": np.ones((4, 3), np.float32),
        "row_weight": np.ones(4, np.float32),
    }


@functools.cache
def train(name: str, multiple: int) -> tuple[list[float], dict[str, np.ndarray], np.ndarray]:
    """The losses of three steps of LAMB, with decay of everything, the parameters and the logits after them."""
    objective = Masked(sentence="none").build(MODELS[name], Compute(vocab_multiple=multiple))
    optimizer = optim.build(optim.Lamb(learning_rate=0.05, weight_decay=0.1), 10)
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    now, train_step, losses = (
        state.fresh(objective, optimizer, mesh, seed=1),
        step.make_train_step(objective, optimizer),
        [],
    )
    for _ in range(3):
        now, report = train_step(now, None, step.put_batch(batch(), mesh))
        losses.append(float(report["terms"]["mlm"][0]))
    return (
        losses,
        {k: np.asarray(v) for k, v in state.named(now.params).items()},
        objective.masked_logits(now.params, batch()),
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_run_with_spare_rows_learns_the_same(name: str) -> None:
    (losses, params, logits), (expected_losses, expected, expected_logits) = train(name, ROWS), train(name, 1)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    wider = {path for path in params if params[path].shape != expected[path].shape}
    extra = {"masked_head/extra/kernel"} if name == "mobilebert" else set()
    assert wider == {"embedding/word/embedding", "masked_head/bias"} | extra
    for path, value in expected.items():
        found = params[path][tuple(slice(size) for size in value.shape)]
        # A softmax does not see a key's bias, whose gradient is rounding: the query's gives the scale.
        scale = np.abs(expected[path.replace("key/bias", "query/bias")]).max()
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-5 * scale, err_msg=path)
    for path in wider:
        table = params[path].T if path.endswith("extra/kernel") else params[path]
        assert table.shape[0] == ROWS and not table[SPARE].any(), path
    assert logits.shape[-1] == ROWS and np.abs(expected_logits).max() < 1e3
    np.testing.assert_allclose(logits[..., :50], expected_logits, rtol=0, atol=1e-4)


def test_no_spare_row_is_ever_predicted_or_drawn() -> None:
    _, _, logits = train("bert", ROWS)
    np.testing.assert_array_equal(np.asarray(jax.nn.softmax(logits))[..., SPARE], 0)
    drawn = [sample(logits, np.arange(4, dtype=np.uint32) + 7 * seed) for seed in range(50)]
    assert np.max(drawn) < 50 and len(np.unique(drawn)) > 20


def test_a_multiple_that_means_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="vocab_multiple = 0"):
        Compute(vocab_multiple=0)
