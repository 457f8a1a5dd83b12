"""What each runtime needs, takes, and is given: a model written as it reads it."""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bertzoo.conversion import pytorch, tensors
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.export import formats
from bertzoo.export.check import verify
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.from_model import read
from bertzoo.export.graph.heads import FirstEmbedding
from bertzoo.export.graph.reference import Plain
from bertzoo.export.litert import litert, quantise
from bertzoo.export.litert.quantise import PRECISIONS, Calibration, Precision
from bertzoo.export.pytorch import executorch
from bertzoo.runs import any_model


@dataclass(frozen=True, kw_only=True)
class Written:
    """A model as a runtime reads it: its place, what of it counts as its size, and the graph that it computes."""

    path: Path
    size: int  # bytes
    graph: Any

    def flops(self, length: int) -> int:
        """Operations of the products in a row, 2 per multiply-add."""
        return formats.flops(self.graph, length)


class Wanted(NamedTuple):
    """What a model is written for; python: one that has executorch."""

    lengths: Sequence[int]
    precision: Precision
    python: Path


Write = Callable[[Pretrained, Path, Wanted], Written]


@dataclass(frozen=True, kw_only=True)
class Backend:
    """runs, writes: packages that are needed for either; extra: of the project, which adds them; suffixes: of the files
    that it runs; single: whether what is written for it reads one length.
    """

    runs: tuple[str, ...]
    writes: tuple[str, ...] = ()
    extra: str = ""
    precisions: tuple[Precision, ...] = ("fp32",)
    write: Write
    suffixes: tuple[str, ...] = ()
    single: bool = False


def plain(pretrained: Pretrained) -> Plain:
    """The training graph."""
    module, params = pretrained.module()
    return Plain(params=jax.tree.map(np.asarray, params), pooling=FirstEmbedding(), model=module)


def rewritten(pretrained: Pretrained) -> Any:
    """The graph for phones, with all rewrites."""
    found = plain(pretrained)
    return rewrites.optimised(read(found.model, found.params, found.pooling))


def _litert(pretrained: Pretrained, place: Path, wanted: Wanted) -> Written:
    graph, file = rewritten(pretrained), place.with_suffix(".tflite")
    rows = calibration(pretrained, wanted.lengths, wanted.precision)
    return litert_file(graph, file, wanted.lengths, wanted.precision, rows)


def calibration(pretrained: Pretrained, lengths: Sequence[int], precision: Precision) -> Calibration | None:
    """Random rows that set the scales of a precision that has some; no time depends on them."""
    if precision != "int8-static":
        return None
    model = plain(pretrained)
    return {litert.signature(length): verify.rows(model, None, length) for length in lengths}


def litert_file(
    graph: Any, file: Path, lengths: Sequence[int], precision: Precision, calibration: Calibration | None = None
) -> Written:
    """A graph as a LiteRT file with a signature for each length."""
    content = quantise.quantised(litert.convert(graph, lengths), precision, calibration)
    file.write_bytes(content)
    return Written(path=file, size=len(content), graph=graph)


def _target(name: str, pretrained: Pretrained, place: Path, wanted: Wanted) -> Written:
    """As `bertzoo convert` writes it."""
    target, graph = formats.targets(wanted.python)[name], plain(pretrained)
    file = place.with_suffix(target.suffix)
    target.make(pretrained, graph, formats.Wanted(lengths=tuple(wanted.lengths)), file)
    return Written(path=file, size=file.stat().st_size, graph=graph)


def _torch(pretrained: Pretrained, place: Path, wanted: Wanted) -> Written:
    place.mkdir()
    pytorch.write_pytorch(pretrained, place)
    return Written(path=place, size=(place / tensors.SAFE).stat().st_size, graph=plain(pretrained))


def _jax(pretrained: Pretrained, place: Path, wanted: Wanted) -> Written:
    place.mkdir()
    any_model.write_model(pretrained, place)
    return Written(path=place, size=(place / any_model.PARAMETERS).stat().st_size, graph=plain(pretrained))


BACKENDS: dict[str, Backend] = {
    "litert": Backend(
        runs=("ai_edge_litert",),
        writes=litert.PACKAGES,
        extra="litert",
        precisions=PRECISIONS,
        write=_litert,
        suffixes=(".tflite",),
    ),
    "torch": Backend(runs=("torch",), extra="torch", write=_torch, suffixes=(".pt2", ".pt")),
    "onnx": Backend(
        runs=("onnxruntime",),
        writes=("torch", "onnx", "onnxscript"),
        extra="onnx",
        write=partial(_target, "onnx"),
        suffixes=(".onnx",),
    ),
    "jax": Backend(runs=("jax",), write=_jax),
    # Its packages are another Python's.
    "executorch": Backend(runs=(), write=partial(_target, "executorch"), suffixes=(".pte",), single=True),
}
SUFFIXES = {suffix: name for name, backend in BACKENDS.items() for suffix in backend.suffixes}


def check(name: str, writes: bool, threads: Sequence[int], python: Path) -> None:
    """Raise UserError where a backend's packages are not installed, or it cannot have so many threads.

    writes: whether a model is to be written for it. python: one that has executorch.
    """
    backend = BACKENDS[name]
    for package in (*backend.runs, *(backend.writes if writes else ())):
        if importlib.util.find_spec(package) is None:
            adds = f"`pip install '.[{backend.extra}]'` in the checkout adds it"
            raise UserError(f"--backends: {name} needs {package}, which is not installed: {adds}")
    if name == "executorch":
        executorch.check(python)
    if name == "jax":
        if not hasattr(os, "sched_setaffinity"):
            raise UserError("--backends: jax has a thread for each core, which this system does not let it choose")
        if max(threads) > (cores := len(os.sched_getaffinity(0))):
            raise UserError(f"--threads={max(threads)}: jax has a thread for each core, and there are {cores} here")
