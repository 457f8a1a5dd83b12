"""Write models to be timed, in the formats of `bertzoo convert`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.benchmarking.options import BACKEND_NAMES
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export.formats import FileSettings, Target, flops_by_signature
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.options import SUFFIXES, Precision

BACKENDS = {SUFFIXES[name]: name for name in BACKEND_NAMES}  # by the suffix of the files that they run


def write_timed(
    target: Target, pretrained: Pretrained, file: Path, lengths: Sequence[int], precision: Precision
) -> dict[str, Any]:
    """Write a file for rows of `lengths` tokens; return the entries of its metadata JSON that a benchmark reads."""
    graph = training_graph(pretrained)
    facts = target.make(pretrained, graph, FileSettings(lengths=tuple(lengths), precision=precision), file)
    model = pretrained.model
    return {
        "precision": precision,
        "parameters": pretrained.parameter_count,
        "model": {"vocab_size": model.vocab_size, "max_positions": model.max_positions},
        "head": {"kind": pretrained.head.kind},
        "inputs": list(graph.inputs),
        "flops": facts.get("flops") or flops_by_signature(graph, lengths),
    }
