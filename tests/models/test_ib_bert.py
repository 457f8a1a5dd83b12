"""IB-BERT and MobileBERT as its paper has it, which Hugging Face cannot run, equal their equations in numpy: outputs,
loss, and gradients by differences.
"""

from typing import Any

import flax.linen as nn
import ib_bert
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arrays import flatten
from flax.traverse_util import unflatten_dict
from tiers import quick

from bertzoo.core.config import load
from bertzoo.models import Compute, MobileBert
from bertzoo.objectives import Masked
from bertzoo.runs.configs import Pretrain
from bertzoo.train.state import boxed_shapes

TOLERANCE = 1e-5
EPSILON = 1e-3  # far from the default, so that each of the norms must have it


# As configs/ib_bert_large.toml and mobilebert_paper.toml are wired, and the same in the numpy of this room.
IB_BERT = {"feed_forwards": 1, "norm": "layer_norm", "pooler": True, "activation": "gelu_tanh"}
PAPER = {"feed_forwards": 4, "norm": "no_norm", "pooler": False, "activation": "relu"}
THEIRS = {"layer_norm": ib_bert.layer_norm, "no_norm": ib_bert.no_norm, "gelu_tanh": ib_bert.gelu, "relu": ib_bert.relu}


def random_model(random: np.random.Generator, wiring: dict[str, Any], mask_padding: bool) -> MobileBert:
    """Sizes that share few factors."""
    heads = int(random.choice([2, 3, 5]))
    embedding = int(random.integers(3, 12))
    return MobileBert(
        vocab_size=int(random.integers(30, 90)), embedding_size=embedding,
        hidden_size=embedding + int(random.integers(1, 12)), bottleneck_size=heads * int(random.integers(3, 9)),
        layers=2, heads=heads, feed_forward_size=int(random.integers(9, 50)), attention_input="stream",
        mask_padding=mask_padding, max_positions=int(random.integers(13, 20)), token_types=int(random.integers(2, 4)),
        dropout=0.1, norm_epsilon=EPSILON, **wiring,
    )  # fmt: skip


def random_batch(random: np.random.Generator, model: MobileBert) -> dict[str, np.ndarray]:
    """Rows of three lengths; some slots are unused, and the padding has ids."""
    mask = (np.arange(13) < np.array([[13], [7], [10]])).astype(np.int32)
    return {
        "input_ids": random.integers(0, model.vocab_size, (3, 13)),
        "token_type_ids": random.integers(0, model.token_types, (3, 13)),
        "attention_mask": mask,
        "masked_positions": random.integers(0, 7, (3, 4)),
        "masked_ids": random.integers(0, model.vocab_size, (3, 4)),
        "masked_weights": np.array([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]], np.float32),
    }


def random_params(random: np.random.Generator, objective: Any, norm: str) -> dict[str, np.ndarray]:
    """Sizable values everywhere, biases and norms too, that float32 holds exactly.

    Kernels are smaller where no norm (NoNorm) keeps the sums from growing until every softmax has one answer.
    """
    kernel = 1.2 if norm == "layer_norm" else 0.7
    params = {}
    for path, leaf in flatten(nn.unbox(boxed_shapes(objective))).items():
        inputs = leaf.shape[0] * leaf.shape[1] if "output/kernel" in path and leaf.ndim == 3 else leaf.shape[0]
        scales = {"kernel": kernel / np.sqrt(inputs), "embedding": 1.0, "scale": 0.4, "bias": 0.4}
        values = scales[path.rsplit("/", 1)[1]] * random.normal(size=leaf.shape) + path.endswith("/scale")
        params[path] = values.astype(np.float32).astype(np.float64)
    return params


@pytest.mark.parametrize(
    ("wiring", "name"), [(IB_BERT, "ib_bert_large"), (PAPER, "mobilebert_paper")], ids=["ib_bert", "paper"]
)
def test_the_wiring_follows_the_config(wiring: dict[str, Any], name: str) -> None:
    model = load(Pretrain, [name]).model
    assert {field: getattr(model, field) for field in wiring} == wiring
    assert isinstance(model, MobileBert) and model.attention_input == "stream"


@pytest.mark.parametrize(
    ("seed", "wiring", "mask_padding"),
    quick([(0, IB_BERT, True), (1, IB_BERT, False), (2, PAPER, True)], (0, IB_BERT, True)),
    ids=["ib_bert, masked", "ib_bert", "paper"],
)
def test_outputs_loss_and_gradients(seed: int, wiring: dict[str, Any], mask_padding: bool) -> None:
    random = np.random.default_rng([seed, 11])
    model = random_model(random, wiring, mask_padding)
    objective = Masked(sentence="nsp").build(model, Compute())
    batch, params = random_batch(random, model), random_params(random, objective, model.norm)

    def ours(params):
        inputs = [batch[name] for name in ("input_ids", "token_type_ids", "attention_mask", "masked_positions")]
        labels = {"sentence_label": np.zeros(3, np.int32), "row_weight": np.ones(3, np.float32)}
        sums, metrics = objective(params, None, batch | labels, None)
        return sums["mlm"] / metrics["mlm_loss"][1], objective.model.apply({"params": params}, *inputs)

    float32 = {path: jnp.asarray(array, jnp.float32) for path, array in params.items()}
    (loss, output), tree = jax.jit(jax.value_and_grad(ours, has_aux=True))(unflatten_dict(float32, sep="/"))
    settings = model.layers, mask_padding, EPSILON, THEIRS[model.norm], THEIRS[model.activation]
    expected = ib_bert.forward(params, batch, *settings)
    outputs = {name: np.array(getattr(output, name)) for name in expected if name != "masked_loss"}
    for name, value in (outputs | {"masked_loss": np.array(loss)}).items():
        assert value.shape == expected[name].shape, name
        for n in range(len(value)) if name in ("hidden_states", "attentions") else [...]:
            error = np.abs(value[n] - expected[name][n]).max() / np.abs(expected[name][n]).max()
            assert error <= TOLERANCE, f"{name}[{n}]: off by {error:.1e} of the maximum"
    check_gradients(params, tree, lambda moved: ib_bert.forward(moved, batch, *settings)["masked_loss"])


def check_gradients(params: dict[str, np.ndarray], tree: Any, loss: Any) -> None:
    """For every tensor, the slope of the loss in a random direction, by central differences in float64."""
    random, step = np.random.default_rng(5), 1e-5
    gradients = flatten(tree)
    assert gradients.keys() == params.keys()
    for path, gradient in gradients.items():
        if path.startswith(("pooler/", "sentence_head/")):  # the MLM loss does not see them
            assert not np.any(gradient), path
            continue
        direction = random.normal(size=gradient.shape)
        ends = [loss(params | {path: params[path] + sign * step * direction}) for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * step)
        # A key bias has no gradient on paper: it is measured by the query bias's.
        scale = np.linalg.norm(gradients[path.replace("key/bias", "query/bias")]) * np.linalg.norm(direction)
        assert abs(np.sum(gradient * direction) - slope) <= TOLERANCE * scale, path
