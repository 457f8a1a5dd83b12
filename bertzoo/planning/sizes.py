"""Count a model's parameters, and the operations and memory of its inference, from its Linen module."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bertzoo.models import Compute, Model, pretraining
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.liveness import peak_bytes
from bertzoo.nn.parameter import init_shapes
from bertzoo.objectives import Masked, MaskedObjective, Replaced

LENGTH = 128  # tokens of the one row whose operations and memory are counted


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a model; params_… are numbers of parameters.

    params_encoder: embeddings and encoder.
    params_with_pooler: embeddings, encoder and pooler.
    params_pretraining: everything that is pretrained, including a generator.
    flops_128: operations (2 per multiply-add) to infer one row of 128 tokens.
    activation_bytes: peak bytes of activations for that row.
    """

    params_encoder: int
    params_with_pooler: int
    params_pretraining: int
    flops_128: int
    activation_bytes: int


class Published(NamedTuple):
    """Figures that a paper prints for a model: millions of parameters and 10^9 operations; None if not printed."""

    paper: str
    params: float | None = None
    gflops: float | None = None


# By paper and config. Sources:
# SqueezeBERT's Table 2: BERT-base, ALBERT, DistilBERT, SqueezeBERT, and the operations of the released MobileBERT.
# SqueezeBERT's Table 3: BERT with 6 layers, and the operations of ELECTRA-small.
# MobileBERT's Table 4: BERT with 4 and 3 layers, TinyBERT. Its Table 1: BERT-large. Its Tables 1, 4 and 7: MobileBERT
# and IB-BERT. ConvBERT's Tables 1 and 3: the sizes of ConvBERT, BERT-small and ELECTRA. schuBERT's tables: schuBERT and
# BERT with 9 layers. ALBERT's Table 3, the row of embedding size 64: ALBERT-e.
PRINTED: dict[str, dict[str, tuple[float] | tuple[float, float]]] = {
    "Lan et al. 2020": {"albert_base": (12, 22.5), "albert_e": (87,)},
    "Sun et al. 2019": {"bert_3l": (45.3, 5.7), "bert_4l": (52.2, 7.6), "bert_6l": (67.0, 11.3)},
    "Khetan and Karnin 2020": {"bert_9l": (88,), **{f"schubert_{n}m": (n,) for n in (33, 43, 55, 66, 77, 88, 99)}},
    "Devlin et al. 2019": {"bert_base": (109, 22.5), "bert_large": (334,)},
    "Jiang et al. 2020": {
        **{"bert_small": (14,), "convbert_base": (106,), "convbert_small": (14,), "convbert_medium_small": (17,)},
        "electra_medium_small": (26,),
    },
    "Sanh et al. 2019": {"distilbert": (66, 11.3)},
    "Clark et al. 2020": {"electra_base": (110,), "electra_small": (14, 2.62)},
    "Sun et al. 2020": {
        **{"ib_bert_large": (293,), "mobilebert": (25.3, 5.36), "mobilebert_tiny": (15.1, 3.1)},
        **dict.fromkeys(("mobilebert_layernorm", "mobilebert_paper"), (25.3, 5.7)),
    },
    "Iandola et al. 2020": {"squeezebert": (51.1, 7.42)},
    "Jiao et al. 2020": {"tinybert": (14.5, 1.2)},
}
PUBLISHED = {
    name: Published(paper, *numbers) for paper, configs in PRINTED.items() for name, numbers in configs.items()
}


@functools.cache  # many configs share a model, whose trace takes a second
def measure(config: Model, objective: Masked | Replaced) -> Sizes:
    """Return the sizes of a model; `params_pretraining` counts parameters that pretraining on `objective` trains."""
    whole = objective.build(config, Compute())
    # Without a sentence task, and in replaced token detection, the pooler is not pretrained, but is part of the model.
    alone = isinstance(whole, MaskedObjective) and whole.sentence != "none"
    model = whole.model if alone else pretraining(config, Compute(), sentence=False)
    ids, one = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)

    @jax.jit  # traced once for all counts, because tracing is slow
    def start(key, ids, types, mask, one):
        output, variables = model.init_with_output(key, ids, types, mask, one)
        return output.pooled, variables["params"]

    def pooled(key, *inputs):
        return start(key, *inputs)[0]

    _, params = init_shapes(start, key, ids, ids, ids, one)
    pretrained = params if alone else init_shapes(whole.init, key)

    def count(*names: str) -> int:
        return sum(leaf.size for name in names if name in params for leaf in jax.tree.leaves(params[name]))

    return Sizes(
        params_encoder=count("embedding", "encoder"),
        params_with_pooler=count("embedding", "encoder", "pooler"),
        params_pretraining=sum(leaf.size for leaf in jax.tree.leaves(pretrained)),
        flops_128=matmul_flops(pooled, key, ids, ids, ids, one),
        activation_bytes=peak_bytes(pooled, key, ids, ids, ids, one),
    )
