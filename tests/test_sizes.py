"""`bertzoo models`: the counts of the published architectures, and the peak of live values by hand."""

import json

import jax
import jax.numpy as jnp
import pytest

from bertzoo.cli import main
from bertzoo.liveness import peak_bytes

# Table 1.9 of the exact counts: encoder with embeddings, with pooler, pretraining model, GFLOPs at length 128.
EXACT = {
    "bert_base": (108_891_648, 109_482_240, 110_106_428, 22.348),
    "bert_large": (334_092_288, 335_141_888, 336_226_108, 78.922),
    "squeezebert": (50_503_680, 51_094_272, 51_716_928 + 1_538, 7.3999),
}


def test_models_as_json(capsys):
    assert main(["models", *EXACT, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(EXACT)
    for row, (encoder, with_pooler, pretraining, gflops) in zip(rows, EXACT.values(), strict=True):
        assert (row["params_encoder"], row["params_with_pooler"], row["params_pretraining"]) == (
            encoder,
            with_pooler,
            pretraining,
        )
        assert row["gflops_128"] == pytest.approx(gflops, abs=5e-4)
        assert row["params_published"] == pytest.approx(with_pooler, rel=0.005)
        assert row["gflops_published"] is None or row["gflops_published"] == pytest.approx(gflops, rel=0.01)
        assert row["activation_bytes"] > 4 * 128 * 768


def test_models_as_a_table_has_every_shipped_config(capsys):
    assert main(["models"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "name" and {"bert_base", "demo", "squeezebert"} <= {row.split()[0] for row in rows}
    (line,) = [row for row in rows if row.startswith("squeezebert")]
    assert "51.1 M" in line and "7.40" in line and "7.42" in line and "Iandola" in line


def test_an_unknown_model_is_refused(capsys):
    assert main(["models", "squezebert"]) == 2
    assert "squeezebert" in capsys.readouterr().err


X = jax.ShapeDtypeStruct((10,), jnp.float32)
W = jax.ShapeDtypeStruct((10, 50), jnp.float32)


@pytest.mark.parametrize(
    ("function", "floats"),
    [
        (lambda w, x: x + 1, 10),  # an argument is not counted, its successor is
        (lambda w, x: ((x + 1) * 2) - 3, 20),  # an operation's operand lives until its result is there
        (lambda w, x: x @ w, 50),
        (lambda w, x: (x @ (w * 2)).sum(), 51),  # what depends on the parameters alone is not counted
        (lambda w, x: (x + 1, (x * 2) * 3)[1], 20),  # nor is what no output needs
        (lambda w, x: jax.jit(lambda x: jnp.tanh(x + 1) * 2)(x), 20),  # inside a function
        (lambda w, x: (lambda a, b: a * b)(x + 1, x + 2), 30),
    ],
)
def test_peak_of_live_values(function, floats):
    assert peak_bytes(function, W, X) == 4 * floats
