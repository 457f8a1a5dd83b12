# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""A LiteRT file in float32 -> one in fewer bits, by LiteRT's quantiser."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from bertzoo.export.litert import tables
from bertzoo.export.litert.litert import ExportFailed, announce_unheard

Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-static", "int8-weight"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


Calibration = Mapping[str, Sequence[Mapping[str, np.ndarray]]]


def quantised(content: bytes, precision: Precision, calibration: Calibration | None = None) -> bytes:
    """The file with weights as float16, or as int8 of one scale a channel: under activations that are quantised as they
    come (int8-dynamic), or on one scale each that the rows of `calibration` gave, by signature (int8-static), or made
    float32 again before they are used (int8-weight).

    Under int8-static all but dense layers stays in float32: a mask of -30,000 and a score are not on one scale of 255
    steps. Raises ExportFailed where the quantiser does not take it.
    """
    if precision == "fp32":
        return content
    from litert_quantizer.quantizer import Quantizer

    announce_unheard()  # as calibrating runs the file
    try:
        with _quiet():
            quantizer = Quantizer(content, _recipe(precision))
            rows: Any = dict(calibration or {})
            seen = quantizer.calibrate(rows) if rows else None
            made = quantizer.quantize(seen, enable_progress_bar=False, enable_progress_report=False).quantized_model
    except Exception as error:  # it raises what it likes
        reason = " ".join(str(error).split())
        raise ExportFailed(f"the LiteRT quantiser does not take this model at {precision}: {reason[:300]}") from error
    return tables.share(bytes(made or b""))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without bars of progress, and a warning for every weight that signatures share, which each quantises alike."""
    logging.disable(logging.WARNING)
    try:
        # The warning is that calibration keeps every tensor.
        with (
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(action="ignore", category=UserWarning),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)


def _recipe(precision: Precision) -> Any:
    from litert_quantizer import qtyping, recipe, recipe_manager
    from litert_quantizer.algorithm_manager import AlgorithmName

    if precision == "int8-dynamic":
        return recipe.dynamic_wi8_afp32()
    if precision == "int8-weight":
        return recipe.weight_only_wi8_afp32()
    manager = recipe_manager.RecipeManager()
    if precision == "int8-static":
        dense, table = qtyping.TFLOperationName.FULLY_CONNECTED, qtyping.TFLOperationName.EMBEDDING_LOOKUP
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
