"""Padding to the matrix unit, by hand."""

import jax
import jax.numpy as jnp
import pytest

from bertzoo.planning.tiles import by_rows, padded, padded_flops, stored


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
def test_a_product(m, k, n, width, expected):
    assert padded(m, k, n, width) == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((30522, 312), 30592 * 312),  # by columns, which pads fewer; as the compiler does with TinyBERT
        ((312, 1200), 312 * 1280),
        ((312, 12, 26), 12 * 32 * 384),
        ((3072, 768), 3072 * 768),
        ((312,), 384),
        ((), 1),
    ],
)
def test_an_array_in_memory(shape, expected):
    assert stored(shape) == expected


def test_an_array_by_rows():
    assert by_rows((30522, 312)) == 30528 * 384 and by_rows((30522, 768)) == 30528 * 768 and by_rows((312,)) == 384


def test_products_are_found_wherever_they_are():
    x_BHLK, kernel = jnp.zeros((2, 3, 16, 64)), jnp.zeros((1, 8, 40))

    def scores(x_BHLK):
        def add(total, _):
            return total + jnp.einsum("bhlk,bhmk->bhlm", x_BHLK, x_BHLK), None

        return jax.lax.scan(add, jnp.zeros((2, 3, 16, 16)), None, 5)

    plain, tiled = padded_flops(jax.jit(scores), 128, x_BHLK)
    assert plain == 5 * 2 * 6 * 16 * 16 * 64 and tiled == 5 * 2 * 6 * 16 * 128 * 128

    def grouped(x_BLI):
        numbers = ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(
            x_BLI, kernel, (1,), "SAME", feature_group_count=4, dimension_numbers=numbers
        )

    plain, tiled = padded_flops(grouped, 128, jnp.zeros((2, 5, 32)))
    assert plain == 2 * 10 * 8 * 40 and tiled == 4 * 2 * min(16 * 128, 128 * 16) * 128


def test_what_no_result_needs_does_not_count():
    assert padded_flops(lambda x: (x @ x, x)[1], 128, jnp.zeros((8, 8))) == (0, 0)
