"""The mesh, the table of logical names, and many devices equal to one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from jax.sharding import NamedSharding, PartitionSpec
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError
from bertzoo.train import optim, sharding
from bertzoo.train import state as states
from bertzoo.train.step import make_train_step, put_batch


def test_a_mesh_axis_of_minus_one_takes_the_remaining_devices():
    assert dict(toy.mesh(8).shape) == {"data": 8, "fsdp": 1, "tensor": 1}
    assert dict(toy.mesh(8, tensor=2, fsdp=2).shape) == {"data": 2, "fsdp": 2, "tensor": 2}


def test_placements_follow_the_table_without_axes_of_size_one():
    names = ("model", "heads", "head_size")
    mesh = toy.mesh(8, data=2, fsdp=2, tensor=2)
    assert sharding.place("query/kernel", (8, 4, 2), names, mesh).spec == PartitionSpec("fsdp", "tensor", None)
    assert sharding.place("query/kernel", (8, 3, 2), names, toy.mesh(8)).spec == PartitionSpec(None, None, None)
    assert sharding.place("x", (8, 3), (None, None), mesh).spec == PartitionSpec(None, None)


@pytest.mark.parametrize(
    ("shape", "names", "error", "named"),
    [
        ((8, 8), ("model", "no_such"), ValueError, ("w/kernel", "(8, 8)", "no_such")),
        ((8, 8), ("model",), ValueError, ("w/kernel", "(8, 8)")),
        ((8, 8), ("model", "model"), ConfigError, ("w/kernel", "(8, 8)", "fsdp")),
        ((7, 8), ("vocab", "embed"), ConfigError, ("w/kernel", "(7, 8)", "tensor=2", "model.vocab_size to 8")),
    ],
)
def test_names_and_shapes_that_do_not_fit_raise(shape, names, error, named):
    with pytest.raises(error, match=mentioning(*named)):
        sharding.place("w/kernel", shape, names, toy.mesh(8, data=2, fsdp=2, tensor=2))


@pytest.mark.parametrize(
    ("shape", "names", "spec", "named"),
    [
        # Another dimension takes the axis, and the others stay where they were.
        ((8, 3, 4), ("model", "heads", "head_size"), ("fsdp", None, "tensor"),
         ("heads", 3, "tensor=2", "head_size", 4)),
        ((7, 3, 4), ("model", "heads", "head_size"), (None, None, "fsdp"),
         ("model", 7, "fsdp=2", "head_size", "heads", 3, "tensor=2", "whole")),
        ((7, 2), ("model", "feed_forward"), (None, "tensor"), ("model", 7, "fsdp=2", "whole")),
        # None fits: one is uneven too, one is not in FALLBACKS.
        ((8, 3, 5), ("model", "heads", "head_size"), ("fsdp", None, None), ("heads", 3, "tensor=2", "whole")),
        ((7, 8), ("model", "pooled"), (None, None), ("model", 7, "fsdp=2", "whole")),
        ((7, 3), ("model", "bottleneck"), (None, None), ("model", 7, "fsdp=2", "bottleneck", 3, "tensor=2", "whole")),
        # Divisible dimensions do not need it.
        ((8, 2, 4), ("model", "heads", "head_size"), ("fsdp", "tensor", None), None),
    ],
)  # fmt: skip
def test_a_fallback_is_used_and_reported(shape, names, spec, named):
    placed = sharding.place("w", shape, names, toy.mesh(8, data=2, fsdp=2, tensor=2))
    assert placed.spec == PartitionSpec(*spec)
    assert all(line.startswith("w: ") for line in placed.taken)
    assert not placed.taken if named is None else mentions("\n".join(placed.taken), *named)


def test_the_feed_forward_is_split_instead_of_the_model_where_no_axis_takes_it():
    placed = sharding.place("w", (7, 8), ("model", "feed_forward"), toy.mesh(8, data=4, fsdp=2))
    assert placed.spec == PartitionSpec(None, "fsdp")


def test_a_step_uses_whole_parameters_and_gets_split_gradients():
    mesh = toy.mesh(8, fsdp=2, tensor=2)
    specs = {"kernel": ("fsdp", "tensor"), "table": ("tensor",), "whole": ()}
    places = {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}
    params = {name: jax.device_put(jnp.ones((4, 8)), place) for name, place in places.items()}
    used = jax.jit(lambda params: sharding.as_used(params, places))(params)
    assert {name: leaf.sharding.spec for name, leaf in used.items()} == {
        "kernel": PartitionSpec(None, "tensor"), "table": PartitionSpec("tensor"), "whole": PartitionSpec()
    }  # fmt: skip
    gradient = jax.jit(jax.grad(lambda params: jnp.sum(sharding.as_used(params, places)["kernel"] ** 2)))(params)
    assert gradient["kernel"].sharding.spec == places["kernel"].spec
    np.testing.assert_array_equal(gradient["kernel"], np.full((4, 8), 2.0))


def test_moments_are_split_like_their_parameters():
    optimizer = optim.build(optim.Lamb(learning_rate=0.1), 10)
    state = states.fresh(toy.Toy(), optimizer, toy.mesh(8, fsdp=2, tensor=2), seed=0)
    kernel = state.params["hidden"]["kernel"].sharding
    assert kernel.spec == PartitionSpec("fsdp", "tensor")
    for moments in (leaf for leaf in jax.tree.leaves_with_path(state.opt_state) if "hidden" in str(leaf[0])):
        assert moments[1].sharding == state.params["hidden"][moments[0][-1].key].sharding
    assert state.step.sharding.is_fully_replicated and state.key.sharding.is_fully_replicated


@pytest.mark.parametrize(("rows", "accumulate"), [(12, 1), (16, 4)])
def test_rows_that_do_not_divide_name_the_batch_and_the_mesh(rows, accumulate):
    stages = (toy.stage(1, batch_size=rows, accumulate=accumulate),)
    with pytest.raises(
        ConfigError, match=mentioning(f"batch_size={rows}", f"accumulate={accumulate}", 8, "data=4", "fsdp=2")
    ):
        toy.job(stages=stages, mesh=toy.mesh(8, fsdp=2))


def train(mesh: jax.sharding.Mesh, accumulate: int):
    objective, optimizer = toy.Toy(dropout=0.3), optim.build(optim.Lamb(learning_rate=0.02), 10)
    abstract = states.abstract(objective, optimizer, mesh)
    state = states.fresh(objective, optimizer, mesh, seed=3)
    step = make_train_step(objective, optimizer, accumulate=accumulate, shardings=states.shardings_of(abstract))
    losses = []
    for k in range(4):
        state, report = step(state, None, put_batch(toy.batch(0, 16 * k), mesh))
        losses.append(sum(float(total) / float(weight) for total, weight in report["terms"].values()))
    return np.array(losses), toy.copy(state.params)


@pytest.mark.parametrize(("sizes", "accumulate"), [({}, 1), ({"fsdp": 2, "tensor": 2}, 2)])
def test_eight_devices_equal_one(sizes, accumulate: int):
    losses, params = train(toy.mesh(8, **sizes), accumulate)
    expected_losses, expected = train(toy.mesh(1), accumulate)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())
