# pyright: reportMissingImports=false
"""ConvBERT beside Hugging Face's, live, at random odd sizes, windows and groups; run by `make test-all`."""

import functools
from typing import Any

import numpy as np
import pytest
from comparing import assert_same_model, needs

needs("torch", "transformers")

import layouts
import reference

from bertzoo.models import Compute, ConvBert
from bertzoo.objectives import Masked

NAMES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "head_ratio": "head_ratio",
    "conv_kernel_size": "kernel_size",
    "intermediate_size": "feed_forward_size",
    "num_groups": "feed_forward_groups",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
    "layer_norm_eps": "norm_epsilon",
}


def random_settings(random: np.random.Generator, groups: int) -> dict[str, Any]:
    """Sizes that share few factors; a head_ratio of 2, since for others Hugging Face's head size is not the original's.

    The activation is gelu: Hugging Face's head has it whatever its config says.
    """
    heads = 2 * int(random.choice([1, 2, 3]))
    width = groups * heads * int(random.integers(2, 6))
    return {
        "vocab_size": int(random.integers(30, 200)),
        "embedding_size": int(random.choice([width, random.integers(5, 40)])),
        "hidden_size": width,
        "num_hidden_layers": int(random.integers(1, 4)),
        "num_attention_heads": heads,
        "head_ratio": 2,
        "conv_kernel_size": int(random.choice([1, 3, 5, 7, 9])),
        "intermediate_size": groups * int(random.integers(5, 30)),
        "num_groups": groups,
        "max_position_embeddings": int(random.integers(16, 40)),
        "type_vocab_size": int(random.integers(2, 4)),
        "layer_norm_eps": float(random.choice([1e-12, 1e-3])),
    }


@pytest.mark.parametrize(("seed", "groups"), [(0, 1), (2, 2), (3, 2), (5, 5)])
def test_forward_loss_and_gradients(seed: int, groups: int) -> None:
    random = np.random.default_rng([seed, groups])
    settings = random_settings(random, groups)
    theirs = reference.MODELS["convbert"](settings)
    reference.randomise(theirs, random)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(7, 13, 1 + int(random.integers(4, 12))))
    config = ConvBert(mask_padding=False, **{NAMES[name]: value for name, value in settings.items()})
    objective = Masked().build(config, Compute())
    convert = functools.partial(layouts.convbert, heads=settings["num_attention_heads"])
    assert_same_model(theirs, convert, objective, batch, outputs=("hidden_states", "attentions", "masked_logits"))
