"""The cost of a model as a function of the sizes of its dimensions, and the parameters of one element."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from bertzoo.models import Compute
from bertzoo.models.tasks import NoHead
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.parameter import init_shapes
from bertzoo.pruning.shapes import resized
from bertzoo.pruning.structure import Structure, count

Sizes = Mapping[str, int]
Cost = Callable[[Sizes], float]
MODEL = ("embedding", "encoder", "pooler")  # counted as in the paper: without heads that only pretraining has


def parameters(structure: Structure) -> Cost:
    """Return the number of parameters of embeddings, encoder and pooler as a function of sizes."""
    return lambda sizes: count(structure, sizes, MODEL)


def flops(structure: Structure, length: int = 128) -> Cost:
    """Return, as a function of sizes, the operations of one row of `length` tokens up to the pooled output."""

    def cost(sizes: Sizes) -> float:
        module, ids = NoHead().build(resized(structure.model, sizes), Compute()), jnp.zeros((1, length), jnp.int32)
        params = init_shapes(module.init, jax.random.key(0), ids, ids, ids)
        return matmul_flops(lambda params, ids: module.apply(params, ids, ids, ids).pooled, params, ids)  # type: ignore

    return cost


def betas(structure: Structure) -> dict[str, float]:
    """Return β by dimension: the number of parameters that cutting one element removes, relative to a head (§5).

    The unit is the costliest head or, without heads to cut, the costliest element; γ absorbs the scale.
    """
    sizes, whole = structure.sizes, count(structure, structure.sizes, MODEL)
    removed = {
        name: (whole - count(structure, {**sizes, name: dimension.size - dimension.groups}, MODEL)) / dimension.groups
        for name, dimension in structure.dimensions.items()
    }
    heads = [removed[name] for name, dimension in structure.dimensions.items() if dimension.letter == "a"]
    unit = max(heads or removed.values())
    return {name: value / unit for name, value in removed.items()}
