"""The reference for checking files: a Linen model, wrapped to have the inputs and outputs of its export graph."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.heads import head_class
from bertzoo.heads.base import TYPES
from bertzoo.nn import Table
from bertzoo.runs.runner import Inputs, Outputs, Runner


class TrainingGraph(struct.PyTreeNode):
    """A Linen model on one row of tokens; a call returns outputs by name, like a call of the export graph."""

    params: Any
    model: Any = struct.field(pytree_node=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, int32 arrays of shape (L), or (P) for `masked_positions`."""
        more = head_class(self.model).inputs
        types = (TYPES,) if isinstance(self.model.embedding.token_type, Table) or TYPES in more else ()
        return ("input_ids", *types, "attention_mask", *(name for name in more if name != TYPES))

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        rows = {name: array[None] for name, array in inputs.items()}
        rows.setdefault(TYPES, jnp.zeros_like(rows["input_ids"]))
        output = self.model.apply({"params": self.params}, **rows)
        return {name: array[0] for name, array in head_class(self.model).name_outputs(output).items()}


@jax.jit
def run_graph(graph: Any, row: Inputs) -> dict[str, jax.Array]:
    """Return a graph's outputs, with a first dimension of 1 as in `row`."""
    return {name: y[None] for name, y in graph(**{key: x[0] for key, x in row.items()}).items()}


class GraphRunner(Runner):
    """Runs a graph of one row, compiled by XLA; models of one architecture share the program of a length."""

    def __init__(self, graph: Any):
        self._graph = graph

    def __call__(self, inputs: Inputs) -> Outputs:
        return jax.device_get(run_graph(self._graph, dict(inputs)))


def training_graph(pretrained: Pretrained) -> TrainingGraph:
    """Return the training graph of a model, with numpy parameters."""
    module, params = pretrained.module()
    return TrainingGraph(params=jax.tree.map(np.asarray, params), model=module)
