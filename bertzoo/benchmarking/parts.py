"""Count a model's operations by part, as in SqueezeBERT's Table 1 (Iandola et al. 2020)."""

import re

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.litert.write import row_shapes
from bertzoo.nn.flops import flops_by_scope

# Patterns of Linen modules' scopes; the first that matches counts. Table 1 counts attention_output as part of the FFN:
# BERT-base's projections are 24.3 %, attention 2.70 %, and FFN 8.1 + 64.9 = 73.0 %.
PARTS = {
    "embedding": r"/embedding/|/encoder/projection/",
    "projections": r"/layers_\d+/attention/(convolution/)?(query|key|value|gate)/",
    "attention_output": r"/layers_\d+/attention/output/",
    "attention": r"/layers_\d+/attention/",
    "feed_forward": r"/layers_\d+/feed_forward",
    "bottleneck": r"/layers_\d+/",
    "head": "",
}


def flops_by_part(pretrained: Pretrained, length: int) -> dict[str, int]:
    """Count the FLOPs of the training graph's matrix products for a row of `length` tokens, 2 per multiply-add.

    Returns the counts by name in PARTS.
    """
    graph = training_graph(pretrained)
    counts = dict.fromkeys(PARTS, 0)
    for scope, count in flops_by_scope(lambda graph, row: graph(**row), graph, row_shapes(graph, length)).items():
        counts[next(part for part, pattern in PARTS.items() if re.search(pattern, scope))] += count
    return counts
