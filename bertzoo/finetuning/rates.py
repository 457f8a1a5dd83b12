"""Lower layers learn more slowly: the layer-wise decay of ELECTRA's fine-tuning, which ConvBERT's has too."""

import re
from collections.abc import Collection

from bertzoo.train.stage_setup import RateFactor

_LAYER = re.compile(r"encoder/layers_(\d+)/")
BELOW = ("embedding/", "encoder/projection/")


def layerwise(names: Collection[str], decay: float) -> RateFactor | None:
    """By a parameter's path its factor, given those of all; None where there is no decay.

    Of n layers, layer i counted from 0 has decay^(n + 1 - i), so that the top one has decay^2, the embedding and what
    widens it decay^(n + 2), the pooler decay and the head 1 (electra/model/optimization.py, where nothing has the
    first power, as it has no pooler).
    """
    if decay == 1:
        return None
    layers = 1 + max((int(found[1]) for name in names if (found := _LAYER.match(name))), default=-1)

    def rate(name: str) -> float:
        if found := _LAYER.match(name):
            return decay ** (layers + 1 - int(found[1]))
        if name.startswith(BELOW):
            return decay ** (layers + 2)
        return decay if name.startswith("pooler/") else 1.0

    return rate
