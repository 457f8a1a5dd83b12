"""Layer-wise rates against the numbers of ELECTRA's code."""

import pytest

from bertzoo.finetuning.seeds import layerwise_rates

NAMES = [
    "embedding/word/embedding",
    "encoder/projection/kernel",
    *(f"encoder/layers_{layer}/attention/query/kernel" for layer in range(12)),
    "pooler/kernel",
    "classifier/output/kernel",
]


def test_rates_equal_electras_code() -> None:
    # _get_layer_lrs: depth 0 the embeddings, i + 1 layer i, n + 2 the task's head; the rate is decay^(n + 2 - depth).
    rate = layerwise_rates(NAMES, 0.8)
    assert rate is not None
    depths = {"embedding": 0, "projection": 0, "pooler": 13, "classifier": 14} | {
        f"layers_{i}": i + 1 for i in range(12)
    }
    for name in NAMES:
        (depth,) = [depth for part, depth in depths.items() if part in name.split("/")]
        assert rate(name) == pytest.approx(0.8 ** (14 - depth))
    assert rate(NAMES[-3]) == pytest.approx(0.64)
