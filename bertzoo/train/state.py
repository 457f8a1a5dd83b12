"""The state of a run: everything that a resumed run needs, and nothing else."""

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.parameter import Kernel, Matrix, init_shapes
from bertzoo.train import sharding


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The training state, a pytree; step k draws random numbers with fold_in(key, k)."""

    step: jax.Array  # () int32, number of finished steps
    params: Any
    opt_state: Any
    key: jax.Array  # (2,) uint32, raw key data: the same for the whole run
    position: dict[str, jax.Array]  # {"stage", "row"}, each () int32: the stage, and its rows consumed so far


def _draw(objective: Any, key: jax.Array, names: Collection[str]) -> dict[str, Any]:
    """Return {path: array} for the parameters in `names`, drawn on JAX's default device.

    The draws run one by one, and all of a shape share a compiled function. One program for all of them would take
    minutes of compiling and a GB of memory for MobileBERT on a CPU, and XLA could round it otherwise.
    """
    traced, shapes = jax.make_jaxpr(lambda key: nn.unbox(objective.init(key)), return_shape=True)(key)
    jaxpr, _ = dce_jaxpr(traced.jaxpr, [name in names for name in named(shapes)], instantiate=True)
    drawn = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, traced.consts))(key)
    return dict(zip(filter(names.__contains__, named(shapes)), drawn, strict=True))


def name_of(path: tuple) -> str:
    """Return a parameter's path as text, such as encoder/layers_0/attention/query/kernel."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def named(params: Any) -> dict[str, Any]:
    """Return {path: leaf} for a tree of parameters."""
    return {name_of(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}


@functools.lru_cache(maxsize=16)  # starting a run and reading a model need them several times; a trace takes seconds
def boxed_shapes(objective: Any) -> Any:
    """Return the shapes and dtypes of an objective's parameters, boxed with their logical axis names."""
    return init_shapes(objective.init, jax.random.key(0))


def shapes_of(objective: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Return {path: shape and dtype} for an objective's parameters."""
    return named(nn.unbox(boxed_shapes(objective)))


def matrices_of(objective: Any) -> dict[str, Matrix]:
    """Return {path: which axes form matrices} for the kernels among an objective's parameters."""
    boxes = jax.tree.leaves_with_path(boxed_shapes(objective), is_leaf=lambda leaf: isinstance(leaf, Kernel))
    return {name_of(path): box.matrix for path, box in boxes if isinstance(box, Kernel) and box.matrix}


def abstract_params(objective: Any, mesh: jax.sharding.Mesh) -> Any:
    """Return the shapes, dtypes and shardings of an objective's parameters; raises the errors of `sharding.place`."""
    return placed(boxed_shapes(objective), mesh)


def placed(boxed: Any, mesh: jax.sharding.Mesh, dtype: Any = None) -> Any:
    """Return the shapes, dtypes (or `dtype`) and shardings of boxed parameters; raises the errors of `place`."""
    return jax.tree.map(
        lambda x, split: jax.ShapeDtypeStruct(x.shape, dtype or x.dtype, sharding=split),
        nn.unbox(boxed),
        sharding.shardings(boxed, mesh),
    )


def abstract(objective: Any, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh) -> State:
    """Return the shapes, dtypes and shardings of a training state without computing it.

    Moments are sharded like their parameters; everything else is replicated. Raises the errors of `sharding.place`.
    """
    boxed = boxed_shapes(objective)
    param_shardings = sharding.shardings(boxed, mesh)
    everywhere = sharding.replicated(mesh)
    params = nn.unbox(boxed)
    number: Any = jax.ShapeDtypeStruct((), jnp.int32)
    shapes = State(
        step=number,
        params=params,
        opt_state=jax.eval_shape(optimizer.init, params),
        key=jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0))),
        position={"stage": number, "row": number},
    )
    shardings = jax.tree.map(lambda _: everywhere, shapes)
    opt_shardings = optax.tree_utils.tree_map_params(
        optimizer,
        lambda leaf, split: leaf if _is_masked(leaf) else split,
        shapes.opt_state,
        param_shardings,
        transform_non_params=lambda _: everywhere,
        is_leaf=_is_masked,
    )
    shardings = dataclasses.replace(shardings, params=param_shardings, opt_state=opt_shardings)
    return jax.tree.map(lambda x, split: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split), shapes, shardings)


def _is_masked(leaf: Any) -> bool:
    """Return whether a leaf is optax's placeholder for the moments of a frozen parameter."""
    return isinstance(leaf, optax.MaskedNode)


def put(array: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
    """Return an array, which every process holds whole, on the devices, with the dtype and the sharding of `like`."""
    whole = np.asarray(array, like.dtype)
    return jax.make_array_from_callback(whole.shape, like.sharding, whole.__getitem__)


def shardings_of(tree: Any) -> Any:
    """Return a tree with the sharding of every array or ShapeDtypeStruct in `tree`."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def fresh(
    objective: Any,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    seed: int,
    initial: Mapping[str, np.ndarray] | None = None,
) -> State:
    """Return the initial state of a run: parameters drawn from the seed on each process's CPU.

    initial: arrays by path that replace drawn parameters, without any effect on the others. Raises ValueError if an
    array has a path or a shape that the model does not have.
    """
    shapes, initial = abstract(objective, optimizer, mesh), initial or {}
    params = named(shapes.params)
    for name, array in initial.items():
        if name not in params or params[name].shape != array.shape:
            expected = params[name].shape if name in params else "no such parameter"
            raise ValueError(
                f"initial parameter {name} has shape {array.shape}, but the model has {expected}. Pass this model's."
            )
    try:  # a CPU's memory holds a model that is too large for one device
        host = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
        host = mesh.local_mesh.devices.flat[0]
    with jax.default_device(host):
        init_key, step_key = jax.random.split(jax.random.key(seed))
        arrays = {**initial, **_draw(objective, init_key, params.keys() - initial.keys())}

    def complete(params: Any, key: jax.Array) -> State:
        zero = jnp.zeros((), jnp.int32)
        position = {"stage": zero, "row": zero}
        return State(step=zero, params=params, opt_state=optimizer.init(params), key=key, position=position)

    placed = jax.tree.map_with_path(lambda path, leaf: put(arrays.pop(name_of(path)), leaf), shapes.params)
    # The copies belong to JAX, so that a step can donate them.
    whole = jax.jit(complete, out_shardings=shardings_of(shapes))
    return whole(placed, np.asarray(jax.random.key_data(step_key)))
