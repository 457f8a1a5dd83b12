"""Replaced token detection learns an artificial language in which only context shows replacements."""

import flax.linen as nn
import jax
import numpy as np
import optax
import pytest

from bertzoo.models import Compute, Electra
from bertzoo.objectives import Replaced
from bertzoo.train import optim
from bertzoo.train.optim import Schedule

VOCABULARY, LENGTH, MASKED, ROWS, STEPS = 64, 16, 3, 32, 800
FIRST, MASK = 4, 3  # ids below are special
TOKENS = VOCABULARY - FIRST


def batch_of(random: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows that count by 1, 2 or 3 from anywhere: every token is as frequent as any other."""
    start, stride = random.integers(0, TOKENS, (ROWS, 1)), random.integers(1, 4, (ROWS, 1))
    ids = (start + np.arange(LENGTH) * stride) % TOKENS + FIRST
    places = np.sort(random.permuted(np.tile(np.arange(LENGTH), (ROWS, 1)), axis=1)[:, :MASKED])
    masked = ids.copy()
    np.put_along_axis(masked, places, MASK, 1)
    return {
        "input_ids": masked,
        "token_type_ids": np.zeros_like(ids),
        "attention_mask": np.ones_like(ids),
        "masked_positions": places,
        "masked_ids": np.take_along_axis(ids, places, 1),
        "masked_weights": np.ones(places.shape, np.float32),
        "row_weight": np.ones(ROWS, np.float32),
    }


@pytest.mark.slow
def test_both_models_learn_to_count():
    config = Electra(
        vocab_size=VOCABULARY, embedding_size=32, hidden_size=64, layers=2, heads=4, feed_forward_size=256,
        max_positions=LENGTH, dropout=0.0, attention_dropout=0.0, initializer_range=0.05,
    )  # fmt: skip
    objective = Replaced(generator_width=0.5).build(config, Compute())
    settings = optim.AdamW(learning_rate=3e-3, beta2=0.98, schedule=Schedule(warmup_share=0.1, warmup="multiply"))
    optimizer = optim.build(settings, STEPS)

    @jax.jit
    def step(params, state, batch, key):
        def loss(params):
            sums, metrics = objective(params, None, batch, key)
            return sum(sums[term] / weight for term, weight in objective.weights(batch).items()), metrics

        gradients, metrics = jax.grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, metrics

    random = np.random.default_rng(0)
    params = nn.unbox(jax.jit(objective.init)(jax.random.key(0)))
    state, curve, total = optimizer.init(params), [], {}
    for number in range(1, STEPS + 1):
        params, state, metrics = step(params, state, batch_of(random), jax.random.key(number))
        total = {name: np.array(pair) + total.get(name, 0) for name, pair in jax.device_get(metrics).items()}
        if number % 100 == 0:
            curve.append({name: float(pair[0] / pair[1]) for name, pair in total.items() if pair[1]})
            total = {}
    assert curve[0]["rtd_auc"] < 0.6 and curve[-1]["rtd_auc"] > 0.8  # frequencies alone: 0.5
    assert curve[0]["mlm_accuracy"] < 0.1 and curve[-1]["mlm_accuracy"] > 0.2
