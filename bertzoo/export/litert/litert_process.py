# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""LiteRT's converter in a process of its own, which it can crash; needs no bertzoo.

python litert_process.py    pickled (modules, arrays) on stdin -> pickled {"file": bytes} or {"error": text} on stdout
"""

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np


class SignatureModule(NamedTuple):
    """A signature as StableHLO; its public function has its name and takes first the arrays, then the inputs."""

    name: str
    text: str
    inputs: Sequence[str]
    outputs: Sequence[str]


def convert(modules: Sequence[Sequence[Any]], arrays: Sequence[np.ndarray]) -> bytes:
    """A LiteRT file with a signature for each module, over one copy of the arrays."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        constants = _Constants()
        parsed = [_module(SignatureModule(*module), arrays, constants) for module in modules]
        merged = api.merge_modules(parsed) if len(parsed) > 1 else parsed[0]
        config = api.ConvertToTFLConfig()
        config.model_origin_framework = "JAX"
        api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
        return api.export_flatbuffer_to_bytes(getattr(merged, "operation", merged))


class _Constants:
    """Attributes of arrays, one for each array, shared by all lengths."""

    def __init__(self):
        self._attributes: dict[int, Any] = {}

    def __call__(self, array: np.ndarray) -> Any:
        from litert_converter.mlir import ir

        if id(array) not in self._attributes:
            self._attributes[id(array)] = ir.DenseElementsAttr.get(array)
        return self._attributes[id(array)]


def _module(source: SignatureModule, arrays: Sequence[np.ndarray], constants: Callable) -> Any:
    """Parse a module and make the arrays constants of its public function."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir
    from litert_converter.mlir.dialects import stablehlo

    module = ir.Module.parse(source.text)
    (main,) = (one for one in module.body.operations if one.attributes["sym_name"].value == source.name)
    block = main.regions[0].blocks[0]
    # Constants in the text would be parsed for every length, at twice their size each time.
    with ir.InsertionPoint.at_block_begin(block):
        for place, array in enumerate(arrays):
            block.arguments[place].replace_all_uses_with(stablehlo.ConstantOp(constants(array)).result)
    for place in reversed(range(len(arrays))):
        block.erase_argument(place)
    kind = ir.FunctionType.get([argument.type for argument in block.arguments], main.type.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]
    api.set_signature(main.operation, source.name, list(source.inputs), list(source.outputs))
    return module


def main() -> None:
    """Answer the request on stdin."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the converter prints, too
    modules, arrays = pickle.load(sys.stdin.buffer)
    try:
        answer: dict[str, Any] = {"file": convert(modules, arrays)}
    except Exception as error:  # the converter raises any type
        answer = {"error": " ".join(str(error).split()) or type(error).__name__}
    with answers:
        pickle.dump(answer, answers)


if __name__ == "__main__":
    main()
