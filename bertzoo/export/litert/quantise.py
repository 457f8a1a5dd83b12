# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Quantise a float32 LiteRT file with LiteRT's quantiser."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo.export.failure import tool_errors
from bertzoo.export.litert import flatbuffer
from bertzoo.export.options import Precision

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

    def widened(ends: Any, row: Any) -> Any:
        return {"min": np.minimum(ends["min"], row["min"]), "max": np.maximum(ends["max"], row["max"])} if ends else row

    manager = recipe_manager.RecipeManager()
    manager.load_quantization_recipe(recipe)
    measured = calibrator.Calibrator(content, qsv_update_func=widened)
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
    weights = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    casting = qtyping.OpQuantizationConfig(
        weight_tensor_config=weights, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
    )
    for operation in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "EMBEDDING_LOOKUP"):
        manager.add_quantization_config(
            regex=".*",
            operation_name=qtyping.TFLOperationName(operation),
            op_config=casting,
            algorithm_key=AlgorithmName.FLOAT_CASTING,
        )
    return manager.get_quantization_recipe()
