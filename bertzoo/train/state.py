"""The state of a run as pure data: everything that a resumed run needs, and nothing else."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from bertzoo.train import sharding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """A pytree; the randomness of step k is fold_in(key, k)."""

    step: jax.Array  # () int32, steps done
    params: Any
    opt_state: Any
    key: jax.Array  # (2,) uint32, raw key data: the same for the whole run
    position: dict[str, jax.Array]  # {"stage", "row"} () int32: rows of the stage consumed so far


def _init(objective: Any, optimizer: optax.GradientTransformation, seed: int) -> State:
    init_key, step_key = jax.random.split(jax.random.key(seed))
    params = nn.unbox(objective.init(init_key))
    zero = jnp.zeros((), jnp.int32)
    return State(
        step=zero,
        params=params,
        opt_state=optimizer.init(params),
        key=jax.random.key_data(step_key),
        position={"stage": zero, "row": zero},
    )


def abstract_params(objective: Any, mesh: jax.sharding.Mesh) -> Any:
    """The shapes, dtypes and shardings of the parameters alone; raises as `sharding.partition` does."""
    boxed = jax.eval_shape(objective.init, jax.random.key(0))
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        nn.unbox(boxed),
        sharding.shardings(boxed, mesh),
    )


def abstract(objective: Any, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh) -> State:
    """The shapes, dtypes and shardings of a state, without computing it; raises as `sharding.partition` does.

    The moments are placed like their parameters, all else is on every device.
    """
    boxed = jax.eval_shape(objective.init, jax.random.key(0))
    placed = sharding.shardings(boxed, mesh)
    everywhere = sharding.replicated(mesh)
    shapes = jax.eval_shape(lambda: _init(objective, optimizer, 0))
    places = jax.tree.map(lambda _: everywhere, shapes)
    opt_places = optax.tree_utils.tree_map_params(
        optimizer, lambda _, place: place, shapes.opt_state, placed, transform_non_params=lambda _: everywhere
    )
    places = dataclasses.replace(places, params=placed, opt_state=opt_places)
    return jax.tree.map(lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), shapes, places)


def shardings_of(tree: Any) -> Any:
    """The shardings of a tree of arrays or of their descriptions."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def fresh(objective: Any, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh, seed: int) -> State:
    """The state of a run that has not started: parameters drawn from the seed, each device computing its own part."""
    places = shardings_of(abstract(objective, optimizer, mesh))
    return jax.jit(lambda: _init(objective, optimizer, seed), out_shardings=places)()
