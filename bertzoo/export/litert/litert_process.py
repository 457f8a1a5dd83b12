# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""LiteRT's converter in a process of its own, which it may end without a word; it needs no bertzoo.

python litert_process.py    a pickled (modules, arrays) on stdin -> on stdout a pickled file, or what was wrong
"""

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Module(NamedTuple):
    """A signature: StableHLO whose public function has its name and takes first the arrays and then the inputs."""

    name: str
    text: str
    inputs: Sequence[str]
    outputs: Sequence[str]


def convert(modules: Sequence[Sequence[Any]], arrays: Sequence[np.ndarray]) -> bytes:
    """A LiteRT file with a signature for each module and the arrays once."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        constants = _Constants()
        made = [_module(Module(*module), arrays, constants) for module in modules]
        merged = api.merge_modules(made) if len(made) > 1 else made[0]
        config = api.ConvertToTFLConfig()
        config.model_origin_framework = "JAX"
        api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
        return api.export_flatbuffer_to_bytes(getattr(merged, "operation", merged))


class _Constants:
    """Attributes of arrays, one for each array whatever the number of lengths."""

    def __init__(self):
        self._made: dict[int, Any] = {}

    def __call__(self, array: np.ndarray) -> Any:
        from litert_converter.mlir import ir

        if id(array) not in self._made:
            self._made[id(array)] = ir.DenseElementsAttr.get(array)
        return self._made[id(array)]


def _module(given: Module, arrays: Sequence[np.ndarray], constants: Callable) -> Any:
    """The parsed module, its one public function with the arrays as constants."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir
    from litert_converter.mlir.dialects import stablehlo

    module = ir.Module.parse(given.text)
    (main,) = (each for each in module.body.operations if each.attributes["sym_name"].value == given.name)
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
    api.set_signature(main.operation, given.name, list(given.inputs), list(given.outputs))
    return module


def main() -> None:
    """Answer the one request of stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the converter prints is no answer
    modules, arrays = pickle.load(sys.stdin.buffer)
    try:
        said: dict[str, Any] = {"file": convert(modules, arrays)}
    except Exception as error:  # it raises what it likes
        said = {"error": " ".join(str(error).split()) or type(error).__name__}
    with answers:
        pickle.dump(said, answers)


if __name__ == "__main__":
    main()
