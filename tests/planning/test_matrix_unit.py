"""Padding to the matrix unit, computed by hand."""

import jax
import jax.numpy as jnp
import pytest

from bertzoo.planning.estimate import padded_flops


@pytest.mark.parametrize(
    ("m", "k", "n", "width", "expected"),
    [
        (256, 128, 384, 128, 256 * 128 * 384),
        (20, 64, 128, 128, 24 * 128 * 128),
        (128, 64, 3, 128, 128 * 128 * 8),  # the narrow side goes through the unit, the wide one fills it
        (1, 768, 30522, 128, 8 * 768 * 30592),
        (1, 768, 30522, 256, 8 * 768 * 30720),
        (512, 192, 64, 256, 512 * 256 * 64),
    ],
)
def test_padded_product(m, k, n, width, expected):
    jaxpr = jax.make_jaxpr(jnp.matmul)(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((m, k), (k, n)))).jaxpr
    assert padded_flops(jaxpr, width) == (2 * m * k * n, 2 * expected)


def test_products_in_loops_and_groups_count():
    x_BHLK, kernel = jnp.zeros((2, 3, 16, 64)), jnp.zeros((1, 8, 40))

    def scores(x_BHLK):
        def add(total, _):
            return total + jnp.einsum("bhlk,bhmk->bhlm", x_BHLK, x_BHLK), None

        return jax.lax.scan(add, jnp.zeros((2, 3, 16, 16)), None, 5)

    plain, tiled = padded_flops(jax.make_jaxpr(jax.jit(scores))(x_BHLK).jaxpr, 128)
    assert plain == 5 * 2 * 6 * 16 * 16 * 64 and tiled == 5 * 2 * 6 * 16 * 128 * 128

    def grouped(x_BLI):
        numbers = ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(
            x_BLI, kernel, (1,), "SAME", feature_group_count=4, dimension_numbers=numbers
        )

    plain, tiled = padded_flops(jax.make_jaxpr(grouped)(jnp.zeros((2, 5, 32))).jaxpr, 128)
    assert plain == 2 * 10 * 8 * 40 and tiled == 4 * 2 * min(16 * 128, 128 * 16) * 128


def test_unused_products_do_not_count():
    jaxpr = jax.make_jaxpr(lambda x: (x @ x, x)[1])(jnp.zeros((8, 8))).jaxpr
    assert padded_flops(jaxpr, 128) == (0, 0)
