# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""Graphs of several lengths -> one LiteRT file with a signature each and one set of weights; and its interpreter.

It, quantise.py and tables.py alone import LiteRT's packages.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.export.failure import ExportFailed, installed

# Or they tell which instructions they were built for, and how they round.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
PACKAGES = ("litert_converter", "ai_edge_litert", "litert_quantizer")
POSITIONS = 1  # of masked_positions: a blank at a time


def check() -> None:
    """Raise UserError where LiteRT's packages are not installed."""
    installed("litert", PACKAGES, "litert")


def signature(length: int) -> str:
    """The name of the signature of a length."""
    return f"length_{length}"


def shapes(graph: Any, length: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The inputs of a graph's signature of a length, one row each."""
    sizes = {"masked_positions": POSITIONS}
    return {name: jax.ShapeDtypeStruct((1, sizes.get(name, length)), jnp.int32) for name in graph.inputs}


def convert(graph: Any, lengths: Sequence[int]) -> bytes:
    """A LiteRT file in float32; raises ExportFailed where the converter does not take the graph."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager

    context = ir.Context()
    api.prepare_mlir_context(context)
    leaves, structure = jax.tree.flatten(graph)
    arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
    try:
        with context, ir.Location.unknown():
            constants = _Constants()
            modules = [_module(structure, arrays, length, constants) for length in lengths]
            merged = api.merge_modules(modules) if len(modules) > 1 else modules[0]
            config = api.ConvertToTFLConfig()
            config.model_origin_framework = "JAX"
            api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
            return api.export_flatbuffer_to_bytes(getattr(merged, "operation", merged))
    except (ValueError, RuntimeError, ir.MLIRError) as error:
        reason = " ".join(str(error).split())
        raise ExportFailed(f"the LiteRT converter does not take this model: {reason[:300]}") from error


class _Constants:
    """Attributes of arrays, one for each array whatever the number of lengths."""

    def __init__(self):
        self._made: dict[int, Any] = {}

    def __call__(self, array: np.ndarray) -> Any:
        from litert_converter.mlir import ir

        if id(array) not in self._made:
            self._made[id(array)] = ir.DenseElementsAttr.get(array)
        return self._made[id(array)]


def _module(structure: Any, arrays: Sequence[np.ndarray], length: int, constants: Callable) -> Any:
    """The module of one length, its one public function under the signature's name, with the arrays as constants."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir
    from litert_converter.mlir.dialects import stablehlo

    text, inputs, outputs = _lowered(structure, arrays, length)
    module = ir.Module.parse(text)
    (main,) = (each for each in module.body.operations if each.attributes["sym_name"].value == signature(length))
    block = main.regions[0].blocks[0]
    # As constants in the text they would be read again for every length, and take twice their size each time.
    with ir.InsertionPoint.at_block_begin(block):
        for place, array in enumerate(arrays):
            block.arguments[place].replace_all_uses_with(stablehlo.ConstantOp(constants(array)).result)
    for place in reversed(range(len(arrays))):
        block.erase_argument(place)
    kept = ir.FunctionType.get([argument.type for argument in block.arguments], main.type.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kept)
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]
    api.set_signature(main.operation, signature(length), inputs, outputs)
    return module


def _lowered(structure: Any, arrays: Sequence[np.ndarray], length: int) -> tuple[str, list[str], list[str]]:
    """StableHLO whose symbols end in the length, but for the signature's name; names of inputs and outputs."""
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
    return text, list(given), outputs


class Interpreter:
    """A LiteRT file, run: a signature's inputs by name -> its outputs by name."""

    def __init__(self, content: bytes, threads: int = 1):
        from ai_edge_litert.interpreter import Interpreter as Real

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
        return {key: np.array(value) for key, value in self._runners[name](**given).items()}
