"""Computing only the tokens that a head reads in the last layer changes neither logits nor gradients."""

import dataclasses
from functools import partial

import chex
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import quick
from zoo import CASES, LAYERS, SIZES, WINDOWED, inputs, pretrained

from bertzoo.heads import MaskedLanguageModel, SequenceClassification, TokenClassification
from bertzoo.heads.base import apply_model
from bertzoo.heads.labels import LabelledObjective
from bertzoo.models import Bert, Compute, pretraining
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.positions import tokens_read

HEAD = SequenceClassification(labels=("a", "b", "c"), dropout=0.0)
# One of every class of layer, attention and convolution.
NAMES = (
    *("albert", "bottleneck-mixed-grouped", "convbert-dynamic", "convbert-fixed", "convbert-span", "ib-bert"),
    *("mobilebert", "mobilebert-tiny", "schubert", "squeezebert"),
)
MODELS = {
    name: dataclasses.replace(model, dropout=0.0, attention_dropout=0.0)
    for name, model in {**{name: CASES[name][0] for name in NAMES}, "squeezebert-window": WINDOWED}.items()
}


def params_of(model, head):
    return flax.traverse_util.unflatten_dict(pretrained(model, head).params, sep="/")


def batch():
    ids, segments, mask = inputs()
    known = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
    return {**known, "label": np.array([2, 0, 1]), "row_weight": np.array([1.0, 0.5, 1.0], np.float32)}


RUNS = [*((name, False) for name in MODELS), ("mobilebert", True), ("convbert-span", True)]


@pytest.mark.parametrize(("name", "remat"), quick(RUNS, ("squeezebert-window", False)))
def test_computing_the_first_token_alone_changes_no_logits_or_gradients(name, remat):
    model = MODELS[name]
    module, params = HEAD.build(model, Compute(remat=remat)), params_of(model, HEAD)
    random = np.random.default_rng(2).normal(size=(3, 3))

    @jax.jit
    def both(params):
        whole = jax.value_and_grad(lambda p: _of(apply_model(module, p, batch(), jax.random.key(0)).logits, random))
        alone = jax.value_and_grad(
            lambda p: _of(apply_model(module, p, batch(), jax.random.key(0), method="logits"), random)
        )
        return whole(params), alone(params)

    (whole, expected), (alone, got) = both(params)
    np.testing.assert_allclose(alone, whole, rtol=1e-5, atol=1e-5)  # of nine sines
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected))
    chex.assert_trees_all_close(got, expected, rtol=1e-4, atol=1e-5 * size)


MASKED = MaskedLanguageModel(sentence=True)
POSITIONS = np.array([[1, 4, 9], [2, 6, 0], [3, 0, 0]])  # the first token fills rows with fewer masked ones


@pytest.mark.parametrize(("name", "remat"), quick(RUNS, ("squeezebert", False)))
def test_computing_the_masked_tokens_alone_changes_no_logits_or_gradients(name, remat):
    model = MODELS[name]
    module, params = pretraining(model, Compute(remat=remat), sentence=True), params_of(model, MASKED)
    random = np.random.default_rng(2).normal(size=(3, 3, 61)), np.random.default_rng(3).normal(size=(3, 2))

    def loss(params, masked_only):
        output = apply_model(module, params, batch(), jax.random.key(0), POSITIONS, masked_only=masked_only)
        states = output.hidden_states[-1].shape[1]
        return _of(output.masked_logits, random[0]) + _of(output.sentence_logits, random[1]), states

    whole, alone = (jax.jit(jax.value_and_grad(partial(loss, masked_only=only), has_aux=True)) for only in (0, 1))
    ((expected, tokens), by_whole), ((got, read), by_alone) = whole(params), alone(params)
    assert (tokens, read) == (11, 4)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)  # of 189 sines
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(by_whole))
    chex.assert_trees_all_close(by_alone, by_whole, rtol=1e-4, atol=1e-5 * size)


def test_the_tokens_read_are_even_in_number_and_fewer_than_all():
    masked_BP = jnp.arange(1, 4)[None]
    assert tokens_read(masked_BP, 4) is None
    np.testing.assert_array_equal(tokens_read(masked_BP, 5), [[0, 1, 2, 3]])
    np.testing.assert_array_equal(tokens_read(masked_BP[:, :2], 5), [[0, 0, 1, 2]])


def _of(logits, random):
    return jnp.sum(random * jnp.sin(logits))


def test_queries_and_feed_forward_of_other_tokens_are_not_computed_in_the_last_layer():
    model = Bert(**SIZES, **LAYERS)
    rows, length, width, feed_forward = 3, 11, model.hidden_size, model.feed_forward_size
    others = rows * (length - 1)
    # Query and output maps, both products of attention, and the feed-forward.
    saved = 2 * others * (2 * width * width + 2 * length * width + 2 * width * feed_forward)
    assert _cost(model, TokenClassification()) - saved == _cost(model, HEAD) + _heads(rows, length, width)


def _heads(rows, length, width):
    """Extra operations of a head on every token over a pooler and a head on one."""
    return 2 * rows * (2 * length * width - (width * width + 3 * width))


def _cost(model, head):
    objective = LabelledObjective(head.build(model, Compute()))
    params = params_of(model, head)
    return matmul_flops(lambda params, batch: objective.logits(params, batch, None), params, batch())
