"""How large a model is: parameters, operations and memory, counted on the real module."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertzoo.flops import matmul_flops
from bertzoo.liveness import peak_bytes
from bertzoo.models import Compute, Model, pretraining

LENGTH = 128  # tokens of the one row that operations and memory are counted for


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Parameters of the encoder with its embeddings, of that with the pooler, and of the whole pretraining model;
    and of one inference of a row of 128 tokens, the operations (2 per multiply-add) and the peak bytes of activations.
    """

    params_encoder: int
    params_with_pooler: int
    params_pretraining: int
    flops_128: int
    activation_bytes: int


@dataclass(frozen=True, kw_only=True)
class Published:
    """What a paper prints of its model, in millions of parameters and 10^9 operations; None where it says nothing."""

    paper: str
    params: float | None = None
    gflops: float | None = None


# By the name of the config. SqueezeBERT's Table 2 has the parameters and operations of both.
PUBLISHED = {
    "bert_base": Published(paper="Devlin et al. 2019", params=109, gflops=22.5),
    "bert_large": Published(paper="Devlin et al. 2019", params=334),
    "squeezebert": Published(paper="Iandola et al. 2020", params=51.1, gflops=7.42),
}


def measure(config: Model, sentence: bool) -> Sizes:
    """Count a model; `sentence`: whether its pretraining model has a sentence head."""
    model = pretraining(config, Compute(), sentence)
    ids, one = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.int32)
    params = nn.meta.unbox(jax.eval_shape(model.init, jax.random.key(0), ids, ids, ids, one)["params"])

    def count(*names: str) -> int:
        return sum(leaf.size for name in names if name in params for leaf in jax.tree.leaves(params[name]))

    def pooled(params, ids, types, mask, one):
        output: Any = model.apply({"params": params}, ids, types, mask, one)
        return output.pooled

    return Sizes(
        params_encoder=count("embedding", "encoder"),
        params_with_pooler=count("embedding", "encoder", "pooler"),
        params_pretraining=count(*params),
        flops_128=matmul_flops(pooled, params, ids, ids, ids, one),
        activation_bytes=peak_bytes(pooled, params, ids, ids, ids, one),
    )
