"""A model run up to some layer has the whole model's outputs, with layers in a loop or one by one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick
from zoo import drawn

from bertzoo import models
from bertzoo.models import Compute, partial, pretraining
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.platform import Platform, traced_for

SIZES = {"vocab_size": 24, "hidden_size": 8, "layers": 5, "heads": 2, "feed_forward_size": 8, "max_positions": 8}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0}
LOOPS, ONE_BY_ONE = Platform("tpu"), Platform("cpu")
CONFIGS = {
    "albert": models.Albert(**SIZES, embedding_size=4),
    "bert": models.Bert(**SIZES),
    "convbert": models.ConvBert(**SIZES, embedding_size=4),
    "electra": models.Electra(**SIZES, embedding_size=4),
    "mobilebert": models.MobileBert(**SIZES, embedding_size=4, bottleneck_size=4, feed_forwards=2),
    "squeezebert": models.SqueezeBert(
        **SIZES, **{f"{name}_groups": 2 for name in ("query", "key", "value", "intermediate", "output")}
    ),
}


def built(name, **fields):
    return pretraining(dataclasses.replace(CONFIGS[name], **fields), Compute(), sentence=False).clone(pooler=None)


def made(name, **fields):
    model = built(name, **fields)
    ids = jax.random.randint(jax.random.key(1), (3, 6), 0, 24)
    mask = (jnp.arange(6) < jnp.array([6, 4, 3])[:, None]).astype(jnp.int32)
    batch = {"input_ids": ids, "token_type_ids": ids % 2, "attention_mask": mask, "masked_positions": ids[:, :2] % 6}
    return model, drawn(model.init, jax.random.key(0), *batch.values(), deviation=0.02)["params"], batch


@pytest.mark.parametrize("platform", [LOOPS, ONE_BY_ONE], ids=["loops", "one by one"])
@pytest.mark.parametrize("name", quick(CONFIGS, "squeezebert"))
def test_partial_outputs_equal_the_whole_models(name, platform):
    model, params, batch = made(name)
    whole = jax.jit(lambda: model.apply({"params": params}, *batch.values()))()
    numbers = {0, 1, 4, 5}
    for form in (params, partial.stack(params, model.encoder.layers)):
        with traced_for(platform):
            outputs = jax.jit(lambda form: partial.layer_outputs(model, form, batch, numbers, None))(form)
        assert outputs.keys() == numbers
        for layer, reached in outputs.items():
            np.testing.assert_allclose(reached.hidden, whole.hidden_states[layer], atol=2e-6)
            if layer:
                np.testing.assert_allclose(reached.attention, whole.attentions[layer - 1], atol=1e-6)
        assert outputs[0].attention is None


def test_equal_layers_are_recognised():
    """Otherwise every stage would compile its layers one by one, and only the clock would show it."""
    found = {name: partial.alike(built(name).encoder.layers) for name in CONFIGS}
    assert found == {name: name not in ("albert",) for name in CONFIGS}
    layers = built("bert").encoder.layers
    assert not partial.alike([*layers[:2], built("mobilebert").encoder.layers[0]])


@pytest.mark.slow
def test_a_loop_is_compiled_once_and_counted_for_every_layer():
    model, params, batch = made("bert")

    def run(depth):
        def hidden(params):
            with traced_for(LOOPS):
                return partial.layer_outputs(model, params, batch, {depth}, None)[depth].hidden

        return hidden

    programs = {depth: str(jax.make_jaxpr(run(depth))(params)).count("dot_general") for depth in (4, 5)}
    assert programs[4] == programs[5]  # layers 1 to 3 or 4 are the body of one loop
    with traced_for(ONE_BY_ONE):
        plain = jax.make_jaxpr(lambda: partial.layer_outputs(model, params, batch, {5}, None)[5].hidden)()
    assert str(plain).count("dot_general") == 5 * programs[4] / 2  # and here each has its own
    counts = {depth: matmul_flops(run(depth), params) for depth in range(1, 6)}
    steps = {counts[depth + 1] - counts[depth] for depth in range(1, 5)}
    assert len(steps) == 1 and counts[1] <= min(steps)


@pytest.mark.slow
def test_the_gradient_through_the_loop_is_that_through_the_layers():
    model, params, batch = made("mobilebert", norm="layer_norm")

    def looped(params):
        with traced_for(LOOPS):
            return jnp.sum(jnp.sin(partial.layer_outputs(model, params, batch, {5}, None)[5].hidden))

    def whole(params):
        return jnp.sum(jnp.sin(model.apply({"params": params}, *batch.values()).hidden_states[5]))

    ours, theirs = jax.jit(jax.grad(looped))(params), jax.jit(jax.grad(whole))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5 * max(1, np.abs(b).max())), ours, theirs)


def test_dropout_is_drawn_for_each_layer_alone():
    """With a key, a loop draws the same dropout as layers one by one, and each layer draws its own."""
    model, params, batch = made("bert", dropout=0.5)

    def run(wanted, seed):
        given = jax.random.key(seed)
        with traced_for(LOOPS):
            run = jax.jit(lambda params, key: partial.layer_outputs(model, params, batch, wanted, key)[4].hidden)
            return run(params, given)

    together = run({4}, 2)
    np.testing.assert_allclose(together, run({1, 2, 3, 4}, 2), atol=1e-6)
    other = run({4}, 3)
    assert np.abs(other - together).max() > 0.1
