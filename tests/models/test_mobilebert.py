"""What MobileBERT's options and parts do."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import test_models
from arrays import flatten
from messages import mentioning
from test_models import batch_of, build, loss

from bertzoo.core.errors import ConfigError
from bertzoo.models import Compute, MobileBert
from bertzoo.models.attention import GroupedHeads, MixedHeads
from bertzoo.models.parts import layer_factory
from bertzoo.nn import Bottleneck, BottleneckLayer, from_stream
from bertzoo.objectives import Masked
from bertzoo.train.state import boxed_shapes

SMALL = test_models.SMALL | {"embedding_size": 10, "bottleneck_size": 16, "feed_forward_size": 20, "feed_forwards": 2}
RELEASED = MobileBert(**SMALL)
PLAIN = MobileBert(**(SMALL | {"bottleneck_size": None, "feed_forwards": 1}), attention_input="stream")


def objective_of(config, **compute):
    return Masked(sentence="sop").build(config, Compute(**compute))


def hidden(config, batch):
    """The last hidden states of the real tokens."""
    _, params = build(RELEASED)
    inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    encode = functools.partial(objective_of(config).model.apply, train=False, method="encode")
    return jax.jit(encode)({"params": params}, *inputs).hidden_states[-1][batch["attention_mask"] > 0]


@pytest.mark.parametrize("config", [RELEASED, PLAIN], ids=["shared", "plain"])
def test_padding_changes_nothing(config):
    test_models.test_padding_changes_nothing(config)


@pytest.mark.parametrize("mask_padding", [True, False])
def test_trigrams_see_padding_only_if_configured(mask_padding):
    """Other ids in the padding change the last real token of a row and the tokens that see it."""
    batch = batch_of()
    real = batch["attention_mask"] > 0
    assert not real.all()
    config = dataclasses.replace(RELEASED, mask_padding=mask_padding)
    before = hidden(config, batch)
    after = hidden(config, batch | {"input_ids": np.where(real, batch["input_ids"], 7)})
    assert bool(jnp.array_equal(before, after)) == mask_padding


def test_bfloat16_computes_near_float32_and_keeps_float32_where_it_matters():
    test_models.test_bfloat16_keeps_float32_where_it_matters(RELEASED)
    test_models.test_bfloat16_computes_near_float32(RELEASED)


CHANGES = {
    "vocab_size": 60, "embedding_size": 8, "hidden_size": 32, "bottleneck_size": 12, "layers": 2, "heads": 2,
    "feed_forward_size": 24, "feed_forwards": 3, "attention_input": "stream", "norm": "layer_norm", "pooler": True,
    "feed_forward_groups": 2, "attention": GroupedHeads(), "mask_padding": False, "max_positions": 18, "token_types": 3,
    "activation": "gelu", "dropout": 0.5, "attention_dropout": 0.5, "initializer_range": 0.1, "norm_epsilon": 0.1,
}  # fmt: skip


def test_every_option_is_looked_at():
    assert {"kind", *CHANGES} == {field.name for field in dataclasses.fields(MobileBert)}


@pytest.mark.parametrize("field", CHANGES)
def test_every_option_changes_something(field):
    """The shapes of the parameters, their first values or the loss of a training step."""
    other = dataclasses.replace(RELEASED, **{field: CHANGES[field]})
    if shapes(RELEASED) != shapes(other):
        return
    objective, params = build(RELEASED)
    if field == "initializer_range":
        assert len({str(jax.make_jaxpr(objective_of(one).init)(jax.random.key(0))) for one in (RELEASED, other)}) == 2
    else:
        batch, key = batch_of(), jax.random.key(3)
        assert float(loss(objective, params, batch, key)) != float(loss(objective_of(other), params, batch, key))


@functools.cache
def shapes(config):
    return jax.tree.map(jnp.shape, nn.unbox(boxed_shapes(objective_of(config))))


@pytest.mark.slow
@pytest.mark.parametrize("attention_input", ["stream", "bottleneck", "shared"])
@pytest.mark.parametrize(
    "attention", [GroupedHeads(output_groups=2), MixedHeads(kernel_size=3)], ids=["grouped", "mixed"]
)
def test_another_papers_attention_in_the_bottleneck(attention, attention_input):
    """Attention reads the configured input, every leaf has a gradient, and padding has no effect."""
    settings = SMALL | {"attention": attention, "attention_input": attention_input, "feed_forward_groups": 4}
    if attention.kind == "mixed" and attention_input == "shared":
        with pytest.raises(ConfigError, match=mentioning('attention.kind = "mixed"', 'attention_input = "shared"')):
            MobileBert(**settings)
        return
    config = MobileBert(**settings)
    objective = objective_of(config)
    params = nn.unbox(jax.jit(objective.init)(jax.random.key(0)))
    shapes = {path: leaf.shape for path, leaf in flatten(params).items()}
    read = {"stream": 24, "bottleneck": 16, "shared": 16}[attention_input]
    query = shapes["encoder/layers_0/attention/query/kernel"]
    assert query == ((1, read // 4, 16) if attention.kind == "grouped" else (read, 2, 4))
    assert shapes["encoder/layers_0/feed_forward_0/intermediate/kernel"] == (1, 4, 20)
    gradients = jax.jit(jax.grad(lambda params: loss(objective, params, batch_of())))(params)
    still = [path for path, leaf in flatten(gradients).items() if float(jnp.abs(leaf).max()) < 1e-7]
    assert still == ["encoder/layers_0/attention/key/bias"]
    test_models.test_padding_changes_nothing(config)


class Neighbours(nn.Module):
    """A third-party attention, with only the contract attention(x, mask, train) -> (y, probabilities)."""

    dense: nn.Module

    def __call__(self, x, mask, train):
        return self.dense(x * mask[:, :, None]), jnp.zeros((x.shape[0], 1, x.shape[1], x.shape[1]))


class Everything(nn.Module):
    """A dropout that zeroes everything."""

    def __call__(self, x, train):
        return jnp.zeros_like(x) if train else x


def test_dropout_acts_between_a_layer_and_its_stream():
    make = layer_factory(Compute(), 0.3, 1e-12)
    layer = BottleneckLayer(
        bottleneck=Bottleneck(dense=make.dense(16, "model", "bottleneck"), norm=make.norm()),
        attention_input=from_stream,
        attention=Neighbours(dense=make.dense(16, "model", "heads")),
        attention_norm=make.norm(),
        feed_forward=(make.feed_forward(16, 20, "gelu"),),
        feed_forward_norm=(make.norm(),),
        output=make.dense(24, "bottleneck", "model"),
        output_norm=make.norm(),
        dropout=Everything(),
    )
    x, mask = jax.random.normal(jax.random.key(0), (2, 5, 24)), jnp.ones((2, 5), jnp.int32)
    apply = jax.jit(layer.init_with_output, static_argnums=3)
    normed = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    (dropped, _), _ = apply(jax.random.key(1), x, mask, True)
    (kept, _), _ = apply(jax.random.key(1), x, mask, False)
    np.testing.assert_allclose(dropped, normed, atol=1e-5)
    assert float(jnp.abs(kept - normed).max()) > 0.1
