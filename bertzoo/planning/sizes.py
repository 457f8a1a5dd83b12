"""Count a model's parameters, and the operations and memory of its inference, from its Linen module."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from bertzoo.models import Compute, Model, pretraining
from bertzoo.nn.flops import matmul_flops, peak_bytes
from bertzoo.nn.parameter import init_shapes
from bertzoo.objectives import Masked, MaskedObjective, Replaced

LENGTH = 128  # tokens of the sequence whose operations and memory are counted


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a model; params_… are numbers of parameters.

    params_encoder: embeddings and encoder.
    params_with_pooler: embeddings, encoder and pooler.
    params_pretraining: everything that is pretrained, including a generator.
    flops_128: operations (2 per multiply-add) to infer one sequence of 128 tokens.
    activation_bytes: peak bytes of activations for that sequence.
    """

    params_encoder: int
    params_with_pooler: int
    params_pretraining: int
    flops_128: int
    activation_bytes: int


def measure(config: Model, objective: Masked | Replaced) -> Sizes:
    """Return the sizes of a model; `params_pretraining` counts parameters that pretraining on `objective` trains."""
    whole = objective.build(config, Compute())
    # Without a sentence task, and in replaced token detection, the pooler is not pretrained, but belongs to the model.
    alone = isinstance(whole, MaskedObjective) and whole.sentence != "none"
    model = whole.model if alone else pretraining(config, Compute(), sentence=False)
    ids, position = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)

    @jax.jit  # traced once for all counts, because tracing is slow
    def start(key, ids, types, mask, position):
        output, variables = model.init_with_output(key, ids, types, mask, position)
        return output.pooled, variables["params"]

    def pooled(key, *inputs):
        return start(key, *inputs)[0]

    _, params = init_shapes(start, key, ids, ids, ids, position)
    pretrained = params if alone else init_shapes(whole.init, key)

    def count(*names: str) -> int:
        return sum(leaf.size for name in names if name in params for leaf in jax.tree.leaves(params[name]))

    return Sizes(
        params_encoder=count("embedding", "encoder"),
        params_with_pooler=count("embedding", "encoder", "pooler"),
        params_pretraining=sum(leaf.size for leaf in jax.tree.leaves(pretrained)),
        flops_128=matmul_flops(pooled, key, ids, ids, ids, position),
        activation_bytes=peak_bytes(pooled, key, ids, ids, ids, position),
    )
