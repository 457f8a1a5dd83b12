"""Properties of the models that need no reference."""

import dataclasses
import functools
import re
from typing import get_args

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import mentioning
from tiers import quick
from zoo import batch_of, drawn

from bertzoo.core.config import divisors
from bertzoo.core.errors import ConfigError
from bertzoo.models import (
    Albert,
    Bert,
    Compute,
    ConvBert,
    DistilBert,
    Electra,
    MobileBert,
    Model,
    ModernBert,
    SchuBert,
    SqueezeBert,
    Static,
)
from bertzoo.models.compute import ACTIVATIONS
from bertzoo.models.parts import WIDEST
from bertzoo.nn.platform import Platform, traced_for
from bertzoo.nn.products import RESULTS_VARIABLE
from bertzoo.objectives import Masked
from bertzoo.objectives.masked import hidden_slots, masked_metrics
from bertzoo.train.state import boxed_shapes

SMALL = {
    "vocab_size": 50, "hidden_size": 24, "layers": 1, "heads": 4, "feed_forward_size": 48, "max_positions": 16,
    "initializer_range": 0.3,
}  # fmt: skip
UNEVEN = {name: value for name, value in SMALL.items() if name not in ("layers", "heads", "feed_forward_size")}
MODELS = [
    Bert(**SMALL),
    SqueezeBert(**SMALL),
    Albert(**SMALL | {"embedding_size": 10, "layers": 2, "dropout": 0.1, "attention_dropout": 0.1}),
    DistilBert(**SMALL),
    Electra(**SMALL | {"embedding_size": 10}),
    ConvBert(**SMALL | {"embedding_size": 10, "kernel_size": 5, "feed_forward_groups": 2}),
    SchuBert(**UNEVEN, feed_forward_sizes=(20, 34), heads=(3, 2), key_sizes=(7, 5), value_sizes=(4, 9)),
    ModernBert(**SMALL | {"layers": 3}, window=4, global_every=2),
]
TABLE = Static(**UNEVEN)


@functools.cache
def build(config, sentence=None, **compute):
    sentence = sentence or ("sop" if config.layers else "none")
    objective = Masked(sentence=sentence).build(config, Compute(**compute))
    return objective, drawn(objective.init, jax.random.key(1))


@functools.partial(jax.jit, static_argnums=0)
def loss(objective, params, batch, key=None):
    sums, _ = objective(params, None, batch, key)
    return sum(sums[term] / weight for term, weight in objective.weights(batch).items())


def padded(batch):
    """The batch with four more tokens of padding, with ids."""
    return {
        name: np.pad(value, ((0, 0), (0, 4)), constant_values=7 * (name == "input_ids"))
        if value.shape[1:] == (12,)
        else value
        for name, value in batch.items()
    }


def test_every_model_is_covered():
    others = {MobileBert, Static}  # have files of their own
    assert {type(config) for config in MODELS} | others == set(get_args(Model))


@pytest.mark.parametrize("config", quick([*MODELS, TABLE], MODELS[1], MODELS[5], TABLE), ids=lambda config: config.kind)
def test_padding_changes_nothing(config):
    (objective, params), batch = build(config), batch_of()
    np.testing.assert_allclose(loss(objective, params, batch), loss(objective, params, padded(batch)), rtol=1e-6)


# One for each way to wire a layer; the other families make theirs by the same function.
@pytest.mark.parametrize("config", MODELS[:1], ids=lambda config: config.kind)
def test_remat_changes_nothing_but_memory(config):
    batch, key = batch_of(), jax.random.key(3)
    plain, params = build(config)
    rematerialised, _ = build(config, remat=True)
    expected = jax.value_and_grad(lambda p: loss(plain, p, batch, key))(params)
    found = jax.value_and_grad(lambda p: loss(rematerialised, p, batch, key))(params)
    chex.assert_trees_all_close(found, expected, rtol=1e-5, atol=1e-6)
    lowered = jax.make_jaxpr(jax.grad(lambda p: loss(rematerialised, p, batch, key)))(params)
    assert "remat" in str(lowered)


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.kind)
def test_bfloat16_keeps_float32_where_it_matters(config):
    objective = Masked(sentence="sop" if config.layers else "none").build(config, Compute(dtype="bfloat16"))
    params = nn.meta.unbox(boxed_shapes(objective))
    inputs = [batch_of()[name] for name in list(batch_of())[:4]]
    output = jax.eval_shape(lambda params: objective.model.apply({"params": params}, *inputs), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert {array.dtype for array in output.hidden_states} == {jnp.dtype("bfloat16")}
    kept = [*output.attentions, output.masked_logits, output.sentence_logits]
    assert {array.dtype for array in kept if array is not None} == {jnp.dtype("float32")}


@pytest.mark.parametrize("config", MODELS[:2], ids=lambda config: config.kind)
def test_bfloat16_computes_near_float32(config):
    (objective, params), (half, _) = build(config), build(config, dtype="bfloat16")
    expected, found = float(loss(objective, params, batch_of())), float(loss(half, params, batch_of()))
    assert found == pytest.approx(expected, rel=0.05) and found != expected


@pytest.mark.parametrize("config", quick(MODELS, MODELS[1], MODELS[2]), ids=lambda config: config.kind)
def test_training_and_evaluation_in_bfloat16_use_the_fast_form_of_products(config, monkeypatch):
    """All products of a CPU's program have bfloat16 matrices and a float32 result."""
    monkeypatch.setenv(RESULTS_VARIABLE, "float32")
    objective, params = build(config, "none", dtype="bfloat16")
    batch = batch_of()

    def summed(params, key):
        return sum(jax.tree.leaves(objective(params, None, batch, key)[0]))

    programs = {
        "training": jax.jit(jax.grad(summed)).trace(params, jax.random.key(0)),
        "evaluation": jax.jit(lambda params: summed(params, None)).trace(params),
        "logits": jax.jit(lambda params: objective.masked_logits(params, batch)).trace(params),
    }
    formats = r"dot_general .*: \(tensor<[\dx]*x(\w+)>, tensor<[\dx]*x(\w+)>\) -> tensor<[\dx]*x(\w+)>"
    for name, traced in programs.items():
        dots = re.findall(formats, traced.lower(lowering_platforms=("cpu",)).as_text())
        assert len(dots) > 5 and set(dots) == {("bf16", "bf16", "f32")}, name


def test_rows_of_weight_zero_do_not_count():
    objective, params = build(MODELS[1])
    batch = batch_of(rows=4)
    more = {name: np.concatenate([value, value[:1]]) for name, value in batch.items()}
    more["row_weight"][-1], more["masked_weights"][-1] = 0, 0
    np.testing.assert_allclose(loss(objective, params, batch), loss(objective, params, more), rtol=1e-6)


def training(config):
    """The program of training a model, with constants, as text."""
    objective = Masked(sentence="none").build(config, Compute())
    params = nn.meta.unbox(boxed_shapes(objective))
    return str(jax.make_jaxpr(lambda params, key: objective(params, None, batch_of(), key))(params, jax.random.key(0)))


def initialising(config):
    return str(jax.make_jaxpr(Masked(sentence="none").build(config, Compute()).init)(jax.random.key(0)))


@pytest.mark.parametrize("config", quick(MODELS, MODELS[1], MODELS[5]), ids=lambda config: config.kind)
def test_every_option_changes_something(config):
    """Every field besides sizes changes the computation or the initial values."""
    before = training(config)
    for field, value in {"dropout": 0.5, "attention_dropout": 0.5, "norm_epsilon": 0.1, "activation": "relu"}.items():
        assert training(dataclasses.replace(config, **{field: value})) != before, field
    other = dataclasses.replace(config, initializer_range=0.1)
    assert initialising(other) != initialising(config) and training(other) == before


def test_the_loss_over_hidden_tokens_by_hand():
    """The loss covers used slots whose token the input hides; a batch without any has weight 0."""
    batch, rows = batch_of(rows=6, seed=3), np.arange(6)[:, None]
    seen = batch["input_ids"][rows, batch["masked_positions"]]
    batch["masked_weights"] = np.tile(np.float32([1, 1, 0]), (6, 1))
    batch["masked_ids"] = np.stack([seen[:, 0], seen[:, 1] % 49 + 1, seen[:, 2] % 49 + 1], 1)  # the first left as it is
    batch["masked_ids"][5, 1] = seen[5, 1]  # drawn at random, as it was
    logits = np.random.default_rng(0).normal(size=(6, 3, 50))
    cross = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, batch["masked_ids"][..., None], 2)[..., 0]
    metrics = masked_metrics(logits, batch, hidden_slots(batch))
    assert metrics["mlm_hidden_loss"] == (pytest.approx(cross[:5, 1].sum(), rel=1e-5), 5)
    assert metrics["mlm_loss"] == (pytest.approx(cross[:, :2].sum(), rel=1e-5), 12)
    batch["masked_weights"][:, 1] = 0
    metrics = masked_metrics(logits, batch, hidden_slots(batch))
    assert metrics["mlm_hidden_loss"] == (0, 0) and metrics["mlm_loss"][1] == 6


@pytest.mark.parametrize("config", MODELS, ids=lambda config: config.kind)
def test_the_pooler_exists_only_if_something_trains_it(config):
    """Decay alone would shrink it; all other names stay."""
    objectives = {name: Masked(sentence=name).build(config, Compute()) for name in ("none", "sop")}
    params = {name: nn.meta.unbox(boxed_shapes(o)) for name, o in objectives.items()}
    assert params["none"].keys() == {"embedding", "encoder", "masked_head"}
    assert params["sop"].keys() - {"pooler"} == params["none"].keys() | {"sentence_head"}
    assert ("pooler" in params["sop"]) == (config.backbone(Compute()).pooler is not None)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ({"layers": 1001}, ("layers", 1001, 1000)),
        ({"hidden_size": 2**31}, ("hidden_size", 2**31, 2**31 - 1)),
        ({"hidden_size": 2**31 - 1}, ("heads", 4, "hidden_size", 2**31 - 1, 1)),  # a prime
    ],
)
def test_sizes_that_no_machine_holds_raise(sizes, parts):
    with pytest.raises(ConfigError, match=mentioning(*parts)):
        Bert(**{**SMALL, **sizes})
    assert Bert(**{**SMALL, "layers": 1000}).layers == 1000


def test_divisors_of_any_size_are_found_at_once():
    assert [divisors(size) for size in (1, 2, 36, 37)] == [[1], [1, 2], [1, 2, 3, 4, 6, 9, 12, 18, 36], [1, 37]]
    divisions = []

    class Size(int):
        def __mod__(self, other: int) -> int:
            divisions.append(other)
            return int(self) % other

    assert divisors(Size(WIDEST)) == [1, WIDEST] and len(divisions) < 50_000


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_an_activation_of_bfloat16_rounds_once_on_cpus_and_so_does_its_gradient(name, monkeypatch):
    monkeypatch.setenv(RESULTS_VARIABLE, "float32")  # as on a processor with bfloat16 instructions
    activation = ACTIVATIONS[name]
    x = jnp.linspace(-4, 4, 2001, dtype=jnp.bfloat16)
    value, pull = jax.vjp(activation, x)
    exact, pull_exact = jax.vjp(activation, x.astype(jnp.float32))
    chex.assert_trees_all_equal(value, exact.astype(jnp.bfloat16))
    change = jnp.full_like(x, 0.7)
    chex.assert_trees_all_equal(pull(change)[0], pull_exact(change.astype(jnp.float32))[0].astype(jnp.bfloat16))
    with traced_for(Platform("tpu")):
        assert {str(v.aval.dtype) for e in jax.make_jaxpr(activation)(x).eqns for v in e.outvars} == {"bfloat16"}
