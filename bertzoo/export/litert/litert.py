# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""Graphs of several lengths -> one LiteRT file with a signature each and one set of weights; and its interpreter.

It, litert_process.py, quantise.py and tables.py alone import LiteRT's packages.
"""

import contextlib
import functools
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.export.failure import ExportFailed, installed

if TYPE_CHECKING:  # reading and running a file needs no jax, whose import takes a second
    import jax

# Or they tell which instructions they were built for, and how they round.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
PACKAGES = ("litert_converter", "ai_edge_litert", "litert_quantizer")
CONVERTER = Path(__file__).with_name("litert_process.py")
# Said once in a process, when an interpreter makes the delegate, and silenced by no setting.
ANNOUNCED = b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU."
POSITIONS = 1  # of masked_positions: a blank at a time


def check() -> None:
    """Raise UserError where LiteRT's packages are not installed."""
    installed("litert", PACKAGES, "litert")


def signature(length: int) -> str:
    """The name of the signature of a length."""
    return f"length_{length}"


def shapes(graph: Any, length: int) -> "dict[str, jax.ShapeDtypeStruct]":
    """The inputs of a graph's signature of a length, one row each."""
    import jax

    sizes = {"masked_positions": POSITIONS}
    return {name: jax.ShapeDtypeStruct((1, sizes.get(name, length)), np.int32) for name in graph.inputs}


def convert(graph: Any, lengths: Sequence[int]) -> bytes:
    """A LiteRT file in float32; raises ExportFailed where the converter does not take the graph, or ends."""
    import jax

    leaves, structure = jax.tree.flatten(graph)
    arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
    modules = [_module(structure, arrays, length) for length in lengths]
    request = pickle.dumps((modules, arrays), protocol=pickle.HIGHEST_PROTOCOL)
    # -P: without the script's own folder among those that imports are looked for in.
    done = subprocess.run([sys.executable, "-P", str(CONVERTER)], input=request, capture_output=True)
    del request
    if done.returncode:
        last = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise ExportFailed(f"the LiteRT converter {_ended(done.returncode)} on this model: {last or 'it said nothing'}")
    said = pickle.loads(done.stdout)
    if "error" in said:
        raise ExportFailed(f"the LiteRT converter does not take this model: {said['error'][:300]}")
    return said["file"]


def _ended(code: int) -> str:
    """How a process ended that should not have."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _module(structure: Any, arrays: Sequence[np.ndarray], length: int) -> tuple[str, str, list[str], list[str]]:
    """The signature's name, StableHLO whose other symbols end in the length, names of inputs and outputs."""
    import jax

    graph = jax.tree.unflatten(structure, arrays)
    given = shapes(graph, length)
    outputs: list[str] = []

    def function(leaves: Sequence[jax.Array], *rows: jax.Array) -> tuple[jax.Array, ...]:
        whole = jax.tree.unflatten(structure, leaves)
        found = whole(**{name: row[0] for name, row in zip(given, rows, strict=True)})
        outputs[:] = found
        return tuple(array[None] for array in found.values())

    abstract = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(abstract, *given.values())
    text = str(exported.mlir_module())
    defined = set(re.findall(r"func\.func (?:public |private )?@([\w.$-]+)", text))
    renamed = {name: f"{name}_{length}" for name in defined} | {"main": signature(length)}
    text = re.sub(r"@([\w.$-]+)", lambda found: f"@{renamed.get(found[1], found[1])}", text)
    return signature(length), text, list(given), outputs


@functools.cache
def announce_unheard() -> None:
    """Have the delegate announced now, of a file of one operator, so that all that is said of a real file is heard."""
    if sys.stderr is None:  # nobody hears anything
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as said:
            os.dup2(said.fileno(), 2)
            try:
                _run_one()
            finally:
                os.dup2(kept, 2)
            said.seek(0)
            for line in said:
                if line.strip() != ANNOUNCED:
                    os.write(2, line)
    finally:
        os.close(kept)


def _run_one() -> None:
    from ai_edge_litert.interpreter import Interpreter

    # Where this is not taken, real files are not either, or they are announced.
    with contextlib.suppress(ValueError, RuntimeError):
        Interpreter(model_content=_one_operator(), num_threads=1).allocate_tensors()


def _one_operator() -> bytes:
    """The absolute value of one number."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    made: Any = schema
    tensors = [made.TensorT(shape=[1], type=made.TensorType.FLOAT32) for _ in range(2)]
    operator = made.OperatorT(inputs=[0], outputs=[1])
    graph = made.SubGraphT(tensors=tensors, inputs=[0], outputs=[1], operators=[operator])
    absolute = made.BuiltinOperator.ABS
    code = made.OperatorCodeT(builtinCode=absolute, deprecatedBuiltinCode=absolute)
    model = made.ModelT(version=3, subgraphs=[graph], buffers=[made.BufferT()], operatorCodes=[code])
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class Interpreter:
    """A LiteRT file, run: a signature's inputs by name -> its outputs by name."""

    def __init__(self, content: bytes, threads: int = 1):
        from ai_edge_litert.interpreter import Interpreter as Real

        announce_unheard()
        try:
            self._real = Real(model_content=content, num_threads=threads)
        except (ValueError, RuntimeError) as error:
            raise ExportFailed(f"LiteRT's interpreter does not take the file: {error}") from error
        self._runners: dict[str, Any] = {}

    @property
    def signatures(self) -> tuple[str, ...]:
        return tuple(self._real.get_signature_list())

    def __call__(self, name: str, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if name not in self._runners:
            self._runners[name] = self._real.get_signature_runner(name)
        try:
            return {key: np.array(value) for key, value in self._runners[name](**given).items()}
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ExportFailed(f"LiteRT's interpreter cannot run {name} of the file: {reason[:300]}") from error

    def delegated(self) -> dict[str, Any]:
        """What the interpreter hands to XNNPACK of its first graph: in how many `parts`, and how many of each of
        `operators`; what lies between the inputs and the outputs of a part is in it.
        """
        self._real.allocate_tensors()
        nodes = self._real._get_ops_details()
        made = {tensor: node for node in nodes if node["op_name"] != "DELEGATE" for tensor in node["outputs"]}
        parts = [node for node in nodes if node["op_name"] == "DELEGATE"]
        inside = dict[int, str]()
        for part in parts:
            given, pending = set(part["inputs"]), list(part["outputs"])
            while pending:
                tensor = pending.pop()
                node = made.get(tensor)
                if tensor not in given and node is not None and node["index"] not in inside:
                    inside[node["index"]] = node["op_name"]
                    pending.extend(node["inputs"])
        return {"parts": len(parts), "operators": dict(Counter(inside.values()).most_common())}
