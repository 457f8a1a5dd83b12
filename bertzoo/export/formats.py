"""The formats that phones run, each a record: how long its rows are, how a file is made and how it is run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import lengths, runtimes
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import installed
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.from_model import read
from bertzoo.export.graph.reference import Plain
from bertzoo.export.litert import litert, quantise, tables
from bertzoo.export.litert.quantise import PRECISIONS, Precision
from bertzoo.export.pytorch import executorch, torch_files
from bertzoo.export.runtimes import Runtime
from bertzoo.nn.flops import matmul_flops


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """lengths: shortest first. precision: of the weights. pooling: of a model without a head. optimise: rewrite the
    graph, where a format can have it as it is too. calibration: the texts that set the scales of int8-static.
    """

    lengths: tuple[int, ...]
    precision: Precision = "fp32"
    pooling: str = "mean"
    optimise: bool = True
    calibration: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """A format of `--to`.

    suffix: of its files. precisions: those it can have. check: raises UserError where its packages are missing.
    lengths: the lengths of a file that is asked for some. make: writes a file and says what is in it. load: a file and
    a number of threads -> a runtime.
    """

    name: str
    suffix: str
    precisions: tuple[Precision, ...] = ("fp32",)
    check: Callable[[], None]
    lengths: Callable[[Pretrained, Sequence[int]], tuple[int, ...]]
    make: Callable[[Pretrained, Plain, Wanted, Path], dict[str, Any]]
    load: Callable[[Path, int], Runtime]


def targets(python: Path) -> dict[str, Target]:
    """The formats by name; `python` is the one that runs ExecuTorch."""
    made = (
        Target(
            name="litert",
            suffix=".tflite",
            precisions=PRECISIONS,
            check=litert.check,
            lengths=lengths.each,
            make=_litert,
            load=runtimes.LiteRT,
        ),
        Target(
            name="torch-export",
            suffix=".pt2",
            check=partial(installed, "torch-export", ("torch",), "torch"),
            lengths=lengths.fixed_or_free,
            make=_torch_export,
            load=runtimes.TorchExport,
        ),
        Target(
            name="torchscript",
            suffix=".pt",
            check=partial(installed, "torchscript", ("torch",), "torch"),
            lengths=lengths.free,
            make=_torchscript,
            load=runtimes.TorchScript,
        ),
        Target(
            name="onnx",
            suffix=".onnx",
            check=partial(installed, "onnx", ("torch", "onnx", "onnxscript", "onnxruntime"), "onnx"),
            lengths=lengths.fixed_or_free,
            make=_onnx,
            load=runtimes.Onnx,
        ),
        Target(
            name="executorch",
            suffix=".pte",
            check=partial(executorch.check, python),
            lengths=lengths.single,
            make=partial(_executorch, python),
            load=partial(runtimes.ExecuTorch, python),
        ),
    )
    return {target.name: target for target in made}


def _litert(pretrained: Pretrained, plain: Plain, wanted: Wanted, file: Path) -> dict[str, Any]:
    graph = rewrites.optimised(read(plain.model, plain.params, plain.pooling)) if wanted.optimise else plain
    rows = None
    if wanted.calibration:
        assert pretrained.tokenizer is not None
        rows = {
            litert.signature(length): golden.calibration(plain, pretrained.tokenizer, wanted.calibration, length)
            for length in wanted.lengths
        }
    content = quantise.quantised(litert.convert(graph, wanted.lengths), wanted.precision, rows)
    file.write_bytes(content)
    return {
        "optimised": wanted.optimise,
        **({"calibration": len(wanted.calibration)} if wanted.calibration else {}),
        "operators": tables.operators(content),
        "xnnpack": litert.Interpreter(content).delegated(),
        "ports": tables.ports(content),
        "flops": counted(graph, wanted.lengths),
    }


def counted(graph: Any, lengths: Sequence[int]) -> dict[str, int]:
    """By signature the operations of a row of every length."""
    return {litert.signature(length): flops(graph, length) for length in lengths}


def flops(graph: Any, length: int) -> int:
    """Of one row: the operations of products and convolutions, 2 per multiply-add."""
    row = {
        name: jax.ShapeDtypeStruct(shape.shape[1:], shape.dtype) for name, shape in litert.shapes(graph, length).items()
    }
    return matmul_flops(lambda graph, row: graph(**row), graph, row)


def _torch_export(pretrained: Pretrained, plain: Plain, wanted: Wanted, file: Path) -> dict[str, Any]:
    span = _span(pretrained, wanted)
    content, operators = torch_files.torch_export(pretrained, _example(plain, wanted), wanted.pooling, span)
    file.write_bytes(content)
    return _reads(span) | {"operators": operators}


def _torchscript(pretrained: Pretrained, plain: Plain, wanted: Wanted, file: Path) -> dict[str, Any]:
    content, operators = torch_files.torchscript(pretrained, _example(plain, wanted), wanted.pooling)
    file.write_bytes(content)
    return _reads(lengths.bounds(pretrained)) | {"operators": operators}


def _onnx(pretrained: Pretrained, plain: Plain, wanted: Wanted, file: Path) -> dict[str, Any]:
    span = _span(pretrained, wanted)
    content, operators = torch_files.onnx(pretrained, _example(plain, wanted), wanted.pooling, span)
    file.write_bytes(content)
    return _reads(span) | {"operators": operators}


def _executorch(python: Path, pretrained: Pretrained, plain: Plain, wanted: Wanted, file: Path) -> dict[str, Any]:
    said = executorch.write(python, pretrained, _example(plain, wanted), wanted.pooling, file)
    return _reads(wanted.lengths) | said


def _example(plain: Plain, wanted: Wanted) -> dict[str, np.ndarray]:
    return verify.rows(plain, None, wanted.lengths[-1])[0]


def _span(pretrained: Pretrained, wanted: Wanted) -> tuple[int, ...]:
    """The one length, or where several are wanted the bounds of all."""
    return wanted.lengths if len(wanted.lengths) == 1 else lengths.bounds(pretrained)


def _reads(span: Sequence[int]) -> dict[str, Any]:
    return {"lengths": {"shortest": span[0], "longest": span[-1]}}
