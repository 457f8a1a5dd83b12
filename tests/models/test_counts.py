"""Parameter and operation counts of the published models, by tracing the real modules."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from bertzoo.flops import matmul_flops
from bertzoo.models import Bert, Compute, SqueezeBert, pretraining

SHAPE_ONLY = Compute()


def shapes(config, sentence):
    ids = jnp.zeros((1, 8), jnp.int32)
    model = pretraining(config, SHAPE_ONLY, sentence)
    return model, nn.meta.unbox(jax.eval_shape(model.init, jax.random.key(0), ids, ids, ids, ids[:, :1])["params"])


def count(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


BERT_LARGE = {"hidden_size": 1024, "layers": 24, "heads": 16, "feed_forward_size": 4096}


# Closed-form counts of the published architectures: encoder with embeddings, with pooler, pretraining model.
@pytest.mark.parametrize(
    ("config", "sentence", "encoder", "with_pooler", "pretraining"),
    [
        (Bert(), True, 108_891_648, 109_482_240, 110_106_428),
        (Bert(**BERT_LARGE), True, 334_092_288, 335_141_888, 336_226_108),
        (SqueezeBert(), False, 50_503_680, 51_094_272, 51_716_928),
        (SqueezeBert(vocab_size=30522), False, 50_499_072, 51_089_664, 51_712_314),
    ],
    ids=["bert-base", "bert-large", "squeezebert-30528", "squeezebert-30522"],
)
def test_parameter_counts(config, sentence, encoder, with_pooler, pretraining):
    _, params = shapes(config, sentence)
    assert count({name: params[name] for name in ("embedding", "encoder")}) == encoder
    assert count({name: params[name] for name in ("embedding", "encoder", "pooler")}) == with_pooler
    assert count(params) == pretraining


@pytest.mark.parametrize(
    ("config", "gigaflops"), [(Bert(), 22.348), (Bert(**BERT_LARGE), 78.922), (SqueezeBert(), 7.3999)]
)
def test_operation_counts_at_length_128(config, gigaflops):
    model, params = shapes(config, False)
    ids, one = jax.ShapeDtypeStruct((1, 128), jnp.int32), jax.ShapeDtypeStruct((1, 1), jnp.int32)

    def pooled(params, ids, one):
        return model.apply({"params": params}, ids, ids, ids, one).pooled

    assert matmul_flops(pooled, params, ids, one) / 1e9 == pytest.approx(gigaflops, abs=5e-4)


def test_operations_of_loops_and_convolutions():
    x, kernel = jnp.zeros((1, 10, 6)), jnp.zeros((3, 3, 8))

    def looped(x):
        return jax.lax.scan(lambda carry, _: (carry @ jnp.eye(6), None), x, None, length=5)[0]

    def convolved(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=2
        )

    assert matmul_flops(looped, x) == 5 * 2 * 10 * 6 * 6
    assert matmul_flops(convolved, x, kernel) == 2 * 8 * 8 * 3 * 3
    assert matmul_flops(lambda x: (x @ x.T, x)[1], jnp.ones((4, 4))) == 0
