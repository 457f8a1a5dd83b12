# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""A LiteRT file in float32 -> one in fewer bits, by LiteRT's quantiser."""

import contextlib
import io
import logging
from collections.abc import Iterator
from typing import Any, Literal, get_args

from bertzoo.export import tables
from bertzoo.export.litert import ExportFailed

Precision = Literal["fp32", "fp16", "int8-dynamic", "int8-weight"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def quantised(content: bytes, precision: Precision) -> bytes:
    """The file with weights as float16, or as int8 of one scale a channel: under activations that are quantised as they
    come (int8-dynamic), or made float32 again before they are used (int8-weight).

    Raises ExportFailed where the quantiser does not take it.
    """
    if precision == "fp32":
        return content
    from litert_quantizer.quantizer import Quantizer

    try:
        with _quiet():
            quantizer = Quantizer(content, _recipe(precision))
            made = quantizer.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model
    except (ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ExportFailed(f"the LiteRT quantiser does not take this model at {precision}: {reason[:300]}") from error
    return tables.share(bytes(made or b""))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without bars of progress, and a warning for every weight that signatures share, which each quantises alike."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
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
