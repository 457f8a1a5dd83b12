"""Parameter and operation counts of the published models, by tracing the real modules.

Layers of one model are equal, so most counts trace one layer and two and add what the second one adds; the golden of
shardings and runs/test_configs.py trace every shipped model at its full depth.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import pytest
from tiers import quick

from bertzoo.core import config as loader
from bertzoo.heads import MaskedLanguageModel, NoHead, SequenceClassification, SpanExtraction, parameter_shapes
from bertzoo.models import Compute, SqueezeBert
from bertzoo.nn.flops import matmul_flops
from bertzoo.nn.parameter import init_shapes
from bertzoo.runs.configs import Pretrain
from tests.planning.test_sizes import EXACT


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def sizes(shapes, *parts):
    """The number of parameters in shapes by path: all, or only those of the named parts."""
    beginnings = tuple(f"{part}/" for part in parts) or ("",)
    return sum(math.prod(shape) for path, shape in shapes.items() if path.startswith(beginnings))


def shapes_by_depth(model, head):
    """`parameter_shapes` at full depth, where layer N has the shapes of the second layer (ALBERT has one for all)."""
    two = parameter_shapes(dataclasses.replace(model, layers=2), head)
    repeated = [path for path in two if path.startswith("encoder/layers_1/")]
    return two | {
        path.replace("layers_1", f"layers_{number}"): two[path]
        for number in range(2, model.layers)
        for path in repeated
    }


TABLES = ("embedding/word", "embedding/position", "embedding/token_type")
# The layer before a classifier's logits, if it has one, and whether a span head reads the pooled states, by model.
HEADS = {
    **dict.fromkeys(("bert_base", "bert_large", "tinybert", "albert_base"), ("none", False)),
    **dict.fromkeys(("mobilebert", "mobilebert_tiny", "squeezebert"), ("none", True)),
    **dict.fromkeys(("electra_small", "electra_base"), ("gelu", True)),
    **dict.fromkeys(("convbert_small", "convbert_medium_small", "convbert_base"), ("gelu", True)),
    "distilbert": ("relu", True),
}
ONE_EACH = ("bert_base", "distilbert", "albert_base", "electra_small", "mobilebert", "squeezebert", "convbert_small")


@pytest.mark.parametrize("name", quick(HEADS, *ONE_EACH))
def test_counts_under_other_heads(name):
    """As Hugging Face's classes have it: a two-way classification head, and two logits a token."""
    model, (hidden, pooler) = loader.load(Pretrain, [name]).model, HEADS[name]
    (encoder, pooled, *_), width = EXACT[name], model.hidden_size
    dense, logits = width**2 + width, 2 * width + 2
    classified = shapes_by_depth(model, SequenceClassification(hidden=hidden))
    assert sizes(classified) == pooled + (hidden != "none") * dense + logits
    assert sizes(shapes_by_depth(model, SpanExtraction(pooler=pooler))) == (pooled if pooler else encoder) + logits


def test_squeezebert_with_the_vocabulary_of_its_tokenizer_under_a_classifier():
    assert sizes(parameter_shapes(SqueezeBert(vocab_size=30522), SequenceClassification())) == 51_091_202


@pytest.mark.parametrize(("name", "without_tables"), [("ib_bert_large", 290_035_200), ("mobilebert_paper", 21_189_120)])
def test_counts_of_encoders_without_tables(name, without_tables):
    shapes = shapes_by_depth(loader.load(Pretrain, [name]).model, NoHead(pooler=False))
    assert sizes(shapes) - sizes(shapes, *TABLES) == without_tables


# As Hugging Face's classes for pretraining have them: each with the embeddings that are shared here.
@pytest.mark.parametrize(
    ("name", "generator", "discriminator"),
    [("electra_small", 4_620_026, 13_549_057), ("electra_base", 33_740_602, 109_483_009)],
)
def test_counts_of_electras_two_models(name, generator, discriminator):
    recipe = loader.load(Pretrain, [name])
    objective = recipe.objective.build(recipe.model, Compute())
    params = init_shapes(objective.init, jax.random.key(0))
    assert count({part: params[part] for part in ("embedding", "generator")}) == generator
    assert count({part: params[part] for part in ("embedding", "encoder", "replaced_head")}) == discriminator


@pytest.mark.parametrize(
    ("name", "masked"),
    [("convbert_small", 13_207_442), ("convbert_medium_small", 17_555_946), ("convbert_base", 106_303_170)],
)
def test_counts_of_convbert_under_the_masked_head(name, masked):
    """Hugging Face's ConvBertForMaskedLM: a full-sized tower, not the generator."""
    assert sizes(shapes_by_depth(loader.load(Pretrain, [name]).model, MaskedLanguageModel())) == masked


@pytest.mark.parametrize(
    ("name", "pooled", "pretraining"),
    [
        ("mobilebert", 24_844_544, 36_860_220),
        ("mobilebert_paper", 25_621_760, 37_374_780 + 262_656),
        ("mobilebert_tiny", 15_748_352, 27_501_372 + 262_656),
    ],
)
def test_counts_of_mobilebert_with_a_pooler(name, pooled, pretraining):
    model = dataclasses.replace(loader.load(Pretrain, [name]).model, pooler=True)
    params = shapes_by_depth(model, MaskedLanguageModel(sentence=True))
    assert sizes(params, "embedding", "encoder", "pooler") == pooled
    assert sizes(params) == pretraining


def test_products_of_another_platform_or_without_a_use_do_not_count():
    """planning/test_matrix_unit.py counts loops and convolutions."""

    def either(x):
        return jax.lax.platform_dependent(
            x, cpu=lambda x: x @ jnp.eye(6) @ jnp.eye(6), default=lambda x: x @ jnp.eye(6)
        )

    assert matmul_flops(either, jnp.zeros((1, 10, 6))) == 2 * 10 * 6 * 6
    assert matmul_flops(lambda x: (x @ x.T, x)[1], jnp.ones((4, 4))) == 0
