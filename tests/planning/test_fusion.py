"""What is kept for the backward pass: by hand, of functions small enough to say."""

import jax
import jax.numpy as jnp
import pytest
from messages import mentioning

from bertzoo.planning.alive import Growth, alive
from bertzoo.planning.fusion import Cut, Flat

D = 64


def gradient(loss, *arguments):
    flat = Flat.of(jax.grad(loss), *arguments)
    return alive(flat, flat.bytes)


def weights(count: int) -> list[jax.Array]:
    return [jnp.zeros((D, D))] * count


@pytest.mark.parametrize("rows", [512, 1024])
def test_an_activation_is_made_again_and_a_product_is_kept(rows):
    x = jnp.zeros((rows, D))

    def loss(kernels, x):
        for kernel in kernels:
            x = jnp.tanh(x @ kernel)
        return jnp.sum(x)

    found = gradient(loss, weights(3), x)
    # Three products, of which the first two are inputs of the next; no tanh of any of them.
    assert found.activations == 3 * rows * D * 4
    assert found.returned == 3 * D * D * 4


def test_the_sum_of_a_residual_connection_is_kept_and_its_product_is_made_within_it():
    x = jnp.zeros((512, D))

    def loss(kernels, x):
        for kernel in kernels:
            x = jnp.tanh(x + x @ kernel)
        return jnp.sum(x)

    # x itself is an argument; tanh(x + x·W) joins nothing large but the product in the first layer.
    assert gradient(loss, weights(4), x).activations == 4 * 512 * D * 4


def test_a_softmax_keeps_one_array_of_scores():
    x = jnp.zeros((4, 256, D))

    def loss(kernel, x):
        scores = jnp.einsum("blk,bmk->blm", x @ kernel, x)
        return jnp.sum(jnp.einsum("blm,bmk->blk", jax.nn.softmax(scores), x) ** 2)

    kept = gradient(loss, *weights(1), x).activations
    scores, product = 4 * 256 * 256 * 4, 4 * 256 * D * 4
    assert scores <= kept <= scores + 3 * product


def test_some_compilers_keep_what_a_softmax_makes_for_its_product():
    """Scaled and converted, as the product reads it; and nothing where there is no softmax."""
    x = jnp.zeros((4, 256, D))

    def loss(kernels, x, function):
        for kernel in kernels:
            scores = (function(jnp.einsum("blk,bmk->blm", x @ kernel, x)) / 0.9).astype(jnp.bfloat16)
            x = jnp.einsum("blm,bmk->blk", scores, x.astype(jnp.bfloat16)).astype(jnp.float32)
        return jnp.sum(x**2)

    def kept(function, **options):
        flat = Flat.of(jax.grad(lambda *given: loss(*given, function)), weights(3), x, **options)
        return alive(flat, flat.bytes).activations

    # At the worst moment the last layer's is no longer wanted.
    assert kept(jax.nn.softmax, shares_kept=True) - kept(jax.nn.softmax) == 2 * (4 * 256 * 256 * 2)
    assert kept(jnp.tanh, shares_kept=True) == kept(jnp.tanh)


def test_recomputing_keeps_less():
    x = jnp.zeros((512, D))

    def layer(x, kernel):
        return jnp.tanh(jnp.tanh(jnp.tanh(x @ kernel) @ kernel) @ kernel)

    def loss(kernels, x, call):
        for kernel in kernels:
            x = call(x, kernel)
        return jnp.sum(x)

    plain = gradient(lambda kernels, x: loss(kernels, x, layer), weights(4), x)
    again = gradient(lambda kernels, x: loss(kernels, x, jax.checkpoint(layer)), weights(4), x)
    assert again.total < 0.6 * plain.total


def test_bfloat16_is_half():
    def loss(kernels, x):
        for kernel in kernels:
            x = jnp.tanh(x @ kernel.astype(x.dtype))
        return jnp.sum(x.astype(jnp.float32))

    full, half = (gradient(loss, weights(3), jnp.zeros((512, D), dtype)) for dtype in (jnp.float32, jnp.bfloat16))
    assert half.activations == full.activations // 2
    assert half.returned == full.returned // 2  # gradients are made in bfloat16 and converted where they are used


def test_an_index_picked_from_a_row_writes_no_array():
    def loss(kernel, x, labels):
        logits = x @ kernel
        return -jnp.sum(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    kernel, x, labels = jnp.zeros((D, 4096)), jnp.zeros((128, D)), jnp.zeros(128, jnp.int32)
    assert gradient(loss, kernel, x, labels).total < 1.5 * (128 + D) * 4096 * 4


def test_of_what_depends_on_the_platform_a_tpu_takes_what_is_named_for_none():
    def loss(kernel, x, way):
        return jnp.sum(jnp.tanh(way(x, kernel) @ kernel))

    def either(x, kernel):
        return jax.lax.platform_dependent(
            x, kernel, cpu=lambda x, kernel: jnp.sin(x) @ kernel @ kernel, default=jnp.dot
        )

    arguments = jnp.zeros((D, D)), jnp.zeros((512, D))
    assert gradient(lambda *a: loss(*a, either), *arguments) == gradient(lambda *a: loss(*a, jnp.dot), *arguments)


def test_growth_is_what_a_trace_of_so_many_rows_gives():
    def trace(rows: int) -> Flat:
        def loss(kernels, x):
            for kernel in kernels:
                x = jnp.tanh(x + jnp.tanh(x @ kernel) @ kernel.T)
            return jnp.sum(x)

        return Flat.of(jax.grad(loss), weights(2), jax.ShapeDtypeStruct((rows, D), jnp.float32))

    growth = Growth(trace)
    for rows in (2, 7, 500):
        flat = trace(rows)
        assert growth.at(rows) == alive(flat, flat.bytes)


def test_a_function_that_changes_with_the_rows_is_refused():
    with pytest.raises(ValueError, match=mentioning("2 rows")):
        Growth(lambda rows: Flat.of(lambda x: x @ x if rows == 2 else x + x, jnp.zeros((2, 2))))


def test_where_rows_are_apart_the_longest_product_of_a_gradient_waits():
    """Of a table's columns, of which nothing else is made, with the logits that it is made from."""
    ids, wide = jnp.zeros((256, 1), jnp.int32), 16 * D

    def loss(params, ids):
        x = jnp.tanh(params["inner"][ids[:, 0]] @ params["kernel"])
        logits = x @ params["table"]
        return jnp.sum(jax.nn.logsumexp(logits, axis=-1))

    params = {"inner": jnp.zeros((8, D)), "kernel": jnp.zeros((D, D)), "table": jnp.zeros((D, wide))}
    apart = Flat.of(jax.grad(loss), params, ids, cut=Cut(results=(1, 4, 1), kept=(False, True, False)))
    whole = Flat.of(jax.grad(loss), params, ids)
    assert [o.name for o in whole.operations].index("dot_general") < len(whole.operations) - 1
    assert apart.operations[-1].outputs == (apart.waiting,) and apart.operations[-1].name in (
        "dot_general",
        "transpose",
    )
    found, usual = alive(apart, apart.bytes), alive(whole, whole.bytes)
    assert found.kept == 4 * D * D // 4 and found.returned + found.kept < usual.returned
    assert found.total >= 4 * (256 * wide + D * wide) > 4 * D * wide  # logits and gradient at once
    assert usual.total <= found.total


def test_sums_over_rows_for_columns_are_of_turned_arrays():
    x = jnp.zeros((512, D))

    def loss(params, x):
        return jnp.sum(jnp.tanh(x @ params["kernel"] + params["bias"]) ** 2)

    params = {"bias": jnp.zeros(D), "kernel": jnp.zeros((D, D))}
    for turned in (False, True):
        flat = Flat.of(jax.grad(loss), params, x, cut=Cut(results=(4, 4), kept=(True, True), turned=turned))
        assert alive(flat, flat.bytes).turned == turned * 4 * 512 * D
