# pyright: reportMissingImports=false
"""MobileBERT beside Hugging Face's, live, at random odd sizes (`make test-all`)."""

import functools
from typing import Any

import numpy as np
import pytest
from comparing import TOLERANCE, assert_same_model, needs

needs("torch", "transformers")

import layouts
import reference

from bertzoo.models import Compute, MobileBert
from bertzoo.objectives import Masked

NAMES = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "intra_bottleneck_size": "bottleneck_size",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward_size",
    "num_feedforward_networks": "feed_forwards",
    "normalization_type": "norm",
    "classifier_activation": "pooler",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "token_types",
    "hidden_act": "activation",
}
# Hugging Face builds the tiny model's shared bottleneck, which is unused, unless the config disables it.
INPUTS = {
    "shared": {"use_bottleneck_attention": False, "key_query_shared_bottleneck": True},
    "bottleneck": {"use_bottleneck_attention": True, "key_query_shared_bottleneck": False},
    "plain": {"use_bottleneck": False},
}


def random_settings(random: np.random.Generator, plain: bool) -> dict[str, Any]:
    """Sizes that share few factors, so that a swapped pair of axes cannot fit."""
    heads = int(random.choice([2, 3, 5]))
    narrow = heads * int(random.integers(2, 5))
    wide = heads * int(random.integers(5, 9))
    return {
        "vocab_size": int(random.integers(30, 200)),
        "embedding_size": int(random.integers(3, wide)),
        "hidden_size": wide,
        "intra_bottleneck_size": narrow,
        "num_hidden_layers": int(random.integers(1, 3)),
        "num_attention_heads": heads,
        "intermediate_size": int(random.integers(7, 40)),
        "num_feedforward_networks": 1 if plain else int(random.integers(1, 4)),
        "max_position_embeddings": int(random.integers(16, 40)),
        "type_vocab_size": int(random.integers(2, 4)),
        "hidden_act": str(random.choice(["gelu", "relu"])),
    }


CASES = [
    ("shared", "no_norm", False),
    ("shared", "layer_norm", True),
    ("bottleneck", "no_norm", True),
    ("bottleneck", "layer_norm", False),
    ("plain", "layer_norm", True),
]


@pytest.mark.parametrize(("attention_input", "norm", "pooler"), CASES)
def test_forward_loss_and_gradients(attention_input: str, norm: str, pooler: bool) -> None:
    compare(CASES.index((attention_input, norm, pooler)), attention_input, norm, pooler, {}, TOLERANCE)


def test_24_layers() -> None:
    """Wired as the released model; rounding adds up over the layers."""
    more = {"num_hidden_layers": 24, "num_feedforward_networks": 4, "hidden_act": "relu"}
    compare(len(CASES), "shared", "no_norm", False, more, 10 * TOLERANCE)


def compare(seed: int, attention_input: str, norm: str, pooler: bool, more: dict[str, Any], tolerance: float) -> None:
    random = np.random.default_rng([seed, 7])
    settings = random_settings(random, attention_input == "plain") | more
    settings |= {"normalization_type": norm, "classifier_activation": pooler} | INPUTS[attention_input]
    theirs = reference.MODELS["mobilebert"](settings)
    reference.randomise(theirs, random)
    if more:
        reference.calm(theirs)
    batch = reference.random_batch(random, settings["vocab_size"], lengths=(7, 13, 1 + int(random.integers(4, 12))))
    sizes = {NAMES[name]: value for name, value in settings.items() if name in NAMES}
    if attention_input == "plain":
        sizes |= {"bottleneck_size": None, "attention_input": "stream"}
    else:
        sizes["attention_input"] = attention_input
    config = MobileBert(**sizes, mask_padding=False, norm_epsilon=1e-5)
    objective = Masked(sentence="nsp").build(config, Compute())
    convert = functools.partial(layouts.mobilebert, heads=settings["num_attention_heads"])
    assert_same_model(theirs, convert, objective, batch, tolerance=tolerance)
