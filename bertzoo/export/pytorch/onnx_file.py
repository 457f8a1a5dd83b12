# pyright: reportMissingImports=false
"""Write .onnx files by PyTorch, in float32."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo.conversion import pytorch
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export.failure import tool_errors

DIMENSION = "length"
Rows = Mapping[str, np.ndarray]

Operators = dict[str, int]  # count of each operator, the most frequent first


def onnx(pretrained: Pretrained, rows: Rows, lengths: Sequence[int]) -> tuple[bytes, Operators]:
    """Return the bytes of an .onnx file and the counts of its operators.

    rows: example inputs by name.
    lengths: the only length that the file accepts, or the shortest and the longest, in tokens.

    Raises ExportFailed if the exporter rejects the model.
    """
    import torch

    from bertzoo.export.pytorch import phone_module  # imports torch

    with tool_errors("torch's ONNX exporter"):
        description = pytorch.describe_module(pretrained.module()[0])
        params = {path.replace("/", "."): torch.from_numpy(array) for path, array in pretrained.params.items()}
        module = phone_module.phone(pytorch.modeling().make(description, params.pop, ""), tuple(rows))
        tensors = tuple(torch.from_numpy(np.ascontiguousarray(row)) for row in rows.values())
        outputs, shapes = list(module(*tensors)), None
        if len(lengths) > 1:
            length = torch.export.Dim(DIMENSION, min=lengths[0], max=lengths[-1])
            # A tuple of one tuple, because `forward` takes all inputs as one parameter.
            shapes = (tuple({} if name == "masked_positions" else {1: length} for name in rows),)
        exported = torch.export.export(module, tensors, dynamic_shapes=shapes)
        program = torch.onnx.export(exported, tensors, input_names=list(rows), verbose=False)
        assert program is not None
        operators = _rename(program.model, outputs)
        content = program.model_proto.SerializeToString()
    return content, operators


def _rename(model: Any, outputs: Sequence[str]) -> Operators:
    """Name outputs as in `outputs`, other values uniquely, drop metadata; return the counts of operators."""
    for place, node in enumerate(model.graph):
        node.name = f"node_{place}"
        node.metadata_props.clear()
        node.doc_string = None
        for index, value in enumerate(node.outputs):
            value.name = f"value_{place}_{index}"
            value.metadata_props.clear()
            value.shape = value.shape if value in model.graph.outputs else None
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = type(value.shape)([size if isinstance(size, int) else DIMENSION for size in value.shape])
    return dict(Counter(node.op_type for node in model.graph).most_common())
