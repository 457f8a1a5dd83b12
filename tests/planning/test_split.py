"""Along which dimension values are split: by hand, and against what XLA adds up between real devices."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bertzoo.planning import hlo
from bertzoo.planning.alive import alive
from bertzoo.planning.fusion import Cut, Flat
from bertzoo.planning.split import outputs

PARTS = 2


def split(function, *arguments, along):
    """(the dimension of the result of a function of one operation, whether it is summed)."""
    (equation,) = jax.make_jaxpr(function)(*arguments).jaxpr.eqns
    (dimension, *_), summed = outputs(equation, along, PARTS)
    return dimension, summed


A, B = jnp.zeros((4, 6)), jnp.zeros((6, 8))


@pytest.mark.parametrize(
    ("function", "arguments", "along", "expected"),
    [
        (jnp.dot, (A, B), (0, None), (0, False)),
        (jnp.dot, (A, B), (None, 1), (1, False)),
        (jnp.dot, (A, B), (1, 0), (None, True)),
        (jnp.dot, (A, B), (None, 0), (None, True)),
        (lambda a, b: jax.lax.batch_matmul(a, b), (jnp.zeros((2, 3, 4)), jnp.zeros((2, 4, 5))), (None, 0), (0, False)),
        (lambda a, b: jax.lax.batch_matmul(a, b), (jnp.zeros((2, 3, 4)), jnp.zeros((2, 4, 5))), (1, None), (1, False)),
        (jnp.transpose, (A,), (0,), (1, False)),
        (lambda a: jax.lax.reshape(a, (4, 2, 3)), (A,), (1,), (1, False)),
        (lambda a: jax.lax.reshape(a, (4, 3, 2)), (A,), (1,), (None, False)),  # 3 are not cut in 2
        (lambda a: jax.lax.reshape(a, (24,)), (A,), (1,), (None, False)),
        (lambda a: jax.lax.broadcast_in_dim(a, (5, 4, 6), (1, 2)), (A,), (1,), (2, False)),
        (lambda a: jax.lax.reduce_max(a, (0,)), (A,), (1,), (0, False)),
        (lambda a: jax.lax.reduce_max(a, (1,)), (A,), (1,), (None, True)),
        (jax.lax.add, (A, A), (None, 1), (1, False)),
        (lambda a, b: jax.lax.concatenate([a, b], 0), (A, A), (1, 1), (1, False)),
        (lambda a, b: jax.lax.concatenate([a, b], 0), (A, A), (0, 0), (None, False)),
    ],
)
def test_a_split_goes_with_its_dimension(function, arguments, along, expected):
    assert split(function, *arguments, along=along) == expected


def _look_up(table, ids):
    numbers = jax.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return jax.lax.gather(table, ids, numbers, (1, 8), mode="clip")


def test_rows_that_are_looked_up_in_parts_of_a_table_are_added_up():
    arguments = jnp.zeros((6, 8)), jnp.zeros((5, 1), jnp.int32)
    assert split(_look_up, *arguments, along=(0, None)) == (None, True)
    assert split(_look_up, *arguments, along=(1, None)) == (1, False)


@pytest.mark.parametrize(
    ("along", "expected"), [((None, 2), (2, False)), ((2, 2), (2, False)), ((2, None), (2, False))]
)
def test_groups_of_channels_stay_apart(along, expected):
    def convolution(x, kernel):
        names = ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(x, kernel, (1,), "VALID", dimension_numbers=names, feature_group_count=2)

    assert split(convolution, jnp.zeros((3, 5, 8)), jnp.zeros((1, 4, 6)), along=along) == expected


def test_devices_add_up_and_hold_what_xla_makes_them():
    """A feed-forward layer behind a look-up, its first map split by columns and its second by rows."""
    rows, width, inner = 24, 32, 64
    specs = {"table": (None, None), "first": (None, "tensor"), "second": ("tensor", None)}
    shapes = {"table": (16, width), "first": (width, inner), "second": (inner, width)}
    mesh = jax.make_mesh((PARTS,), ("tensor",), axis_types=(AxisType.Auto,), devices=jax.devices()[:PARTS])
    places = {name: NamedSharding(mesh, PartitionSpec(*spec)) for name, spec in specs.items()}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=places[name]) for name, shape in shapes.items()}
    whole = NamedSharding(mesh, PartitionSpec())
    ids = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=whole)

    def loss(params, ids):
        x = params["table"][ids]
        return jnp.sum((x + jnp.tanh(x @ params["first"]) @ params["second"]) ** 3)

    gradient = jax.grad(loss)
    text = jax.jit(gradient, out_shardings=places).lower(params, ids).compile().as_text() or ""
    sums = [one for one in hlo.collectives(text, PARTS) if one.kind == "all-reduce"]
    leaves = jax.tree.leaves(params)
    along = tuple(next((d for d, name in enumerate(leaf.sharding.spec) if name), None) for leaf in leaves)
    cut = Cut(parts=PARTS, arguments=along, results=tuple(1 if d is None else PARTS for d in along))
    flat, apart = Flat.of(gradient, params, ids, cut=cut), Flat.of(gradient, params, ids)
    account = alive(flat, flat.bytes)
    # The second map's result, and the gradient of the first map's argument.
    assert account.summed == sum(one.size for one in sums) == 2 * 4 * rows * width
    saved = sum(apart.bytes) - sum(flat.bytes)
    assert saved >= 4 * (rows * inner + width * inner)  # of one map's columns, and of gradients
    assert account.returned == 4 * (16 * width + 2 * width * inner // PARTS)
