"""The reference for checking files: a Linen model, wrapped to have the inputs and outputs of its export graph."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export.graph.heads import FirstEmbedding
from bertzoo.models.parts import Pretraining
from bertzoo.models.tasks import JointSpanFinder, SpanFinder
from bertzoo.nn import Table


class TrainingGraph(struct.PyTreeNode):
    """A Linen model on one row of tokens; a call returns outputs by name, like a call of the export graph.

    pooling: MeanEmbedding or FirstEmbedding, for a model without a head.
    """

    params: Any
    pooling: Any
    model: Any = struct.field(pytree_node=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, int32 arrays of shape (L), or (P) for `masked_positions`."""
        has_types = isinstance(self.model.embedding.token_type, Table) or isinstance(self.model, JointSpanFinder)
        types = ("token_type_ids",) if has_types else ()
        positions = ("masked_positions",) if isinstance(self.model, Pretraining) else ()
        return ("input_ids", *types, "attention_mask", *positions)

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        rows = {name: array[None] for name, array in inputs.items()}
        rows.setdefault("token_type_ids", jnp.zeros_like(rows["input_ids"]))
        output = self.model.apply({"params": self.params}, **rows)
        if isinstance(self.model, Pretraining):
            sentence = output.sentence_logits
            logits = {"masked_logits": output.masked_logits[0]}
            return logits if sentence is None else logits | {"sentence_logits": sentence[0]}
        if isinstance(self.model, JointSpanFinder):
            names = ("start_logits", "starts", "end_logits")
            return {name: getattr(output, name)[0] for name in names} | {"null_logit": output.null_logits}
        if isinstance(self.model, SpanFinder):
            return {"start_logits": output.logits[0, :, 0], "end_logits": output.logits[0, :, 1]}
        if output.logits is not None:
            return {"logits": output.logits[0]}
        if isinstance(self.pooling, FirstEmbedding):
            return {"embedding": output.pooled[0]}
        weight_L = inputs["attention_mask"].astype(jnp.float32)
        return {"embedding": weight_L @ output.hidden_states[-1][0] / jnp.sum(weight_L)}


def training_graph(pretrained: Pretrained, pooling: Any = FirstEmbedding()) -> TrainingGraph:  # noqa: B008 (frozen)
    """Return the training graph of a model, with numpy parameters. pooling: as in TrainingGraph."""
    module, params = pretrained.module()
    return TrainingGraph(params=jax.tree.map(np.asarray, params), pooling=pooling, model=module)
