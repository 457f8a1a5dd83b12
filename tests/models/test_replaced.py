"""Replaced token detection: shared parameters, draws and gradients, under every backbone."""

import dataclasses
import functools
from typing import get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_models
import zoo
from arrays import flatten
from messages import mentioning
from scipy import stats
from test_models import SMALL, loss
from tiers import quick

from bertzoo.core.errors import ConfigError
from bertzoo.models import Bert, Compute, Electra, MobileBert, Model, SchuBert
from bertzoo.models.replaced import generator_of
from bertzoo.objectives import Masked, Replaced
from bertzoo.objectives.replaced import corrupt, pairs_in_order
from bertzoo.train.state import boxed_shapes

ELECTRA = Electra(**SMALL, embedding_size=16)
MODELS = [
    *(model for model in test_models.MODELS if not isinstance(model, Electra)),
    ELECTRA,
    test_models.TABLE,
    MobileBert(**SMALL, embedding_size=16, bottleneck_size=12, feed_forwards=1),
]


def batch_of(rows=4, length=12, predictions=4, seed=0):
    """Rows of different lengths, row i with predictions - i used slots, at distinct positions."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(length // 2, length + 1, (rows, 1))
    used = np.maximum(1, predictions - np.arange(rows))[:, None] > np.arange(predictions)
    positions = np.stack([np.sort(rng.choice(np.arange(1, length // 2), predictions, False)) for _ in range(rows)])
    original = rng.integers(5, 50, (rows, length))
    batch = {
        "token_type_ids": rng.integers(0, 2, (rows, length)),
        "attention_mask": (np.arange(length) < lengths).astype(np.int32),
        "masked_positions": np.where(used, positions, 0),
        "masked_ids": np.where(used, np.take_along_axis(original, positions, 1), 0),
        "masked_weights": used.astype(np.float32),
        "row_weight": np.ones(rows, np.float32),
    }
    masked = original.copy()
    for row, slot in zip(*np.nonzero(used), strict=True):
        masked[row, positions[row, slot]] = 4
    return {**batch, "input_ids": masked}, original


@functools.cache
def build(config, objective=Replaced(), **compute):  # noqa: B008, a frozen dataclass
    made = objective.build(config, Compute(**compute))
    return made, zoo.drawn(made.init, jax.random.key(1))


@functools.partial(jax.jit, static_argnums=0)
def drawn(objective, params, batch, key=None):
    return objective.draw(objective.masked_logits(params, batch), batch, key)


gradient = jax.jit(jax.grad(loss.__wrapped__, 1), static_argnums=0)


def test_every_backbone_is_covered():
    assert {type(config) for config in MODELS} == set(get_args(Model))


@pytest.mark.parametrize(
    "config",
    quick(MODELS, MODELS[4]),  # ConvBERT; the other tests have ELECTRA
    ids=lambda config: config.kind,
)
def test_every_backbone_trains_and_keeps_its_names(config):
    """The discriminator's parameters have the masked language model's names and shapes; both models learn."""
    objective, params = build(config)
    masked = nn.meta.unbox(boxed_shapes(Masked().build(config, Compute())))
    trunk = {"embedding", "encoder"} if config.layers else {"embedding"}
    same = {name: {k: v.shape for k, v in flatten(params[name]).items()} for name in trunk}
    assert same == {name: {k: v.shape for k, v in flatten(masked[name]).items()} for name in same}
    assert params.keys() == {*trunk, "replaced_head", "generator"}
    assert params["generator"].keys() == {"encoder", "masked_head"}
    batch, _ = batch_of()
    gradients = flatten(gradient(objective, params, batch))
    dead = [path for path, leaf in gradients.items() if not np.abs(leaf).max() > 0 and not path.endswith("key/bias")]
    assert not dead


def test_the_generator_learns_from_its_own_loss_and_the_embedding_from_both():
    objective, params = build(ELECTRA)
    batch, _ = batch_of()

    def term(name):
        gradient = jax.jit(jax.grad(lambda p: objective(p, None, batch, None)[0][name]))(params)
        return {path for path, leaf in flatten(gradient).items() if np.abs(leaf).max() > 0}

    def within(*scopes):
        dead = ("key/bias",)  # a softmax does not see it
        return {p for p in flatten(params) if p.startswith(scopes) and not p.endswith(dead)}

    by_mlm, by_rtd = ({p for p in term(name) if not p.endswith("key/bias")} for name in ("mlm", "rtd"))
    assert by_mlm == within("embedding/", "generator/")
    assert by_rtd == within("embedding/", "encoder/", "replaced_head/")


def test_replacements_are_at_the_masked_positions():
    batch, original = batch_of()
    ids = np.arange(100, 116).reshape(4, 4)
    ids[0, 1] = batch["masked_ids"][0, 1]  # drawn as it was
    made = jax.tree.map(np.asarray, jax.jit(corrupt)(batch, ids))
    expected, replaced = original.copy(), np.zeros(original.shape)
    for row in range(4):
        for slot in range(4 - row):
            place = batch["masked_positions"][row, slot]
            expected[row, place] = ids[row, slot]
            replaced[row, place] = (row, slot) != (0, 1)
    np.testing.assert_array_equal(made["input_ids"], expected)  # position 0, of unused slots, is as it was
    np.testing.assert_array_equal(made["replaced"], replaced)
    assert (made["input_ids"][:, 0] == original[:, 0]).all()


def test_terms_and_metrics_by_hand():
    objective, _ = build(ELECTRA, Replaced(weight=7.0))
    batch, _ = batch_of()
    batch["row_weight"][3] = batch["masked_weights"][3] = 0
    batch["input_ids"][0, batch["masked_positions"][0, 1]] = batch["masked_ids"][0, 1]  # left as it is
    rng = np.random.default_rng(1)
    made = corrupt(batch, rng.integers(5, 50, (4, 4)))
    logits, masked = rng.normal(0, 2, (4, 12)).astype(np.float32), rng.normal(size=(4, 4, 50)).astype(np.float32)
    sums, metrics = objective.loss(made, masked, logits)
    counts = (batch["attention_mask"] * batch["row_weight"][:, None]) > 0
    label, score = np.asarray(made["replaced"])[counts], logits[counts].astype(float)
    assert label.sum() > 3 and counts.sum() < batch["attention_mask"].sum()
    cross = -np.sum(np.log(np.where(label > 0, 1 / (1 + np.exp(-score)), 1 / (1 + np.exp(score)))))
    assert sums["rtd"] == pytest.approx(7 * cross, rel=1e-5)
    assert objective.weights(batch)["rtd"] == counts.sum()
    mean = {name: float(total / weight) for name, (total, weight) in metrics.items()}
    assert mean["rtd_loss"] == pytest.approx(cross / counts.sum(), rel=1e-5)
    assert mean["rtd_accuracy"] == pytest.approx(((score > 0) == (label > 0)).mean())
    assert mean["rtd_precision"] == pytest.approx(label[score > 0].mean())
    assert mean["rtd_recall"] == pytest.approx((score > 0)[label > 0].mean())
    used = batch["masked_weights"] > 0
    log = masked - np.log(np.exp(masked).sum(-1, keepdims=True))
    picked = np.take_along_axis(log, batch["masked_ids"][..., None], 2)[..., 0]
    assert sums["mlm"] == pytest.approx(-picked[used].sum(), rel=1e-5)
    # The generator's input counts, not its output.
    hidden = used & (np.arange(16).reshape(4, 4) != 1)
    assert metrics["mlm_hidden_loss"][1] == hidden.sum() == used.sum() - 1
    assert mean["mlm_hidden_loss"] == pytest.approx(-picked[hidden].mean(), rel=1e-5)
    assert mean["mlm_loss"] == pytest.approx(-picked[used].mean(), rel=1e-5)
    assert mean["mlm_accuracy"] == pytest.approx((masked.argmax(-1) == batch["masked_ids"])[used].mean())


def test_the_area_under_the_curve_is_scipys():
    rng = np.random.default_rng(0)
    scores = np.round(rng.normal(size=(5, 30)), 1).astype(np.float32)  # some are equal
    labels, weights = rng.integers(0, 2, (5, 30)).astype(float), rng.integers(0, 2, (5, 30)).astype(float)
    in_order, pairs = 0.0, 0
    for score, label, weight in zip(scores, labels, weights, strict=True):
        positive, negative = score[(label * weight) > 0], score[((1 - label) * weight) > 0]
        in_order += stats.mannwhitneyu(positive, negative).statistic
        pairs += len(positive) * len(negative)
    ours = pairs_in_order(scores, labels, weights)
    assert (float(ours[0]), float(ours[1])) == (pytest.approx(in_order), pairs)


def test_held_out_rows_are_corrupted_alike_in_any_batch():
    objective, params = build(ELECTRA)
    batch, _ = batch_of(rows=6)
    whole = np.asarray(drawn(objective, params, batch))
    assert (whole != np.asarray(drawn(objective, params, batch, jax.random.key(0)))).any()
    turned = {name: value[[4, 1]] for name, value in batch.items()}
    np.testing.assert_array_equal(drawn(objective, params, turned), whole[[4, 1]])
    greedy = np.asarray(jax.jit(objective.masked_logits)(params, batch)).argmax(-1)
    assert (whole != greedy).mean() > 0.5


def test_training_draws_differ_and_temperature_sharpens():
    objective, params = build(ELECTRA)
    cold, _ = build(ELECTRA, Replaced(temperature=1e-4))
    batch, _ = batch_of()
    draws = [np.asarray(drawn(objective, params, batch, jax.random.key(n))) for n in range(2)]
    assert (draws[0] != draws[1]).any()
    greedy = np.asarray(jax.jit(objective.masked_logits)(params, batch)).argmax(-1)
    np.testing.assert_array_equal(drawn(cold, params, batch, jax.random.key(0)), greedy)


def test_generator_and_discriminator_have_dropout_of_their_own(monkeypatch):
    objective, params = build(dataclasses.replace(ELECTRA, dropout=0.5))
    batch, _ = batch_of()
    calls, apply = [], type(objective)._apply

    def watched(self, method, params, batch, key, *more, **options):
        calls.append((method, key))
        return apply(self, method, params, batch, key, *more, **options)

    monkeypatch.setattr(type(objective), "_apply", watched)
    jax.eval_shape(lambda: calls.clear() or objective(params, None, batch, jax.random.key(0)))
    ((first, first_key), (second, second_key)) = calls
    assert (first, second) == ("generate", "discriminate") and first_key is not second_key
    monkeypatch.undo()
    keys = (None, jax.random.key(0), jax.random.key(1))
    outputs = [np.asarray(jax.jit(objective.replaced_logits)(params, batch, key)) for key in keys]
    assert not any(np.array_equal(outputs[i], outputs[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_padding_and_rows_of_weight_zero_change_nothing():
    objective, params = build(ELECTRA)
    batch, _ = batch_of()
    more = {name: np.concatenate([value, value[:1]]) for name, value in batch.items()}
    more["row_weight"][-1] = more["masked_weights"][-1] = 0
    for other in (test_models.padded(batch), more):
        np.testing.assert_allclose(loss(objective, params, batch), loss(objective, params, other), rtol=1e-6)


def test_bfloat16_keeps_both_logits_in_float32():
    batch, _ = batch_of()
    half, params = build(ELECTRA, dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    masked, replaced = (jax.eval_shape(f, params, batch) for f in (half.masked_logits, half.replaced_logits))
    assert masked.dtype == replaced.dtype == jnp.float32
    exact, _ = build(ELECTRA)
    ours, theirs = (jax.jit(o.replaced_logits)(params, batch) for o in (half, exact))
    assert 0 < np.abs(ours - theirs).max() < 0.3


@pytest.mark.parametrize("name", ["generator_width", "weight", "temperature"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_invalid_numbers_raise(name, value):
    with pytest.raises(ConfigError, match=mentioning(f"{name} = {value}")):
        Replaced(**{name: value})
    with pytest.raises(ConfigError, match=mentioning("generator_width", 11.0)):
        Replaced(generator_width=11.0)


def test_a_generator_without_width_raises():
    with pytest.raises(ConfigError, match=mentioning("hidden_size", 24)):
        Replaced(generator_width=0.01).build(ELECTRA, Compute())


@pytest.mark.parametrize(
    ("config", "width", "size", "heads"),
    [
        (Electra(), 0.25, 64, 1),
        (Bert(), 0.33333, 256, 4),  # as the official configs write 1/3: rounded, not cut to 255
        (Electra(), 1.0, 256, 4),
        (SchuBert(hidden_size=756), 0.25, 189, 1),  # 189 // 64 = 2 heads would not divide it
    ],
)
def test_the_sizes_of_electras_generator(config, width, size, heads):
    generator = generator_of(config, width, Compute())
    layer = generator.encoder.layers[0]
    assert layer.attention.query.features == (heads, size // heads)
    assert layer.feed_forward.intermediate.features == (4 * size,) and len(generator.encoder.layers) == config.layers
    same = size == getattr(config, "embedding_size", config.hidden_size)
    assert (generator.encoder.projection is None) == same


def test_a_models_own_generator_is_used():
    class Own(Electra):
        def generator(self, width):
            return Electra(**SMALL | {"hidden_size": int(10 * width), "heads": 1, "layers": 3}, embedding_size=16)

    generator = generator_of(Own(**SMALL, embedding_size=16), 0.5, Compute())
    assert len(generator.encoder.layers) == 3 and generator.encoder.projection.features == (5,)
