"""Every kind of model under every kind of head, small and with random parameters, and rows for them to read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.heads import (
    JointSpanExtraction,
    MaskedLanguageModel,
    MultiTaskHead,
    ReplacedTokens,
    SentenceEmbedding,
    SequenceClassification,
    SpanExtraction,
    TokenClassification,
    parameter_shapes,
)
from bertzoo.heads.multi_task import NamedHead
from bertzoo.models import (
    Albert,
    Bert,
    ConvBert,
    DistilBert,
    Electra,
    MobileBert,
    ModernBert,
    SchuBert,
    SqueezeBert,
    Static,
    attention,
)
from bertzoo.nn.parameter import init_shapes
from bertzoo.train import sharding
from bertzoo.train.state import name_of

SIZES = {"vocab_size": 61, "hidden_size": 24, "max_positions": 16}
UNEVEN = {"feed_forward_sizes": (20, 34), "heads": (3, 2), "key_sizes": (7, 5), "value_sizes": (4, 9)}
LAYERS = {"layers": 2, "heads": 4, "feed_forward_size": 20}
MOBILE = SIZES | LAYERS | {"embedding_size": 10, "bottleneck_size": 12, "feed_forwards": 2}
CONVOLVED = SIZES | LAYERS | {"embedding_size": 10, "kernel_size": 5}
CASES: dict[str, tuple[Any, Any]] = {
    "schubert": (SchuBert(**SIZES, **UNEVEN), MaskedLanguageModel(sentence=True)),
    "ib-bert": (
        MobileBert(
            **MOBILE | {"feed_forwards": 1},
            attention_input="stream",
            norm="layer_norm",
            activation="gelu_tanh",
            pooler=True,
        ),
        MaskedLanguageModel(sentence=True),
    ),
    "mobilebert": (MobileBert(**MOBILE), SequenceClassification(labels=("a", "b", "c"))),
    "mobilebert-tiny": (
        MobileBert(**MOBILE, attention_input="bottleneck"),
        SentenceEmbedding(pooling="max", normalise=False),
    ),
    "convbert-span": (ConvBert(**CONVOLVED, feed_forward_groups=2), MaskedLanguageModel()),
    "convbert-dynamic": (
        ConvBert(**CONVOLVED, convolution="dynamic", mask_padding=False),
        SpanExtraction(hidden="gelu"),
    ),
    "convbert-joint-span": (ConvBert(**CONVOLVED), JointSpanExtraction(hidden_size=14, beam=3)),
    "convbert-fixed": (
        ConvBert(**CONVOLVED | {"feed_forward_size": (20, 14)}, convolution="fixed"),
        SequenceClassification(hidden="gelu", pooling="mean"),
    ),
    "bottleneck-mixed-grouped": (
        MobileBert(
            **MOBILE | {"feed_forward_groups": 2, "feed_forward_size": (20, 12)},
            attention=attention.MixedHeads(kernel_size=3),
            attention_input="stream",
        ),
        MaskedLanguageModel(),
    ),
    "bottleneck-grouped": (
        MobileBert(**MOBILE, attention=attention.GroupedHeads(output_groups=2)),
        SentenceEmbedding(pooling="weighted_mean"),
    ),
    "albert": (Albert(**SIZES | LAYERS | {"layers": 3}, embedding_size=10), MaskedLanguageModel(sentence=True)),
    "electra-discriminator": (Electra(**SIZES, **LAYERS, embedding_size=10), ReplacedTokens()),
    "convbert-discriminator": (ConvBert(**CONVOLVED), ReplacedTokens()),
    "squeezebert": (SqueezeBert(**SIZES, **LAYERS), TokenClassification(labels=("x", "y"))),
    "squeezebert-uneven": (
        SqueezeBert(**SIZES, **LAYERS | {"feed_forward_size": (20, 28)}),
        SentenceEmbedding(pooling="first", pooler=True),
    ),
    "distilbert-joint-span": (DistilBert(**SIZES, **LAYERS), JointSpanExtraction(hidden_size=14, beam=3)),
    "bert-masked": (Bert(**SIZES, **LAYERS), MaskedLanguageModel()),
    "distilbert": (DistilBert(**SIZES, **LAYERS), SequenceClassification(hidden="relu")),
    "bert-heads": (
        Bert(**SIZES, **LAYERS),
        MultiTaskHead(
            heads=(
                NamedHead(name="intent", weight=0.5, head=SequenceClassification(labels=("a", "b", "c"))),
                NamedHead(name="slots", head=TokenClassification(labels=("x", "y"))),
            )
        ),
    ),
    "modernbert": (
        ModernBert(**SIZES, **LAYERS | {"layers": 3}, window=4, global_every=2),
        TokenClassification(labels=("x", "y"), hidden="gelu"),
    ),
    "modernbert-masked": (ModernBert(**SIZES, **LAYERS, window=4), MaskedLanguageModel()),
    "modernbert-grouped": (
        ModernBert(**SIZES, **LAYERS, bottleneck_size=16, feed_forward_groups=2, attention=attention.GroupedHeads()),
        SequenceClassification(hidden="gelu"),
    ),
    "modernbert-mixed": (
        ModernBert(
            **SIZES, **LAYERS | {"feed_forward_size": (20, 14)}, window=4, attention=attention.MixedHeads(kernel_size=3)
        ),
        MaskedLanguageModel(),
    ),
    "bert": (Bert(**SIZES, **LAYERS), SentenceEmbedding(projection=14, activation="tanh", size=8)),
}
WINDOWED = SqueezeBert(**SIZES, **LAYERS, kernel_size=3, dilation=2, stride=3)
STATIC = {"static": (Static(**SIZES), SentenceEmbedding(size=16))}  # without layers, which prune and benchmarks need
WINDOWS = {  # of keys, which LiteRT files do not have
    "squeezebert-window": (replace(WINDOWED, stride=1), SentenceEmbedding(normalise=False)),
    "squeezebert-stride": (WINDOWED, SentenceEmbedding()),
}
TORCH_CASES = CASES | STATIC | WINDOWS


def pretrained(model: Any, head: Any, deviation: float = 0.3) -> Pretrained:
    """Random parameters, biases and norms too."""
    random = np.random.default_rng(0)
    params = {
        path: (random.normal(0, deviation, shape) + path.endswith("scale")).astype(np.float32)
        for path, shape in parameter_shapes(model, head).items()
    }
    return Pretrained(model=model, head=head, params=params, tokenizer=None, origin="here", source={})


def drawn(init: Callable, *args: Any, deviation: float = 0.3, seed: int = 0) -> Any:
    """Random parameters of a module or an objective, biases and norms too, without compiling `init`."""
    random = np.random.default_rng(seed)

    def leaf(path: Any, shape: Any) -> jax.Array:
        values = random.normal(0, deviation, shape.shape) + name_of(path).endswith("scale")
        return jnp.asarray(values, jnp.float32)

    return jax.tree.map_with_path(leaf, nn.unbox(init_shapes(init, *args)))


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(1)
    mask = (np.arange(11) < [[11], [7], [4]]).astype(np.int32)
    return [random.integers(1, 61, (3, 11)), random.integers(0, 2, (3, 11)), mask]


def batch_of(
    rows: int = 4, length: int = 12, masked: int = 3, seed: Any = 0, vocabulary: int = 50, spare: int = 0
) -> dict[str, np.ndarray]:
    """Rows of unequal length, with unequal numbers of masked tokens; the last `spare` rows count nowhere."""
    random = np.random.default_rng(seed)
    lengths, counts = random.integers(length // 2, length + 1, (rows, 1)), np.arange(rows) < rows - spare
    batch = {
        "input_ids": random.integers(5, vocabulary, (rows, length)),
        "token_type_ids": random.integers(0, 2, (rows, length)),
        "attention_mask": np.arange(length) < lengths,
        "masked_positions": np.stack([random.choice(np.arange(1, length // 2), masked, False) for _ in range(rows)]),
        "masked_ids": random.integers(5, vocabulary, (rows, masked)),
        "sentence_label": random.integers(0, 2, rows),
    }
    weights = {"masked_weights": random.integers(0, 2, (rows, masked)) * counts[:, None], "row_weight": counts}
    return {name: array.astype(np.int32) for name, array in batch.items()} | {
        name: array.astype(np.float32) for name, array in weights.items()
    }


def mesh_of(sizes: tuple[int, int, int]) -> jax.sharding.Mesh:
    """A mesh of these numbers of devices along data, fsdp and tensor."""
    config = sharding.Mesh(**dict(zip(("data", "fsdp", "tensor"), sizes, strict=True)))
    return sharding.make_mesh(config, jax.devices()[: np.prod(sizes)])
