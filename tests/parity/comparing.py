"""Helpers of live comparisons: required packages, tolerances, one pass through both models."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

TOLERANCE = 1e-5
OUTPUTS = ("hidden_states", "attentions", "pooled", "masked_logits", "sentence_logits")


def needs(*packages: str) -> None:
    """Skip the module without these, but fail under `make test-all`, which installs them."""
    for package in packages:
        if "BERTZOO_PARITY" in os.environ:
            importlib.import_module(package)
        else:
            pytest.importorskip(package, reason=f"the live comparison needs {package}: run `make test-all`")


def installed(package: str) -> Path:
    """The directory of a package, which is not imported; skips without it, but fails under `make test-all`."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        stop = pytest.fail if "BERTZOO_PARITY" in os.environ else pytest.skip
        stop(f"needs the package {package}: run `make test-all`")
    return Path(found.submodule_search_locations[0])


def packaged(package: str) -> Path:
    """The model directory inside a package, which is not imported."""
    return installed(package) / "model"


def assert_close(ours: Any, theirs: Any, what: str, scale: float | None = None, tolerance: float = TOLERANCE) -> None:
    """Equal to `tolerance` of the reference's largest value, or of `scale`."""
    theirs = np.asarray(theirs)
    scale = float(np.abs(theirs).max()) if scale is None else scale
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=0, atol=tolerance * scale, err_msg=what)


def assert_output_close(ours: Any, theirs: Any, what: str, tolerance: float = TOLERANCE) -> None:
    """As `assert_close`; of hidden states and attentions each layer's by that layer's largest value."""
    ours, theirs = np.array(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    for layer in range(len(theirs)) if what in ("hidden_states", "attentions") else [...]:
        assert_close(ours[layer], theirs[layer], f"{what}[{layer}]", tolerance=tolerance)


def tree(leaves: Mapping[str, np.ndarray]) -> Any:
    """Parameters by path as a tree of float32."""
    return flax.traverse_util.unflatten_dict(
        {path: jnp.asarray(value, jnp.float32) for path, value in leaves.items()}, sep="/"
    )


def assert_gradients_close(found: Any, expected: Mapping[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    """Each gradient as `assert_close` has it; a key bias's, zero on paper, is measured by the query bias's."""
    leaves = {"/".join(path): leaf for path, leaf in flax.traverse_util.flatten_dict(found).items()}
    assert leaves.keys() == expected.keys()
    for path, gradient in expected.items():
        # A softmax is invariant to a constant added to all of its inputs.
        scale = np.abs(expected[path.replace("attention/key/bias", "attention/query/bias")]).max()
        assert_close(leaves[path], gradient, path, float(scale), tolerance)


def assert_same_model(
    theirs: Any,
    convert: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    objective: Any,
    batch: Mapping[str, np.ndarray],
    *,
    outputs: Sequence[str] = OUTPUTS,
    tolerance: float = TOLERANCE,
) -> None:
    """The outputs, the loss and the gradients of a masked language model, theirs in torch and ours of `objective`.

    convert: their state dictionary, and their gradients, under our names.
    """
    expected = theirs(batch)
    expected["loss"].backward()
    named = dict(theirs.model.named_parameters())
    params = convert({name: tensor.detach().numpy() for name, tensor in named.items()})
    gradients = convert({name: tensor.grad.numpy() for name, tensor in named.items()})

    @jax.jit
    def ours(params):
        inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
        output = objective.model.apply({"params": params}, *inputs)
        sums, _ = objective(params, None, batch, None)
        return sum(sums[term] / weight for term, weight in objective.weights(batch).items()), output

    (loss, output), grads = jax.value_and_grad(ours, has_aux=True)(tree(params))
    assert_close(loss, expected["loss"].detach(), "loss", tolerance=tolerance)
    for name in outputs:
        assert_output_close(getattr(output, name), expected[name].detach(), name, tolerance)
    assert_gradients_close(grads, gradients, tolerance)
