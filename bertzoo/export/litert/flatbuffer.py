# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Read and rewrite the tables of a LiteRT file, a flatbuffer."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

_ALIGNED = 16


def share_scales(content: bytes) -> bytes:
    """Return a quantised file with the scales of shared weights stored once and biases made one-dimensional.

    The quantiser stores the scales again for every signature. MobileBERT with five signatures has 0.35 of its float32
    size with repeated scales, and 0.29 with shared scales.
    """
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    flattened = _flatten(model)
    if not _outside(model):
        return _packed(model) if flattened else content
    shared: dict[Any, _SharedTable] = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.quantization is not None and tensor.quantization.details is None:
                once = _SharedTable(tensor.quantization)
                tensor.quantization = shared.setdefault(once.key, once)

    def packed() -> bytes:
        for once in shared.values():
            once.place = None
        return _packed(model)

    return _with_weights(model, content, packed)


def with_metadata(content: bytes, name: str, data: bytes) -> bytes:
    """Return a file with the entry `name` in its metadata and all weights inside the flatbuffer.

    MediaPipe's tasks for the web do not find weights behind the flatbuffer.
    """
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    for buffer in _outside(model):
        buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
        buffer.offset = buffer.size = 0
    model.buffers.append(schema.BufferT(data=np.frombuffer(data, np.uint8)))
    entry = schema.MetadataT(name=name, buffer=len(model.buffers) - 1)
    model.metadata = [*(model.metadata or []), entry]
    return _packed(model)


def _outside(model: Any) -> list[Any]:
    """Return the buffers whose data lies behind the flatbuffer, not inside; a small file has none."""
    return [buffer for buffer in model.buffers if buffer.offset > 1]


def _with_weights(model: Any, content: bytes, pack: Callable[[], bytes]) -> bytes:
    """Pack a model and append the weights that lie behind the flatbuffer of `content`.

    Sets the offsets of these weights in the model to their new places. pack: returns the model's flatbuffer.
    """
    outside = _outside(model)
    if not outside:
        return pack()
    begin = min(buffer.offset for buffer in outside)
    end = -(-len(pack()) // _ALIGNED) * _ALIGNED  # offsets have a fixed width, so new values keep this size
    for buffer in outside:
        buffer.offset += end - begin
    head = pack()
    return head + bytes(end - len(head)) + content[begin:]


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _flatten(model: Any) -> int:
    """Reshape biases with N quantisation scales from (1,N) to (N,); return how many were reshaped."""
    count = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            table = tensor.quantization
            if table is None or table.scale is None or table.quantizedDimension:
                continue
            if len(table.scale) > 1 and list(tensor.shape) == [1, len(table.scale)]:
                tensor.shape = [len(table.scale)]
                count += 1
    return count


class _SharedTable:
    """A tensor's quantisation parameters, which the flatbuffer stores once and then references."""

    def __init__(self, table: Any):
        self.table, self.place = table, None
        arrays = (table.scale, table.zeroPoint, table.min, table.max)
        self.key = (
            table.quantizedDimension,
            *(None if array is None else bytes(memoryview(array)) for array in arrays),
        )

    def Pack(self, builder: Any) -> int:  # flatbuffers calls it by this name
        if self.place is None:
            self.place = self.table.Pack(builder)
        return self.place


def operators(content: bytes) -> dict[str, int]:
    """Return the count of each operator in a file's first graph, the most frequent first."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.Model.GetRootAs(content)
    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    graph: Any = model.Subgraphs(0)
    codes = (graph.Operators(index).OpcodeIndex() for index in range(graph.OperatorsLength()))
    counts: Counter[str] = Counter(names[model.OperatorCodes(code).BuiltinCode()] for code in codes)
    return dict(counts.most_common())


def row_widths(content: bytes) -> set[int]:
    """Return the widths of the rows of a file's dense kernels and embedding tables."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    readers = (schema.BuiltinOperator.FULLY_CONNECTED, schema.BuiltinOperator.EMBEDDING_LOOKUP)
    return {
        int(graph.tensors[operator.inputs[1]].shape[-1])
        for graph in model.subgraphs
        for operator in graph.operators
        if model.operatorCodes[operator.opcodeIndex].builtinCode in readers
    }


def ports(content: bytes) -> dict[str, dict[str, list[tuple[str, str, list[int]]]]]:
    """Return the "inputs" and "outputs" of each signature, in the graph's order, as (name, type, shape)."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    names = ("float32", "int32", "int64", "int8", "uint8")
    types = {getattr(schema.TensorType, name.upper()): name for name in names}
    signatures = {}
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]

        def describe(places: Any, maps: Any, tensors: Any = graph.tensors) -> list[tuple[str, str, list[int]]]:
            given = {port.tensorIndex: port.name.decode() for port in maps}
            return [(given[at], types[tensors[at].type], [int(size) for size in tensors[at].shape]) for at in places]

        signatures[signature.signatureKey.decode()] = {
            "inputs": describe(graph.inputs, signature.inputs),
            "outputs": describe(graph.outputs, signature.outputs),
        }
    return signatures
