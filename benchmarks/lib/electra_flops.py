"""Training operations of a pretraining run as ELECTRA's authors count them, and as ConvBERT's paper prints them.

The rules are from the script https://github.com/google-research/electra/blob/master/flops_computation.py. A
multiply-add is 2 operations. The backward pass costs as much as the forward pass. A look-up is a product of a one-hot
vector and the whole table. The output softmax reads 5/32 of the positions, however many are masked. Element-wise
operations count; pooler and sentence head do not count. ConvBERT (Jiang et al. 2020) prints "Train FLOPs" by these
rules. This file counts products on the Linen modules, to cover models for which the script has no formula.
"""

from typing import Any

import flax.linen as nn
import jax

from bertzoo.models.parts import per_layer
from bertzoo.models.replaced import generator_config, generator_sizes
from bertzoo.nn.flops import matmul_flops
from bertzoo.objectives import Replaced
from bertzoo.runs.configs import Pretrain
from bertzoo.runs.experiments import batch_shapes
from bertzoo.train.state import boxed_shapes

OUTPUT_SHARE = 0.15625
_DROPOUT, _NORM, _ACTIVATION, _SOFTMAX = 4, 5, 8, 5

# ConvBERT's Table 3 by config: (training operations, how its recipe differs from the config's).
PUBLISHED_FLOPS: dict[str, tuple[float, str]] = {
    "bert_base": (6.4e19, "1 M steps of 256 rows of 512"),
    "convbert_base": (1.4e19, ""),
    "convbert_medium_small": (1.5e18, ""),
    "convbert_small": (1.3e18, ""),
    "electra_base": (6.4e19, ""),
    "electra_small": (1.4e18, ""),
    "mobilebert": (6.4e19, "a lower bound, without the teacher's training"),
    "tinybert": (6.4e19, "a lower bound, without the teacher's training"),
}


def train_flops(recipe: Pretrain) -> float:
    """Return the training operations of all stages of a recipe."""
    return sum(2 * stage.steps * stage.batch_size * _row_flops(recipe, k) for k, stage in enumerate(recipe.stages))


def _row_flops(recipe: Pretrain, index: int) -> float:
    objective: Any = recipe.objective.build(recipe.model, recipe.compute)
    params = nn.unbox(boxed_shapes(objective))
    batch, model = batch_shapes(recipe, index), recipe.model
    length = recipe.stages[index].max_length
    width = params["embedding"]["word"]["embedding"].shape[1]
    slots = OUTPUT_SHARE * length

    def masked(count: int) -> int:
        positions = jax.ShapeDtypeStruct((1, count), batch["masked_positions"].dtype)
        return matmul_flops(objective.masked_logits, params, batch | {"masked_positions": positions})

    # As many masked tokens as the row has, because with fewer, the last layer computes no others.
    head = masked(length + 1) - masked(length)
    embedding = _embedding_flops(model, width, length)
    masked_flops = masked(length) - (length - slots) * head + slots * (14 * width + (_SOFTMAX + 2) * model.vocab_size)
    if not isinstance(recipe.objective, Replaced):
        return embedding + masked_flops + _elementwise_flops(model, width, length)
    share = recipe.objective.generator_width
    generator: Any = generator_config(model, share)
    if generator is None:
        hidden, heads = generator_sizes(model, share)
        body = model.layers * _layer_flops(hidden, heads, 4 * hidden, length) + (hidden != width) * length * hidden
    else:
        body = _elementwise_flops(generator, width, length)
    discriminator_flops = matmul_flops(objective.replaced_logits, params, batch)
    discriminator_flops += length * (1 + _ACTIVATION) * model.hidden_size
    return 2 * embedding + masked_flops + body + discriminator_flops + _elementwise_flops(model, width, length)


def _embedding_flops(model: Any, width: int, length: int) -> float:
    """Return the operations of one row's embedding: look-ups counted as products, their sum, norm and dropout.

    width: size of an embedding vector; length: tokens of the row.
    """
    tables = 2 * width * model.vocab_size + 2 * width * (length + 2)
    return length * (tables + (2 + _NORM + _DROPOUT) * width)


def _elementwise_flops(model: Any, width: int, length: int) -> float:
    """Return the element-wise operations for one row, in all layers and in the bias of the embedding's projection.

    width: size of an embedding vector; length: tokens of the row.
    """
    inner = getattr(model, "feed_forward_sizes", None) or per_layer(model.feed_forward_size, model.layers)
    heads = model.heads if isinstance(model.heads, tuple) else (model.heads,) * model.layers
    blocks = sum(_layer_flops(model.hidden_size, *sizes, length) for sizes in zip(heads, inner, strict=True))
    return blocks + (model.hidden_size != width) * length * model.hidden_size


def _layer_flops(hidden: int, heads: int, inner: int, length: int) -> float:
    """Return one row's element-wise operations in a layer.

    The first norm counts only 5 operations per token, as in ELECTRA's script.
    """
    attention = 3 * hidden + (_SOFTMAX + _DROPOUT + 1) * length * heads + (2 + _DROPOUT) * hidden + _NORM
    feed_forward = (_ACTIVATION + 1) * inner + (2 + _DROPOUT + _NORM) * hidden
    return length * (attention + feed_forward)
