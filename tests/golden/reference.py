# pyright: reportMissingImports=false
"""The other side of live comparisons: torch models with random parameters in float64, and a random batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def inputs(batch: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Ids, and the other two arguments of a Hugging Face model."""
    rest = {name: torch.tensor(batch[name]).long() for name in ("attention_mask", "token_type_ids")}
    return torch.tensor(batch["input_ids"]).long(), rest


def mlm_labels(batch: Mapping[str, np.ndarray]) -> torch.Tensor:
    """(B, L): the masked ids at the masked positions, -100 elsewhere."""
    labels = np.full(batch["input_ids"].shape, -100)
    rows, slots = np.nonzero(batch["masked_weights"])
    labels[rows, batch["masked_positions"][rows, slots]] = batch["masked_ids"][rows, slots]
    return torch.tensor(labels)


def randomise(model: torch.nn.Module, random: np.random.Generator) -> None:
    """Fill every parameter with sizable float32 values, then go to float64 with dropout off.

    Embedding tables are small, so that a wrong epsilon of the embedding norm shows; kernels keep outputs near one.
    Tables beside the bias of an embedding transformation are large, or all tokens would look alike, and kernels are
    smaller where no norm (NoNorm) keeps the sums from growing.
    """
    table = 1.0 if any("embedding_transformation" in name for name, _ in model.named_parameters()) else 0.03
    kernel = 0.7 if any(type(module).__name__ == "NoNorm" for module in model.modules()) else 1.2
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
            scale = table if "_embeddings." in name and parameter.ndim > 1 else kernel / np.sqrt(fan_in)
            values = scale * random.normal(size=parameter.shape)
            if parameter.ndim == 1:
                values = 0.4 * values + (1.0 if "norm.weight" in name.lower() else 0.0)
            parameter.copy_(torch.tensor(values.astype(np.float32)))
    model.double().eval()


def random_batch(
    random: np.random.Generator, vocabulary: int, lengths: tuple[int, ...], predictions: int = 4
) -> dict[str, Any]:
    """A batch of pairs by `pipeline.array_shapes`: rows of these lengths, padded to the longest; some slots unused."""
    rows, length = len(lengths), max(lengths)
    batch: dict[str, Any] = {
        name: np.zeros((rows, length), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    batch |= {name: np.zeros((rows, predictions), np.int32) for name in ("masked_positions", "masked_ids")}
    batch["masked_weights"] = np.zeros((rows, predictions), np.float32)
    for row, size in enumerate(lengths):
        batch["input_ids"][row, :size] = random.integers(1, vocabulary, size)
        batch["token_type_ids"][row, size // 2 : size] = 1
        batch["attention_mask"][row, :size] = 1
        used = max(1, predictions - row)
        batch["masked_positions"][row, :used] = np.sort(random.choice(np.arange(1, size), used, replace=False))
        batch["masked_ids"][row, :used] = random.integers(1, vocabulary, used)
        batch["masked_weights"][row, :used] = 1.0
    batch["sentence_label"] = np.arange(rows, dtype=np.int32) % 2
    batch["row_weight"] = np.ones(rows, np.float32)
    return batch
