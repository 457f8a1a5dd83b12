"""Runtimes to time models in: the packages each needs, the files it runs, and the function that writes them."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.conversion import pytorch, tensors
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.export import formats
from bertzoo.export.check import verify
from bertzoo.export.failure import check_installed
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.graph.rewrites import phone_graph, scale_updates
from bertzoo.export.litert import quantise, write
from bertzoo.export.litert.quantise import Calibration
from bertzoo.export.options import FORMAT_PRECISIONS, PRECISIONS, Precision
from bertzoo.export.pytorch import executorch
from bertzoo.runs import load_model


@dataclass(frozen=True, kw_only=True)
class WrittenModel:
    """A model written for a runtime.

    size: bytes of the file, or of a directory's weights. graph: the model as a JAX function, to count FLOPs; None for
    a file that existed already.
    """

    path: Path
    size: int
    graph: Any


class WriteRequest(NamedTuple):
    """Row lengths, in tokens, and precision of a file to write. python: an interpreter that has executorch."""

    lengths: Sequence[int]
    precision: Precision
    python: Path


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A runtime to time models in.

    runs, writes: packages needed to run files and to write them.
    extra: the extra of bertzoo that installs these packages.
    precisions: weight precisions that `write` can write.
    suffixes: suffixes of the files that the runtime runs.
    single: whether a written file reads rows of one length only.
    """

    runs: tuple[str, ...]
    writes: tuple[str, ...] = ()
    extra: str = ""
    precisions: tuple[Precision, ...] = ("fp32",)
    write: Callable[[Pretrained, Path, WriteRequest], WrittenModel]
    suffixes: tuple[str, ...] = ()
    single: bool = False


def calibration(pretrained: Pretrained, lengths: Sequence[int], precision: Precision) -> Calibration | None:
    """Return random calibration rows for int8-static, by signature; None for other precisions."""
    if precision != "int8-static":
        return None
    graph = training_graph(pretrained)
    return {write.signature(length): verify.sample_rows(graph, None, length) for length in lengths}


def litert_file(
    graph: Any, file: Path, lengths: Sequence[int], precision: Precision, calibration: Calibration | None = None
) -> WrittenModel:
    """Write a graph as a LiteRT file with a signature for each of `lengths` (tokens); return the written model."""
    if calibration:
        graph = scale_updates(graph, itertools.chain.from_iterable(calibration.values()))
    content = quantise.quantised(write.convert(graph, lengths), precision, calibration)
    file.write_bytes(content)
    return WrittenModel(path=file, size=len(content), graph=graph)


def _litert(pretrained: Pretrained, place: Path, request: WriteRequest) -> WrittenModel:
    graph = phone_graph(training_graph(pretrained))
    rows = calibration(pretrained, request.lengths, request.precision)
    return litert_file(graph, place.with_suffix(".tflite"), request.lengths, request.precision, rows)


def _format(name: str, pretrained: Pretrained, place: Path, request: WriteRequest) -> WrittenModel:
    """Write a model in the format `name` of `bertzoo convert --to`, to the path `place` plus the format's suffix."""
    target, graph = formats.targets(request.python)[name], training_graph(pretrained)
    file = place.with_suffix(target.suffix)
    settings = formats.FileSettings(lengths=tuple(request.lengths), precision=request.precision)
    target.make(pretrained, graph, settings, file)
    return WrittenModel(path=file, size=file.stat().st_size, graph=graph)


def _directory(
    write_model: Callable[[Pretrained, Path], Any], weights: str, pretrained: Pretrained, place: Path, _: WriteRequest
) -> WrittenModel:
    place.mkdir()
    write_model(pretrained, place)
    return WrittenModel(path=place, size=(place / weights).stat().st_size, graph=training_graph(pretrained))


BACKENDS: dict[str, Backend] = {
    "litert": Backend(
        runs=("ai_edge_litert",),
        writes=write.PACKAGES,
        extra="litert",
        precisions=PRECISIONS,
        write=_litert,
        suffixes=(".tflite",),
    ),
    "torch": Backend(
        runs=("torch",),
        extra="torch",
        write=partial(_directory, pytorch.write_pytorch, tensors.SAFE),
        suffixes=(".pt2", ".pt"),
    ),
    "onnx": Backend(
        runs=("onnxruntime",),
        writes=("torch", "onnx", "onnxscript"),
        extra="onnx",
        write=partial(_format, "onnx"),
        suffixes=(".onnx",),
    ),
    "jax": Backend(runs=("jax",), write=partial(_directory, load_model.write_model, load_model.PARAMETERS)),
    # Its packages may be in another Python.
    "executorch": Backend(
        runs=(),
        precisions=FORMAT_PRECISIONS["executorch"],
        write=partial(_format, "executorch"),
        suffixes=(".pte",),
        single=True,
    ),
}
SUFFIXES = {suffix: name for name, backend in BACKENDS.items() for suffix in backend.suffixes}


def check_backend(name: str, writes: bool, threads: Sequence[int], python: Path) -> None:
    """Raise UserError if a backend's packages are not installed, or it does not support one of the thread counts.

    writes: whether a model will be written for the backend. python: an interpreter that has executorch.
    """
    backend = BACKENDS[name]
    check_installed(f"--backends: {name}", (*backend.runs, *(backend.writes if writes else ())), backend.extra)
    if name == "executorch":
        executorch.check_python(python)
    if name == "jax":
        if not hasattr(os, "sched_setaffinity"):
            raise UserError(
                "--backends=jax: jax uses a thread per core, and this operating system cannot restrict the cores of "
                "a process. Leave jax out."
            )
        if max(threads) > (cores := len(os.sched_getaffinity(0))):
            raise UserError(
                f"--threads={max(threads)}: jax uses a thread per core, and this machine has {cores} cores. Use at "
                f"most {cores}, or leave jax out of --backends."
            )
