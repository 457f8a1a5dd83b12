"""The training graph as it is, under the inputs and outputs of the export graph: what an export is measured against."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bertzoo.export.graph.heads import FirstEmbedding
from bertzoo.models.parts import Pretraining
from bertzoo.models.tasks import JointSpanFinder, SpanFinder
from bertzoo.nn import Table


class Plain(struct.PyTreeNode):
    """A Linen model of one sentence; a call gives the same outputs, by name, as the graph of from_model.py."""

    params: Any
    pooling: Any
    model: Any = struct.field(pytree_node=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what a call reads, each (L) int32, but `masked_positions` (P)."""
        told = isinstance(self.model.embedding.token_type, Table) or isinstance(self.model, JointSpanFinder)
        types = ("token_type_ids",) if told else ()
        positions = ("masked_positions",) if isinstance(self.model, Pretraining) else ()
        return ("input_ids", *types, "attention_mask", *positions)

    def __call__(self, **given: jax.Array) -> dict[str, jax.Array]:
        rows = {name: array[None] for name, array in given.items()}
        rows.setdefault("token_type_ids", jnp.zeros_like(rows["input_ids"]))
        output = self.model.apply({"params": self.params}, **rows)
        if isinstance(self.model, Pretraining):
            sentence = output.sentence_logits
            found = {"masked_logits": output.masked_logits[0]}
            return found if sentence is None else found | {"sentence_logits": sentence[0]}
        if isinstance(self.model, JointSpanFinder):
            names = ("start_logits", "starts", "end_logits")
            return {name: getattr(output, name)[0] for name in names} | {"null_logit": output.null_logits}
        if isinstance(self.model, SpanFinder):
            return {"start_logits": output.logits[0, :, 0], "end_logits": output.logits[0, :, 1]}
        if output.logits is not None:
            return {"logits": output.logits[0]}
        if isinstance(self.pooling, FirstEmbedding):
            return {"embedding": output.pooled[0]}
        weight_L = given["attention_mask"].astype(jnp.float32)
        return {"embedding": weight_L @ output.hidden_states[-1][0] / jnp.sum(weight_L)}
