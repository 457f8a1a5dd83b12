# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""The tables of a LiteRT file: equal ones kept once, and what stands in them."""

from collections import Counter
from typing import Any

_ALIGNED = 16


def share(content: bytes) -> bytes:
    """A quantised file whose signatures share the scales of the weights that they share; the weights stay as they are,
    and so do all numbers of a bias that is made one axis.

    The quantiser repeats them for each: five lengths of MobileBERT are 0.35 of float32 with them and 0.29 without.
    """
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    flattened = _flatten(model)
    outside = [buffer for buffer in model.buffers if buffer.offset > 1]
    if not outside:  # a small file has its weights inside
        return _packed(model) if flattened else content
    begin = min(buffer.offset for buffer in outside)
    kept: dict[Any, _Once] = {}
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.quantization is not None and tensor.quantization.details is None:
                once = _Once(tensor.quantization)
                tensor.quantization = kept.setdefault(once.key, once)

    def packed() -> bytes:
        for once in kept.values():
            once.place = None
        return _packed(model)

    end = -(-len(packed()) // _ALIGNED) * _ALIGNED  # offsets are numbers of one width, whatever they are
    for buffer in outside:
        buffer.offset += end - begin
    head = packed()
    return head + bytes(end - len(head)) + content[begin:]


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _flatten(model: Any) -> int:
    """Give biases that the converter left as one row, (1,N), the one axis that their N scales are of; how many."""
    found = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            table = tensor.quantization
            if table is None or table.scale is None or table.quantizedDimension:
                continue
            if len(table.scale) > 1 and list(tensor.shape) == [1, len(table.scale)]:
                tensor.shape = [len(table.scale)]
                found += 1
    return found


class _Once:
    """A table of quantisation that is written where it is first asked for, and after that only referred to."""

    def __init__(self, table: Any):
        self.table, self.place = table, None
        arrays = (table.scale, table.zeroPoint, table.min, table.max)
        self.key = (table.quantizedDimension, *(None if each is None else bytes(memoryview(each)) for each in arrays))

    def Pack(self, builder: Any) -> int:  # the name by which a packer asks for it
        if self.place is None:
            self.place = self.table.Pack(builder)
        return self.place


def dense_weights(content: bytes) -> list[bytes]:
    """The weights (O,I) of the dense operators of the first signature's graph, in the order in which they run."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.Model.GetRootAs(content)
    graph: Any = model.Subgraphs(0)
    found = []
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        if model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode() == schema.BuiltinOperator.FULLY_CONNECTED:
            buffer: Any = model.Buffers(graph.Tensors(operator.Inputs(1)).Buffer())
            begin, size = buffer.Offset(), buffer.Size()
            found.append(content[begin : begin + size] if begin > 1 else buffer.DataAsNumpy().tobytes())
    return found


def operators(content: bytes) -> dict[str, int]:
    """How often each operator stands in the first signature's graph."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.Model.GetRootAs(content)
    names = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    graph: Any = model.Subgraphs(0)
    codes = (graph.Operators(index).OpcodeIndex() for index in range(graph.OperatorsLength()))
    found: Counter[str] = Counter(names[model.OperatorCodes(code).BuiltinCode()] for code in codes)
    return dict(found.most_common())


def ports(content: bytes) -> dict[str, dict[str, list[tuple[str, str, list[int]]]]]:
    """By signature its `inputs` and its `outputs` as its graph has them in order: name, type of numbers, and shape."""
    from litert_converter import schema_py_generated as schema

    model: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    types = {schema.TensorType.FLOAT32: "float32", schema.TensorType.INT32: "int32", schema.TensorType.INT64: "int64"}
    found = {}
    for signature in model.signatureDefs:
        graph = model.subgraphs[signature.subgraphIndex]

        def described(places: Any, maps: Any, tensors: Any = graph.tensors) -> list[tuple[str, str, list[int]]]:
            names = {each.tensorIndex: each.name.decode() for each in maps}
            return [(names[at], types[tensors[at].type], [int(size) for size in tensors[at].shape]) for at in places]

        found[signature.signatureKey.decode()] = {
            "inputs": described(graph.inputs, signature.inputs),
            "outputs": described(graph.outputs, signature.outputs),
        }
    return found
