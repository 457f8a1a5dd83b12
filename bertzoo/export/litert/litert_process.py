# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""Run LiteRT's converter in a separate process, because it can crash; needs no bertzoo.

`python litert_process.py` reads pickled (modules, arrays) from stdin and writes a pickled {"file": bytes} or
{"error": text} to stdout.
"""

import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def convert(modules: Sequence[tuple[str, str, list[str], list[str]]], arrays: Sequence[np.ndarray]) -> bytes:
    """Convert modules to a LiteRT file; their signatures share one copy of the weights `arrays`.

    A module is the name of its signature, a StableHLO text whose public function has this name and takes the weights,
    then the inputs, and the names of the inputs and of the outputs.
    """
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir, passmanager

    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        # Each array becomes an attribute once, for all signatures and layers that share it.
        unique = {id(array): array for array in arrays}
        attributes = {key: ir.DenseElementsAttr.get(array) for key, array in unique.items()}
        weights = [attributes[id(array)] for array in arrays]
        parsed = [_module(*module, weights) for module in modules]
        merged = api.merge_modules(parsed) if len(parsed) > 1 else parsed[0]
        config = api.ConvertToTFLConfig()
        config.model_origin_framework = "JAX"
        api.run_convert_to_tfl_passes(merged, passmanager.PassManager(), config)
        return api.export_flatbuffer_to_bytes(getattr(merged, "operation", merged))


def _module(name: str, text: str, inputs: list[str], outputs: list[str], weights: Sequence[Any]) -> Any:
    """Return a parsed module whose public function has the weights as constants instead of arguments."""
    from litert_converter import converter_api_ext as api
    from litert_converter.mlir import ir
    from litert_converter.mlir.dialects import stablehlo

    module = ir.Module.parse(text)
    (main,) = (one for one in module.body.operations if one.attributes["sym_name"].value == name)
    block = main.regions[0].blocks[0]
    # Constants in the text would be parsed again for every signature, at twice their size.
    with ir.InsertionPoint.at_block_begin(block):
        for index, weight in enumerate(weights):
            block.arguments[index].replace_all_uses_with(stablehlo.ConstantOp(weight).result)
    for index in reversed(range(len(weights))):
        block.erase_argument(index)
    kind = ir.FunctionType.get([argument.type for argument in block.arguments], main.type.results)
    main.attributes["function_type"] = ir.TypeAttr.get(kind)
    if "arg_attrs" in main.attributes:
        del main.attributes["arg_attrs"]
    api.set_signature(main.operation, name, inputs, outputs)
    return module


def main() -> None:
    """Read the request from stdin, convert, and write the answer to stdout."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the converter prints to stdout, too
    modules, arrays = pickle.load(sys.stdin.buffer)
    try:
        answer: dict[str, Any] = {"file": convert(modules, arrays)}
    except Exception as error:  # the converter raises any type
        answer = {"error": " ".join(str(error).split()) or type(error).__name__}
    with answers:
        pickle.dump(answer, answers)


if __name__ == "__main__":
    main()
