"""Spare rows of the vocabulary: a run with them learns the same, and they stay zero."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo
from messages import mentioning
from zoo import batch_of, mesh_of

from bertzoo.core.errors import ConfigError
from bertzoo.models import Bert, Compute, Electra, MobileBert
from bertzoo.nn import sample
from bertzoo.objectives import Masked, Replaced
from bertzoo.train import optim, state, step

SMALL = {"vocab_size": 50, "hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 24, "max_positions": 12}
MODELS = {
    "bert": Bert(**SMALL, dropout=0.1),
    # Has an untied output; drawn so small, the query's gradients would be rounding.
    "mobilebert": MobileBert(**SMALL, embedding_size=8, bottleneck_size=8, feed_forwards=1, initializer_range=0.1),
    "replaced": Electra(**SMALL, embedding_size=8, dropout=0.1),
}
# Parameters with vocabulary rows. Under replaced token detection the generator draws the discriminator's input.
WIDER = {
    "bert": {"embedding/word/embedding", "masked_head/bias"},
    "mobilebert": {"embedding/word/embedding", "masked_head/bias", "masked_head/extra/kernel"},
    "replaced": {"embedding/word/embedding", "generator/masked_head/bias"},
}
OBJECTIVES = {"replaced": Replaced(generator_width=0.5)}
ROWS, SPARE = 64, slice(50, None)
ONE, EIGHT = (1, 1, 1), (2, 1, 4)  # devices along data, fsdp and tensor, of which 4 do not divide 50 rows


@functools.cache
def train(
    name: str, multiple: int, sizes: tuple[int, int, int] = ONE
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Losses of three LAMB steps with weight decay everywhere, then parameters and logits."""
    objective = OBJECTIVES.get(name, Masked(sentence="none")).build(MODELS[name], Compute(vocab_multiple=multiple))
    optimizer = optim.build(optim.Lamb(learning_rate=0.05, weight_decay=0.1), 10)
    mesh = mesh_of(sizes)
    now = state.fresh(objective, optimizer, mesh, seed=1)
    places = state.shardings_of(state.abstract(objective, optimizer, mesh))
    train_step, losses = step.make_train_step(objective, optimizer, shardings=places), []
    for _ in range(3):
        now, report = train_step(now, None, step.put_batch(batch_of(seed=5), mesh))
        losses.append([float(total) / float(weight) for total, weight in report["terms"].values()])
    return (
        np.array(losses),
        {k: np.asarray(v) for k, v in state.named(now.params).items()},
        np.asarray(jax.jit(objective.masked_logits)(now.params, batch_of(seed=5))),
    )


def compare(name: str, sizes: tuple[int, int, int]) -> None:
    (losses, params, logits), (expected_losses, expected, expected_logits) = train(name, ROWS, sizes), train(name, 1)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    assert {path for path in params if params[path].shape != expected[path].shape} == WIDER[name]
    for path, value in expected.items():
        found = params[path][tuple(slice(size) for size in value.shape)]
        # A key's bias has no effect on a softmax, so its gradient is rounding; the query's bias gives the scale.
        scale = np.abs(expected[path.replace("key/bias", "query/bias")]).max()
        np.testing.assert_allclose(found, value, rtol=0, atol=1e-5 * scale, err_msg=path)
    for path in WIDER[name]:
        table = params[path].T if path.endswith("extra/kernel") else params[path]
        assert table.shape[0] == ROWS and not table[SPARE].any(), path
    assert logits.shape[-1] == ROWS and np.abs(expected_logits).max() < 1e3
    np.testing.assert_allclose(logits[..., :50], expected_logits, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "mobilebert"])
def test_a_run_with_spare_rows_learns_the_same(name: str):
    compare(name, ONE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes"), [("bert", EIGHT), ("mobilebert", EIGHT), ("replaced", ONE), ("replaced", EIGHT)]
)
def test_so_it_does_on_devices_that_split_them_and_under_replaced_token_detection(name, sizes):
    compare(name, sizes)


def test_without_spare_rows_an_uneven_split_raises():
    objective = Replaced(generator_width=0.5).build(MODELS["replaced"], Compute())
    with pytest.raises(ConfigError, match=mentioning(50, "tensor=4")):
        state.abstract_params(objective, mesh_of(EIGHT))
    padded = Replaced(generator_width=0.5).build(MODELS["replaced"], Compute(vocab_multiple=ROWS))
    params = state.named(state.abstract_params(padded, mesh_of(EIGHT)))
    split = {name: params[name].sharding.shard_shape(params[name].shape)[0] for name in WIDER["replaced"]}
    assert split == dict.fromkeys(WIDER["replaced"], ROWS // 4)


@pytest.mark.slow
def test_spare_rows_do_not_change_the_generators_draws():
    logits = np.random.default_rng(2).normal(size=(4, 3, 50)).astype(np.float32)
    padded = np.concatenate([logits, np.full((4, 3, ROWS - 50), np.finfo(np.float32).min)], axis=-1)
    drawn = []
    for multiple, given in ((1, logits), (ROWS, padded)):
        objective = Replaced().build(MODELS["replaced"], Compute(vocab_multiple=multiple))
        keys = [None, *jax.random.split(jax.random.key(0), 20)]
        drawn.append(np.stack([objective.draw(jnp.asarray(given), batch_of(seed=5), key) for key in keys]))
    np.testing.assert_array_equal(*drawn)
    assert len(np.unique(drawn[0])) > 40


def test_no_spare_row_is_ever_predicted_or_drawn():
    objective = Masked(sentence="none").build(MODELS["bert"], Compute(vocab_multiple=ROWS))
    logits = jax.jit(objective.masked_logits)(zoo.drawn(objective.init, jax.random.key(0)), batch_of(seed=5))
    np.testing.assert_array_equal(np.asarray(jax.nn.softmax(logits))[..., SPARE], 0)
    drawn = [sample(logits, np.arange(4, dtype=np.uint32) + 7 * seed) for seed in range(50)]
    assert np.max(drawn) < 50 and len(np.unique(drawn)) > 20
