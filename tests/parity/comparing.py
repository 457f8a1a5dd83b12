"""Helpers of live comparisons: required packages and tolerances."""

import importlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import assert_close

TOLERANCE = 1e-5


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
