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


def assert_equal_losses(loss, params, tolerance):
    """`loss(params, alone)`, which has an auxiliary result, and its gradients do not depend on `alone`."""
    whole, alone = (jax.jit(jax.value_and_grad(partial(loss, alone=only), has_aux=True))(params) for only in (0, 1))
    np.testing.assert_allclose(alone[0][0], whole[0][0], rtol=1e-5, atol=tolerance)
    size = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(whole[1]))
    chex.assert_trees_all_close(alone[1], whole[1], rtol=1e-4, atol=1e-5 * size)
    return whole[0][1], alone[0][1]


@pytest.mark.parametrize(("name", "remat"), quick(RUNS, ("squeezebert-window", False)))
def test_computing_the_first_token_alone_changes_no_logits_or_gradients(name, remat):
    model = MODELS[name]
    module, random = HEAD.build(model, Compute(remat=remat)), np.random.default_rng(2).normal(size=(3, 3))

    def loss(params, alone):
        method = {"method": "logits"} if alone else {}
        output = apply_model(module, params, batch(), jax.random.key(0), **method)
        return _of(output if alone else output.logits, random), None

    assert_equal_losses(loss, params_of(model, HEAD), 1e-5)  # of nine sines


MASKED = MaskedLanguageModel(sentence=True)
POSITIONS = np.array([[1, 4, 9], [2, 6, 0], [3, 0, 0]])  # the first token fills rows with fewer masked ones


@pytest.mark.parametrize(("name", "remat"), quick(RUNS, ("squeezebert", False)))
def test_computing_the_masked_tokens_alone_changes_no_logits_or_gradients(name, remat):
    model = MODELS[name]
    module = pretraining(model, Compute(remat=remat), sentence=True)
    random = np.random.default_rng(2).normal(size=(3, 3, 61)), np.random.default_rng(3).normal(size=(3, 2))

    def loss(params, alone):
        output = apply_model(module, params, batch(), jax.random.key(0), POSITIONS, masked_only=alone)
        states = output.hidden_states[-1].shape[1]
        return _of(output.masked_logits, random[0]) + _of(output.sentence_logits, random[1]), states

    assert assert_equal_losses(loss, params_of(model, MASKED), 1e-4) == (11, 4)  # of 189 sines


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
    heads = 2 * rows * (2 * length * width - (width * width + 3 * width))  # on every token, over a pooler and one head
    assert _cost(model, TokenClassification()) - saved == _cost(model, HEAD) + heads


def _cost(model, head):
    objective = LabelledObjective(head.build(model, Compute()))
    params = params_of(model, head)
    return matmul_flops(lambda params, batch: objective.logits(params, batch, None), params, batch())
