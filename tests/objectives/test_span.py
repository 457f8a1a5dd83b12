"""Losses and searches for the spans of answers, against numpy from the equations."""

import functools

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from messages import mentioning
from scipy.special import erf, expit, log_expit, log_softmax, softmax
from zoo import drawn

from bertzoo.conversion import huggingface
from bertzoo.conversion.heads import keep_head
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.heads import JointSpanExtraction, NoHead, SpanExtraction, parameter_shapes
from bertzoo.heads.span import JointSpanObjective, SpanObjective
from bertzoo.models import Bert, Compute, Electra
from bertzoo.runs import load_model
from bertzoo.train import sharding
from bertzoo.train.state import boxed_shapes, named

SIZES = {"vocab_size": 30, "hidden_size": 12, "layers": 1, "heads": 2, "feed_forward_size": 8, "max_positions": 16}
PLAIN = Bert(**SIZES, initializer_range=0.3)
JOINT = Electra(**SIZES, embedding_size=6, initializer_range=0.3)
ROWS, LENGTH = 5, 11


@functools.cache
def batch():
    """Rows and questions of different lengths; the last two rows fill the batch."""
    draw = np.random.default_rng(0)
    lengths, first = np.array([11, 9, 11, 7, 7])[:, None], np.array([3, 4, 5, 3, 3])[:, None]
    places = np.arange(LENGTH)
    found = {
        "input_ids": draw.integers(5, 30, (ROWS, LENGTH)),
        "token_type_ids": ((places >= first) & (places < lengths)).astype(np.int32),
        "attention_mask": (places < lengths).astype(np.int32),
        "row_weight": np.array([1, 1, 1, 0, 0], np.float32),
        "start": np.array([4, 0, 6, 3, 3]),
        "end": np.array([6, 0, 6, 4, 4]),
        "answerable": np.array([1, 0, 1, 1, 1], np.float32),
    }
    return {name: jnp.asarray(value) for name, value in found.items()}


@functools.cache
def built(kind):
    """(objective, random parameters, so that no bias is zero)"""
    if kind == "plain":
        objective = SpanObjective(SpanExtraction().build(PLAIN, Compute()))
    else:
        objective = JointSpanObjective(JointSpanExtraction(hidden_size=7, beam=4).build(JOINT, Compute()))
    return objective, drawn(objective.init, jax.random.key(0))


@functools.cache
def hidden(kind):
    """(B,L,D) float64: the last hidden state, and the head's parameters."""
    objective, params = built(kind)
    inputs = [batch()[name] for name in ("input_ids", "token_type_ids", "attention_mask")]
    output = jax.jit(objective.model.apply)({"params": params}, *inputs)
    head = params["span_head" if kind == "plain" else "joint_span_head"]
    return np.asarray(output.hidden_states[-1], float), jax.tree.map(lambda leaf: np.asarray(leaf, float), head)


def dense(x, part):
    return x @ part["kernel"] + part["bias"]


def pair(x, y, part):
    """A dense layer on both vectors concatenated, the exact gelu, a logit, as in the reference."""
    z = dense(np.concatenate(np.broadcast_arrays(x, y), axis=-1), part["dense"])
    return dense(z * 0.5 * (1 + erf(z / np.sqrt(2))), part["output"])[..., 0]


def cross_entropy(logits, labels):
    return -np.take_along_axis(log_softmax(logits, axis=-1), np.asarray(labels)[:, None], axis=1)[:, 0]


@functools.partial(jax.jit, static_argnums=0)
def computed(objective, params, given, key):
    def total(params):
        sums, metrics = objective(params, None, given, key)
        return sum(sums.values()), (sums, metrics)

    gradient, (sums, metrics) = jax.grad(total, has_aux=True)(params)
    return sums, metrics, gradient


predict = jax.jit(lambda objective, params, given: objective.predict(params, given), static_argnums=0)


def loss(kind, key=None, rows=range(3)):
    """(sums, metrics, gradient, weights) of some rows alone."""
    objective, params = built(kind)
    weight = jnp.isin(jnp.arange(ROWS), jnp.array(rows)).astype(jnp.float32)
    given = {**batch(), "row_weight": weight}
    return *computed(objective, params, given, key), objective.weights(given)


def test_the_loss_is_half_of_either_cross_entropy_over_all_positions():
    x, head = hidden("plain")
    start, end = np.moveaxis(dense(x, head["output"]), -1, 0)
    losses = 0.5 * cross_entropy(start, batch()["start"]) + 0.5 * cross_entropy(end, batch()["end"])
    sums, metrics, _, weights = loss("plain")
    assert sums.keys() == weights.keys() == {"span"} and float(weights["span"]) == 3
    np.testing.assert_allclose(sums["span"], losses[:3].sum(), rtol=1e-5)
    np.testing.assert_allclose(metrics["span_loss"], (losses[:3].sum(), 3), rtol=1e-5)
    for name, logits in (("start", start), ("end", end)):
        right = (logits.argmax(-1) == np.asarray(batch()[name]))[:3].sum()
        assert [float(value) for value in metrics[f"{name}_accuracy"]] == [right, 3]
    predicted = predict(*built("plain"), batch())
    np.testing.assert_allclose(predicted["start_logits"], start, atol=1e-5)
    np.testing.assert_allclose(predicted["end_logits"], end, atol=1e-5)


def allowed():
    types, mask = np.asarray(batch()["token_type_ids"]), np.asarray(batch()["attention_mask"])
    return 1000.0 * (np.maximum(types * mask, np.arange(LENGTH) == 0) - 1)


def test_the_joint_loss_reads_the_right_start():
    x, head = hidden("joint")
    start = dense(x, head["start"])[..., 0] + allowed()
    gold = x[np.arange(ROWS), np.asarray(batch()["start"])]
    end = pair(gold[:, None], x, head["end"]) + allowed()
    null = pair(x[:, 0], np.einsum("bl,bld->bd", softmax(start, axis=-1), x), head["null"])
    span = 0.5 * cross_entropy(start, batch()["start"]) + 0.5 * cross_entropy(end, batch()["end"])
    impossible = 1 - np.asarray(batch()["answerable"])
    entropy = -impossible * log_expit(null) - (1 - impossible) * log_expit(-null)
    sums, metrics, _, weights = loss("joint")
    assert sums.keys() == weights.keys() == {"span", "null"} and float(weights["null"]) == 3
    np.testing.assert_allclose(sums["span"], span[:3].sum(), rtol=1e-5)
    np.testing.assert_allclose(sums["null"], 0.5 * entropy[:3].sum(), rtol=1e-5)
    np.testing.assert_allclose(metrics["null_loss"], (entropy[:3].sum(), 3), rtol=1e-5)
    right = ((expit(null) > 0.5) == impossible)[:3].sum()
    assert [float(value) for value in metrics["null_accuracy"]] == [right, 3]


def test_the_search_takes_the_likeliest_starts_and_of_each_the_likeliest_ends():
    x, head = hidden("joint")
    objective, params = built("joint")
    found = {name: np.asarray(value) for name, value in predict(objective, params, batch()).items()}
    start = log_softmax(dense(x, head["start"])[..., 0] + allowed(), axis=-1)
    starts = np.argsort(-start, axis=-1)[:, :4]
    for row in range(ROWS):
        np.testing.assert_array_equal(found["starts"][row], starts[row])
        np.testing.assert_allclose(found["start_scores"][row], start[row, starts[row]], rtol=1e-4)
        for rank, place in enumerate(starts[row]):
            end = log_softmax(pair(x[row, place], x[row], head["end"]) + allowed()[row])
            best = np.argsort(-end)[:4]
            np.testing.assert_allclose(found["end_scores"][row, rank], end[best], rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found["ends"][row, rank], best)
    assert found["ends"].shape == (ROWS, 4, 4) and found["null_score"].shape == (ROWS,)
    null = pair(x[:, 0], np.einsum("bl,bld->bd", np.exp(start), x), head["null"])
    np.testing.assert_allclose(found["null_score"], null, rtol=1e-4, atol=1e-5)


def test_the_search_does_not_depend_on_padding():
    objective, params = built("joint")
    row = {name: value[1:2] for name, value in batch().items()}
    short = {name: value[:, :9] if value.ndim == 2 else value for name, value in row.items()}
    found = [predict(objective, params, given) for given in (row, short)]
    for name in found[0]:
        np.testing.assert_allclose(found[0][name], found[1][name], rtol=1e-5, atol=1e-5, err_msg=name)
    tiny = {name: value[:, :3] if value.ndim == 2 else value for name, value in row.items()}
    assert jax.eval_shape(objective.predict, params, tiny)["ends"].shape == (1, 3, 3)


@pytest.mark.parametrize("kind", ["plain", "joint"])
def test_sums_add_over_parts_of_a_batch_and_every_parameter_learns(kind):
    whole, parts = loss(kind), [loss(kind, rows=rows) for rows in ([0, 2], [1])]
    for name, total in whole[0].items():
        np.testing.assert_allclose(total, sum(part[0][name] for part in parts), rtol=1e-5)
        assert float(whole[3][name]) == sum(float(part[3][name]) for part in parts)
    flat = flax.traverse_util.flatten_dict(whole[2], sep="/")
    dead = {path for path, leaf in flat.items() if not np.abs(leaf).max() > 0}
    assert not {path for path in dead if "pooler" not in path and not path.endswith("key/bias")}
    assert not any("pooler" in path for path in flat) or kind == "plain"
    dropped = [loss(kind, key=jax.random.key(seed))[0]["span"] for seed in (1, 1, 2)]
    assert dropped[0] == dropped[1] != dropped[2] and dropped[0] != whole[0]["span"]


def test_the_joint_head_has_its_names_and_is_placed():
    shapes = parameter_shapes(JOINT, JointSpanExtraction())
    assert {name: shape for name, shape in shapes.items() if name.startswith("joint_span_head")} == {
        "joint_span_head/start/kernel": (12, 1), "joint_span_head/start/bias": (1,),
        "joint_span_head/end/dense/kernel": (24, 512), "joint_span_head/end/dense/bias": (512,),
        "joint_span_head/end/output/kernel": (512, 1), "joint_span_head/end/output/bias": (1,),
        "joint_span_head/null/dense/kernel": (24, 512), "joint_span_head/null/dense/bias": (512,),
        "joint_span_head/null/output/kernel": (512, 1), "joint_span_head/null/output/bias": (1,),
    }  # fmt: skip
    module = JointSpanExtraction().build(PLAIN, Compute())
    boxed = boxed_shapes(JointSpanObjective(module))
    assert "pooler" not in boxed
    mesh = sharding.make_mesh(sharding.Mesh(data=2, fsdp=2, tensor=2))
    for leaf in jax.tree.leaves(boxed["joint_span_head"], is_leaf=lambda leaf: isinstance(leaf, nn.Partitioned)):
        assert len(leaf.names) == leaf.value.ndim
        sharding.place("joint_span_head", leaf.value.shape, leaf.names, mesh)
    for name in ("hidden_size", "beam"):
        with pytest.raises(ConfigError, match=mentioning(f"{name} = 0")):
            JointSpanExtraction(**{name: 0})


def test_a_model_directory_has_the_joint_head(tmp_path):
    head = JointSpanExtraction(hidden_size=7, beam=4)
    params = {name: np.asarray(leaf) for name, leaf in named(built("joint")[1]).items()}
    given = Pretrained(model=JOINT, head=head, params=params, tokenizer=None, origin="here", source={})
    load_model.write_model(given, tmp_path)
    found = load_model.read_model(tmp_path)
    assert found.head == head and found.model == JOINT
    assert found.params.keys() == params.keys()
    bare, left_out = keep_head(found, "none")
    assert {name.split("/")[0] for name in left_out} == {"joint_span_head"} and bare.head == NoHead(pooler=False)
    with pytest.raises(UserError, match=mentioning("Hugging")):
        huggingface.write_huggingface(found, tmp_path / "theirs")


def test_the_joint_heads_kernels_start_glorot_uniform():
    """TF's default, as in the reference: within ±√(6 / (inputs + outputs)), and both layers differ."""
    module = JointSpanExtraction(hidden_size=60).build(JOINT, Compute())
    init = JointSpanObjective(module).init
    head = jax.jit(lambda key: nn.unbox(init(key))["joint_span_head"])(jax.random.key(0))
    bound = np.sqrt(6 / (24 + 60))
    for name in ("end", "null"):
        largest = np.abs(head[name]["dense"]["kernel"]).max()
        assert 0.95 * bound < largest <= bound
    assert np.abs(head["end"]["dense"]["kernel"] - head["null"]["dense"]["kernel"]).max() > 0.1


def test_a_sum_over_the_batch_has_no_denominator():
    for made, terms in ((SpanObjective, {"span"}), (JointSpanObjective, {"span", "null"})):
        weights = [made(model=None, reduction=how).weights(batch()) for how in ("sum", "mean")]
        assert [set(found) for found in weights] == [terms, terms]
        assert all(float(one) == 1 and float(weights[1][term]) == 3 for term, one in weights[0].items())
