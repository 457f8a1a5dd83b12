"""schuBERT: uneven layers equal a numpy BERT of the same shapes, and BERT-base's shape is BERT."""

import dataclasses

import flax.linen as nn
import jax
import numpy as np
import pytest
import scipy.special
from messages import mentioning

from bertzoo.core.errors import ConfigError
from bertzoo.models import Bert, Compute, SchuBert, pretraining

SIZES = {"vocab_size": 50, "hidden_size": 22, "max_positions": 16, "initializer_range": 0.3}
UNEVEN = SchuBert(**SIZES, feed_forward_sizes=(20, 34, 1), heads=(3, 2, 1), key_sizes=(7, 5, 1), value_sizes=(4, 9, 2))


def inputs():
    random = np.random.default_rng(0)
    mask = (np.arange(9) < [[9], [6]]).astype(np.int32)
    return random.integers(1, 50, (2, 9)), random.integers(0, 2, (2, 9)), mask, np.array([[1, 3], [2, 2]])


def build(config):
    """The model with random parameters, biases and norms included."""
    model, random = pretraining(config, Compute(), sentence=False), np.random.default_rng(1)
    shapes = nn.meta.unbox(jax.eval_shape(model.init, jax.random.key(0), *inputs())["params"])
    return model, jax.tree.map(lambda leaf: random.normal(0, 0.3, leaf.shape).astype(np.float32), shapes)


def norm(x, p):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * p["scale"] + p["bias"]


def reference(params, ids, types, mask):
    """Hidden states and probabilities of the paper's equations (section 3) in float64, head by head."""
    params = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
    tables, length = params["embedding"], ids.shape[1]
    x = tables["word"]["embedding"][ids] + tables["token_type"]["embedding"][types]
    x = norm(x + tables["position"]["embedding"][:length], tables["norm"])
    hidden, attentions = [x], []
    for index in range(len(params["encoder"])):
        layer = params["encoder"][f"layers_{index}"]
        attention, maps, mixed = layer["attention"], [], layer["attention"]["output"]["bias"]
        for head in range(attention["query"]["kernel"].shape[1]):
            q, k, v = (
                x @ attention[name]["kernel"][:, head] + attention[name]["bias"][head]
                for name in ("query", "key", "value")
            )
            scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]) + np.where(mask[:, None], 0, -np.inf)
            maps.append(scipy.special.softmax(scores, -1))
            mixed = mixed + maps[-1] @ v @ attention["output"]["kernel"][head]
        x = norm(x + mixed, layer["attention_norm"])
        inner, outer = layer["feed_forward"]["intermediate"], layer["feed_forward"]["output"]
        z = x @ inner["kernel"] + inner["bias"]
        z = z * scipy.special.ndtr(z)
        x = norm(x + z @ outer["kernel"] + outer["bias"], layer["feed_forward_norm"])
        hidden.append(x)
        attentions.append(np.stack(maps, 1))
    return hidden, attentions


def test_uneven_layers_equal_numpy():
    model, params = build(UNEVEN)
    ids, types, mask, positions = inputs()
    output = jax.jit(model.apply)({"params": params}, ids, types, mask, positions)
    hidden, attentions = reference(params, ids, types, mask)
    assert (len(output.hidden_states), len(output.attentions)) == (4, 3)
    for ours, theirs in zip(output.hidden_states + output.attentions, hidden + attentions, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_without_a_cut_it_is_bert():
    even = SchuBert(**SIZES, feed_forward_sizes=(30, 30), heads=(2, 2), key_sizes=(11, 11), value_sizes=(11, 11))
    model, params = build(even)
    bert, same = build(Bert(**SIZES, layers=2, heads=2, feed_forward_size=30))
    assert jax.tree.structure(params) == jax.tree.structure(same)
    ours, theirs = (jax.jit(m.apply)({"params": params}, *inputs()) for m in (model, bert))
    np.testing.assert_array_equal(ours.masked_logits, theirs.masked_logits)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"heads": (3, 2)}, ("heads", 2, "feed_forward_sizes", 3)),
        ({"value_sizes": (4, 0, 2)}, ("value_sizes = (4, 0, 2)",)),
        ({"feed_forward_sizes": ()}, ("feed_forward_sizes",)),
    ],
)
def test_shapes_that_disagree_raise(change, named):
    with pytest.raises(ConfigError, match=mentioning(*named)):
        dataclasses.replace(UNEVEN, **change)
