# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportAttributeAccessIssue=false
"""Convert a graph to a LiteRT file with a signature for each row length; quantise LiteRT files.

Only this module, litert_process.py, flatbuffer.py and runtimes.py import LiteRT's packages.
"""

import os
import pickle
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.core.child import start_python
from bertzoo.export.failure import ExportFailed, check_installed, tool_errors
from bertzoo.export.litert import flatbuffer
from bertzoo.export.options import Precision

if TYPE_CHECKING:  # running a file needs no jax, whose import takes a second
    import jax

# Without these variables, LiteRT's packages print instruction sets and rounding modes.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
PACKAGES = ("litert_converter", "ai_edge_litert", "litert_quantizer")
CONVERTER = Path(__file__).with_name("litert_process.py")


def check_packages() -> dict[str, str]:
    """Return the versions of LiteRT's packages; raises UserError if one is not installed."""
    return check_installed("--to=litert", PACKAGES, "litert")


def signature(length: int) -> str:
    """Return the name of the signature for rows of `length` tokens."""
    return f"length_{length}"


def row_shapes(graph: Any, length: int) -> "dict[str, jax.ShapeDtypeStruct]":
    """Return shapes of a graph's inputs for one row of `length` tokens, without the batch axis of 1 that files have."""
    import jax

    sizes = {"masked_positions": 1}  # a file predicts one blank at a time
    return {name: jax.ShapeDtypeStruct((sizes.get(name, length),), np.int32) for name in graph.inputs}


def convert(graph: Any, lengths: Sequence[int]) -> bytes:
    """Convert a graph to a float32 LiteRT file; raises ExportFailed if the converter rejects it or crashes."""
    import jax

    leaves, structure = jax.tree.flatten(graph)
    arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
    modules = [_module(structure, arrays, length) for length in lengths]
    request = pickle.dumps((modules, arrays), protocol=pickle.HIGHEST_PROTOCOL)
    with start_python([str(CONVERTER)], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        output, errors = process.communicate(request)
    del request
    if code := process.returncode:
        last = " ".join(errors.decode(errors="replace").split())[-300:] or "none"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise ExportFailed(
            f"the LiteRT converter {how} on this model. Convert it with another --to. Last output: {last}"
        )
    answer = pickle.loads(output)
    if "error" in answer:
        raise ExportFailed(
            f"the LiteRT converter does not take this model. Use another --to. Reason: {answer['error'][:300]}"
        )
    return answer["file"]


def _module(structure: Any, arrays: Sequence[np.ndarray], length: int) -> tuple[str, str, list[str], list[str]]:
    """Return the signature for rows of `length` tokens: its name, StableHLO text, input names and output names.

    structure, arrays: the flattened graph. In the text, the main function has the signature's name. The names of other
    functions end in the length, because they must be unique over all signatures.
    """
    import jax

    inputs = row_shapes(jax.tree.unflatten(structure, arrays), length)
    outputs: list[str] = []

    def function(leaves: Sequence[jax.Array], *rows: jax.Array) -> tuple[jax.Array, ...]:
        graph = jax.tree.unflatten(structure, leaves)
        results = graph(**{name: row[0] for name, row in zip(inputs, rows, strict=True)})
        outputs[:] = results
        return tuple(array[None] for array in results.values())

    abstract = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    rows = [jax.ShapeDtypeStruct((1, *row.shape), row.dtype) for row in inputs.values()]
    exported = jax.export.export(jax.jit(function, keep_unused=True), platforms=["cpu"])(abstract, *rows)
    text = str(exported.mlir_module())
    defined = set(re.findall(r"func\.func (?:public |private )?@([\w.$-]+)", text))
    renamed = {name: f"{name}_{length}" for name in defined} | {"main": signature(length)}
    text = re.sub(r"@([\w.$-]+)", lambda match: f"@{renamed.get(match[1], match[1])}", text)
    return signature(length), text, list(inputs), outputs


BLOCK = 32  # weights that share a scale in int4-dynamic
Calibration = Mapping[str, Sequence[Mapping[str, np.ndarray]]]  # rows of inputs, by signature


def quantised(content: bytes, precision: Precision, calibration: Calibration | None = None) -> bytes:
    """Quantise a float32 LiteRT file to a precision and return the new file.

    fp32: returns the file unchanged.
    fp16: stores weights in float16.
    int8-dynamic: stores weights in int8 with a scale per channel, and scales activations at run time.
    int8-weight: stores weights in the same way, and dequantises them before use.
    int8-static: takes the activations' scales from their least and greatest values in the rows of `calibration`. It
    quantises only dense layers and embedding tables: attention scores and a mask of -30,000 do not fit on one scale of
    255 steps.
    int4-dynamic: int8-dynamic with dense kernels and embedding tables in int4. A scale belongs to BLOCK weights of a
    row or, if BLOCK does not divide the width of every row, to a whole row. OCTAV (Sakr et al. 2022,
    https://arxiv.org/abs/2206.06501) chooses the clipping threshold with the least squared error.

    Raises ExportFailed if the quantiser rejects the file. Raises ValueError if int8-static has no calibration rows, or
    another precision has some.
    """
    if (precision == "int8-static") != any((calibration or {}).values()):
        raise ValueError(f"{precision} with calibration rows of {len(calibration or ())} signatures")
    if precision == "fp32":
        return content
    from litert_quantizer.quantizer import Quantizer

    with tool_errors("the LiteRT quantiser", f"this model at {precision}", "Use another --precision."):
        recipe = _recipe(precision, content)
        statistics = _ranges(content, recipe, calibration) if calibration else None
        result = Quantizer(content, recipe).quantize(
            statistics, enable_progress_bar=False, enable_progress_report=False
        )
    return flatbuffer.share_scales(bytes(result.quantized_model or b""))


def _ranges(content: bytes, recipe: Any, calibration: Calibration) -> Any:
    """Return the least and greatest value of each tensor to quantise in the calibration rows, for the quantiser.

    `Quantizer.calibrate` averages over rows instead, which clips the values of half the rows.
    """
    from litert_quantizer import calibrator, recipe_manager
    from litert_quantizer.utils.qsv_utils import min_max_update

    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe)
    measured = calibrator.Calibrator(content, qsv_update_func=min_max_update)
    rows: Any = dict(calibration)
    measured.calibrate(rows, manager)
    return measured.get_model_qsvs()


def _recipe(precision: Precision, content: bytes) -> Any:
    from litert_quantizer import qtyping, recipe, recipe_manager
    from litert_quantizer.algorithm_manager import AlgorithmName

    if precision == "int8-dynamic":
        return recipe.dynamic_wi8_afp32()
    if precision == "int8-weight":
        return recipe.weight_only_wi8_afp32()
    dense, table = qtyping.TFLOperationName.FULLY_CONNECTED, qtyping.TFLOperationName.EMBEDDING_LOOKUP
    if precision == "int4-dynamic":
        blocks = all(width % BLOCK == 0 for width in flatbuffer.row_widths(content))
        int4 = recipe.dynamic_wi4b32_afp32 if blocks else recipe.dynamic_wi4c_afp32
        octav = {"algorithm_key": AlgorithmName.OCTAV}
        return [*recipe.dynamic_wi8_afp32(), *int4(operation_name=dense, **octav), *int4(operation_name=table, **octav)]
    manager = recipe_manager.RecipeManager()
    if precision == "int8-static":
        manager.add_static_config(".*", dense, activation_num_bits=8, weight_num_bits=8)
        manager.add_dynamic_config(".*", table, num_bits=8)
        return manager.get_quantization_recipe()
    for operation in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "EMBEDDING_LOOKUP"):
        name = qtyping.TFLOperationName(operation)
        manager.add_weight_only_config(".*", name, num_bits=16, algorithm_key=AlgorithmName.FLOAT_CASTING)
    return manager.get_quantization_recipe()
