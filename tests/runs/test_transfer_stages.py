"""A student under its teacher: each stage's losses, trained and frozen parameters."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pairs
import pytest
import zoo
from messages import mentioning
from tiers import quick

from bertzoo.core import config
from bertzoo.core.errors import ConfigError
from bertzoo.models.partial import stack
from bertzoo.runs import experiments
from bertzoo.runs.configs import Transfer
from bertzoo.runs.experiments import batch_shapes
from bertzoo.train import optim, sharding
from bertzoo.train import state as states
from bertzoo.train.state import named
from bertzoo.train.step import gradients, make_train_step

SIZES = {
    "kind": "mobilebert", "vocab_size": 32, "embedding_size": 4, "hidden_size": 8, "bottleneck_size": 4, "layers": 3,
    "heads": 2, "feed_forward_size": 8, "feed_forwards": 1, "max_positions": 16, "attention_dropout": 0.5,
    "initializer_range": 0.3,
}  # fmt: skip
TEACHER = {**SIZES, "bottleneck_size": 8, "attention_input": "stream", "norm": "layer_norm"}
STRETCH = {"steps": 4, "batch_size": 4, "max_length": 8, "max_predictions": 3}
TOGETHER = {"learning_rate": 0.1, **STRETCH}


def recipe(**tables):
    given = {
        "teacher": TEACHER,
        "teacher_objective": {"kind": "masked", "sentence": "nsp"},
        "model": SIZES,
        "objective": {"sentence": "nsp"},
        "knowledge": {"dtype": "float32"},
        "transfer": {"kind": "progressive", "learning_rate": 0.1, **STRETCH},
        "data": {"tokenizer": {"kind": "wordpiece", "vocab_size": 32}},
        "optimizer": {"kind": "lamb", "learning_rate": 0.1},
        "distillation": [STRETCH],
    }
    return config.from_dict(Transfer, {**given, **tables})


@functools.cache
def batch():
    made = recipe()
    draw, found = np.random.default_rng(0), {}
    for name, leaf in batch_shapes(made, 0, 4).items():
        found[name] = draw.integers(0, 7 if name == "masked_positions" else 2, leaf.shape).astype(leaf.dtype)
    found["input_ids"] = draw.integers(5, 32, found["input_ids"].shape).astype(np.int32)
    found["masked_ids"] = draw.integers(5, 32, found["masked_ids"].shape).astype(np.int32)
    found["attention_mask"] = (np.arange(8) < np.array([8, 8, 6, 5])[:, None]).astype(np.int32)
    found["masked_weights"] = np.ones_like(found["masked_weights"])
    found["row_weight"] = np.array([1, 1, 0, 1], np.float32)
    return {name: jnp.asarray(value) for name, value in found.items()}


def teaching(made):
    """(stage setups, the teacher's parameters as its modules have them, the same as the objectives want them)"""
    teacher, ids = experiments.teacher_of(made), jnp.ones((1, 4), jnp.int32)
    params = zoo.drawn(teacher.model.init, jax.random.key(9), ids, ids, ids, ids, seed=9)["params"]
    return experiments.build_setups(made), params, {"model": stack(params, teacher.model.encoder.layers)}


def student(setup, seed=0):
    return zoo.drawn(setup.objective.init, jax.random.key(0), seed=seed)


def gradient(setup, params, frozen):
    rows, key = batch(), jax.random.key(0)
    weights = setup.objective.weights(rows)
    return jax.jit(lambda p: gradients(setup.trained, p, frozen, rows, weights, key)[0])(params)


def terms(setup, params, frozen):
    rows = batch()
    sums, metrics = jax.jit(lambda p: setup.objective(p, frozen, rows, None))(params)
    means = divided(sums, setup.objective.weights(rows))
    return {name: float(mean) for name, mean in means.items()}, metrics


def test_one_stage_for_each_layer_and_then_distillation():
    made = recipe()
    assert [setup.name for setup in experiments.build_setups(made)] == [
        "transfer, layer 1 of 3", "transfer, layer 2 of 3", "transfer, layer 3 of 3", "distillation",
    ]  # fmt: skip
    assert [stage.carry for stage in made.stages] == ["params"] * 4
    joint = recipe(transfer={"kind": "joint", **TOGETHER})
    assert [setup.name for setup in experiments.build_setups(joint)] == ["transfer, all 3 layers", "distillation"]
    assert [setup.name for setup in experiments.build_setups(recipe(transfer={"kind": "nothing"}))] == ["distillation"]


def test_the_terms_of_a_layer_are_its_own_and_the_teachers_of_the_same_layer():
    """The released code compares the student's means and variances with those of all the teacher's layers stacked."""
    made = recipe()
    found, teacher, frozen = teaching(made)
    params = student(found[1])
    ours, _ = terms(found[1], params, frozen)
    modules = experiments.teacher_of(made).model, found[1].objective.student.model.clone(pooler=None)
    given = [batch()[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
    own = {name: value for name, value in params.items() if name not in ("pooler", "sentence_head")}
    modules = modules[0], modules[1].clone(sentence_head=None)
    theirs, mine = (
        jax.jit(model.apply)({"params": params}, *given) for model, params in zip(modules, (teacher, own), strict=True)
    )
    assert ours == pytest.approx(pairs.layer_losses(made, 2, mine, theirs, params, batch()), rel=1e-4)
    counted = dataclasses.replace(made.knowledge, pads=True)
    padded, _ = terms(
        dataclasses.replace(found[1], objective=dataclasses.replace(found[1].objective, knowledge=counted)),
        params, frozen,
    )  # fmt: skip
    with_pads = {**batch(), "attention_mask": jnp.ones_like(batch()["attention_mask"])}
    assert padded == pytest.approx(pairs.layer_losses(made, 2, mine, theirs, params, with_pads), rel=1e-4)
    assert all(padded[name] != pytest.approx(ours[name], rel=1e-3) for name in ours)


@pytest.mark.parametrize("lower", quick([0.1, 0.0], 0.1))
def test_a_stages_gradient_is_zero_outside_its_trained_part(lower):
    made = recipe(transfer={"kind": "progressive", "learning_rate": 0.1, "lower_rate": lower, **STRETCH})
    found, _, frozen = teaching(made)
    moving = [name for name, leaf in named(gradient(found[1], student(found[1]), frozen)).items() if leaf.any()]
    trained = {"encoder/layers_1"} | ({"encoder/layers_0"} if lower else set())
    assert {"/".join(name.split("/")[:2]) for name in moving} == trained
    optimizer = optim.build(made.optimizer_of(1), 4, rates=found[1].rates)
    moments = {name for name, leaf in named(optimizer.init(student(found[1]))).items() if leaf.ndim}
    assert moments and all(any(part in name for part in trained) for name in moments)


@pytest.mark.slow
def test_lower_layers_move_at_a_tenth_of_the_rate():
    made = recipe()
    found, _, frozen = teaching(made)
    params, rate = student(found[2]), 0.05
    grads = gradient(found[2], params, frozen)
    whole = {"rates": lambda name: float(name.startswith("encoder/layers"))}
    settings = dataclasses.replace(made.optimizer_of(2), schedule=dataclasses.replace(made.optimizer.schedule))
    moved = []
    for given in (whole, {"rates": found[2].rates}):
        optimizer = optim.build(settings, 4, rate, **given)
        updates, _ = jax.jit(lambda grads, it=optimizer: it.update(grads, it.init(params), params))(grads)
        moved.append(named(updates))
    for name in moved[0]:
        factor = {"encoder/layers_0": 0.1, "encoder/layers_1": 0.1, "encoder/layers_2": 1.0}.get(name[:16], 0.0)
        np.testing.assert_allclose(moved[1][name], factor * moved[0][name], rtol=1e-5, atol=1e-12)
        assert np.any(moved[1][name]) == bool(factor), name


def together(kind, layers, **knowledge):
    """A recipe of one stage for all of so few layers, and distillation."""
    return recipe(
        teacher={**TEACHER, "layers": layers},
        model={**SIZES, "layers": layers},
        knowledge={"dtype": "float32"} | knowledge,
        transfer={"kind": kind, **TOGETHER},
        distillation=[] if kind == "auxiliary" else [STRETCH],
    )


def drawn(made):
    """Parameters of the student, and of the teacher as the objectives read them."""
    found, _, frozen = teaching(made)
    return student(found[0]), frozen


@pytest.mark.slow
def test_joint_transfer_moves_the_layers_alone_and_auxiliary_everything():
    """The auxiliary stage's loss is the joint one's and the distillation's together."""
    joint, after = experiments.build_setups(made := together("joint", 2))
    (auxiliary,) = experiments.build_setups(alone := together("auxiliary", 2))
    assert [setup.name for setup in (auxiliary, after)] == ["transfer, all 2 layers", "distillation"]
    assert [stage.carry for stage in made.stages] == ["params"] * 2
    assert after.objective.pairs == () and auxiliary.objective.pairs == joint.objective.pairs == ((1, 1), (2, 2))
    params, frozen = drawn(made)
    every = list(named(params))
    assert {"embedding/word/embedding", "masked_head/bias", "sentence_head/kernel"} <= set(every)
    layers = {name for name in every if name.startswith("encoder/layers_")}
    assert {name for name in every if joint.rates(name) == 1} == layers
    assert {name for name in every if joint.rates(name) == 0} == set(every) - layers
    assert {auxiliary.rates(name) for name in every} == {1.0}
    assert experiments.copied_names(made) and not experiments.copied_names(alone)

    rows = batch()

    @jax.jit  # all at once: shared parts compile once
    def learn(params, frozen):
        (whole, *parts), key = [setup.objective.weights(rows) for setup in (auxiliary, joint, after)], jax.random.key(0)
        grads, sums, _ = gradients(auxiliary.trained, params, frozen, rows, whole, key)
        apart = [setup.objective(params, frozen, rows, None)[0] for setup in (joint, after)]
        return grads, divided(sums, whole), *map(divided, apart, parts)

    grads, whole, compared, distilled = jax.tree.map(np.asarray, learn(params, frozen))
    assert set(compared) == {"feature", "mean", "variance", "attention"}
    assert set(distilled) == {"mlm", "nsp", "distillation"}
    expected = {name: float(value) for name, value in (compared | distilled).items()}
    assert {name: float(value) for name, value in whole.items()} == pytest.approx(expected, rel=1e-5)
    assert [name for name, leaf in named(grads).items() if not leaf.any()] == []


def divided(sums, weights):
    assert sums.keys() == weights.keys()
    return {name: total / weights[name] for name, total in sums.items()}


@pytest.mark.slow
def test_a_teacher_in_bfloat16_gives_nearly_the_same_losses():
    """It is the teacher alone that is computed less finely."""
    params, frozen = drawn(together("auxiliary", 1))
    found = []
    for dtype in ("float32", "bfloat16"):
        setup, *_ = experiments.build_setups(together("auxiliary", 1, dtype=dtype))
        found.append(terms(setup, params, jax.tree.map(lambda leaf, to=dtype: leaf.astype(to), frozen))[0])
    fine, coarse = found
    assert coarse == pytest.approx(fine, rel=2e-2)
    assert {name for name in fine if coarse[name] == fine[name]} == {"mlm", "nsp"}


def test_a_discriminator_without_a_separate_generator_has_no_distribution():
    """ELECTRA's generator reads MobileBERT's embedding, which no model of its own has."""
    replaced = {"teacher_objective": {"kind": "replaced"}, "objective": {"sentence": "none"}}
    with pytest.raises(ConfigError, match=mentioning("knowledge.ground_truth = 1.0")):
        experiments.build_setups(recipe(**replaced))
    for silent in ({"knowledge": {"ground_truth": 1.0}}, {"distillation": []}):
        assert not experiments.teacher_of(recipe(**replaced, **silent)).predicts


def test_the_distribution_is_mixed_of_truth_and_teacher():
    """α of the label is the true token and the rest the teacher's: one cross-entropy with mixed labels (§3.5)."""
    made = recipe(knowledge={"dtype": "float32", "ground_truth": 0.3})
    found, teacher, frozen = teaching(made)
    setup, params = found[-1], student(found[-1])
    ours, metrics = terms(setup, params, frozen)
    given = [batch()[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
    theirs = jax.jit(experiments.teacher_of(made).model.apply)({"params": teacher}, *given).masked_logits
    mine = jax.jit(lambda params: setup.objective.student.apply(params, batch(), None))(params).masked_logits
    labels = 0.3 * jax.nn.one_hot(batch()["masked_ids"], 32) + 0.7 * jax.nn.softmax(theirs)
    expected = float(jnp.mean(optax.softmax_cross_entropy(mine, labels)))
    assert ours["mlm"] + ours["distillation"] == pytest.approx(expected, rel=1e-5)
    truth = optax.softmax_cross_entropy_with_integer_labels(theirs, batch()["masked_ids"]).mean()
    total, weight = metrics["teacher_mlm_loss"]
    assert total / weight == pytest.approx(float(truth), rel=1e-5)
    alone, _ = jax.jit(lambda params: found[-1].objective.student(params, None, batch(), None))(params)
    assert ours["nsp"] == pytest.approx(float(alone["nsp"] / 3), rel=1e-6)


def test_at_ground_truth_1_the_loss_has_no_teacher():
    made = recipe(knowledge={"dtype": "float32", "ground_truth": 1.0}, transfer={"kind": "nothing"})
    (setup,) = experiments.build_setups(made)
    params = student(setup)
    ours, _ = terms(setup, params, None)
    objective = made.objective.build(made.model, made.compute)
    plain, _ = jax.jit(lambda params: objective(params, None, batch(), None))(params)
    weights = setup.objective.student.weights(batch())
    assert ours == pytest.approx({name: float(plain[name] / weights[name]) for name in plain}, rel=1e-6)
    assert setup.name == "pretraining"


@pytest.mark.slow
def test_transfer_recovers_a_randomised_layer():
    """The student equals the teacher except for a random second layer: progressive transfer restores its states."""
    made = recipe(model=TEACHER, optimizer={"kind": "adamw", "learning_rate": 0.1})
    found, teacher, frozen = teaching(made)
    params = student(found[1])
    layers = {name: teacher["encoder"][name] for name in ("layers_0", "layers_2")}
    params = {**params, "embedding": teacher["embedding"], "encoder": {**params["encoder"], **layers}}
    before, _ = terms(found[1], params, frozen)
    frozen_before = jax.tree.map(np.array, frozen)
    optimizer = optim.build(found[1].optimizer, 600, 0.01, rates=found[1].rates)
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    state = states.fresh(found[1].objective, optimizer, mesh, 0, jax.tree.map(np.asarray, named(params)))
    step = make_train_step(found[1].trained, optimizer)
    for _ in range(600):
        state, report = step(state, frozen, batch())
    total, weight = report["terms"]["feature"]
    after, _ = terms(found[2], state.params, frozen)  # the third layer, the teacher's, reads the second one's output
    lost, _ = terms(found[2], params, frozen)
    assert total / weight < 0.01 * before["feature"]
    assert after["feature"] < 0.03 * lost["feature"] and after["attention"] < 0.05 * lost["attention"]
    chex.assert_trees_all_equal(frozen, frozen_before)
