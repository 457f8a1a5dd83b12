"""File formats for phones: the lengths that each supports, and functions that write and load its files."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import lengths, runtimes
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import check_installed
from bertzoo.export.graph.from_model import build_graph, scale_branches
from bertzoo.export.graph.reference import TrainingGraph
from bertzoo.export.litert import flatbuffer, mediapipe, write
from bertzoo.export.litert.mediapipe import TaskGraph
from bertzoo.export.options import Precision
from bertzoo.export.pytorch import executorch, onnx_file
from bertzoo.nn.flops import matmul_flops
from bertzoo.runs.runner import Runner


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """Settings with which a file is written.

    lengths: row lengths in tokens, shortest first.
    calibration: texts on which int8-static measures the scales of activations; without texts, it takes random rows.
    """

    lengths: tuple[int, ...]
    precision: Precision = "fp32"
    calibration: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Target:
    """A file format of `bertzoo convert --to`.

    check: returns the versions of the packages that write and verify files; raises UserError if one is missing.
    check_runtime: raises UserError if a package to run files is missing.
    lengths: (model, requested lengths or none) -> the row lengths for which the file is written and verified.
    make: (model, reference graph, settings, path) -> entries of the metadata JSON; writes the file.
    load: (file) -> the file, opened in its runtime with one thread.
    pairs: whether a row of the file can hold a pair of texts.
    reference: (model, training graph) -> the graph whose outputs the file must have.
    prove: (file, the file in its runtime, model, lengths) -> entries of its metadata JSON, from a test that only this
    format has; raises ExportFailed if the file fails this test.
    """

    name: str
    check: Callable[[], dict[str, str]]
    check_runtime: Callable[[], object]
    lengths: Callable[[Pretrained, Sequence[int]], tuple[int, ...]]
    make: Callable[[Pretrained, Any, FileSettings, Path], dict[str, Any]]
    load: Callable[[Path], Runner]
    pairs: bool = True
    reference: Callable[[Pretrained, TrainingGraph], Any] = lambda pretrained, graph: graph
    prove: Callable[[Path, Runner, Pretrained, Sequence[int]], dict[str, Any]] = lambda *_: {}


def targets(python: Path) -> dict[str, Target]:
    """Return the file formats by name. python: a Python that has ExecuTorch."""
    formats = (
        Target(
            name="litert",
            check=write.check_packages,
            check_runtime=partial(check_installed, "a .tflite file", ("ai_edge_litert",), "litert"),
            lengths=lengths.resolve_lengths,
            make=_litert,
            load=runtimes.LiteRT,
        ),
        Target(
            name="mediapipe",
            check=partial(check_installed, "--to=mediapipe", (*write.PACKAGES, "mediapipe"), "mediapipe"),
            check_runtime=partial(check_installed, "a .tflite file", ("ai_edge_litert",), "litert"),
            lengths=lengths.resolve_lengths,  # one, by ExportOptions
            make=_litert,
            load=runtimes.LiteRT,
            pairs=False,
            reference=lambda model, graph: TaskGraph(graph=graph, function=model.head.probabilities),
            prove=lambda file, run, model, sizes: {"mediapipe": mediapipe.check_task(file, run, model, sizes[0])},
        ),
        Target(
            name="onnx",
            check=partial(check_installed, "--to=onnx", ("torch", "onnx", "onnxscript", "onnxruntime"), "onnx"),
            check_runtime=partial(check_installed, "a .onnx file", ("onnxruntime",), "onnx"),
            lengths=lengths.fixed_or_variable_lengths,
            make=partial(_onnx, onnx_file.onnx),
            load=runtimes.Onnx,
        ),
        Target(
            name="onnx-text",
            check=partial(check_installed, "--to=onnx-text", onnx_file.PACKAGES, "onnx"),
            check_runtime=partial(check_installed, "a .onnx file that takes texts", ("onnx", "onnxruntime"), "onnx"),
            lengths=lengths.text_lengths,
            make=partial(_onnx, onnx_file.onnx_text),
            load=lambda file: runtimes.Onnx(onnx_file.split(file)[1]),
            prove=lambda file, run, model, sizes: {
                "text": onnx_file.check_texts(file, run, model, sizes, _row_span(model, sizes)[-1])
            },
        ),
        Target(
            name="executorch",
            check=partial(executorch.check_python, python),
            check_runtime=partial(executorch.check_python, python, "a .pte file"),
            lengths=lengths.resolve_lengths,  # one, by ExportOptions
            make=partial(_executorch, python),
            load=partial(runtimes.ExecuTorch, python),
        ),
    )
    return {target.name: target for target in formats}


def flops_by_signature(graph: Any, lengths: Sequence[int]) -> dict[str, int]:
    """Count the FLOPs of a row's matrix products and convolutions, 2 per multiply-add, by signature."""
    return {
        write.signature(length): matmul_flops(lambda graph, row: graph(**row), graph, write.row_shapes(graph, length))
        for length in lengths
    }


def _litert(pretrained: Pretrained, reference: Any, settings: FileSettings, file: Path) -> dict[str, Any]:
    """Write a LiteRT file. reference: the training graph or, for MediaPipe, a TaskGraph around it."""
    training = getattr(reference, "graph", reference)
    graph: Any = build_graph(training.model, training.params)
    calibration = {}
    if settings.precision == "int8-static":
        texts, tokenizer = settings.calibration, pretrained.tokenizer
        calibration = {
            write.signature(length): verify.sample_rows(reference, None, length)
            if tokenizer is None or not texts
            else golden.calibration_rows(reference, tokenizer, texts, length)
            for length in settings.lengths
        }
        graph = scale_branches(graph, itertools.chain.from_iterable(calibration.values()))
    if reference is not training:
        graph = reference.replace(graph=graph)
    content = write.quantised(write.convert(graph, settings.lengths), settings.precision, calibration)
    facts = {"operators": flatbuffer.operators(content), "ports": flatbuffer.ports(content)}
    if reference is not training:
        assert pretrained.tokenizer is not None
        content = mediapipe.packed(content, pretrained.tokenizer, pretrained.head.labels)
    file.write_bytes(content)
    return {
        **({"calibration": len(settings.calibration)} if settings.calibration else {}),
        **facts,
        "flops": flops_by_signature(graph, settings.lengths),
    }


def _onnx(
    write_file: Callable[..., tuple[bytes, dict[str, int]]],
    pretrained: Pretrained,
    reference: TrainingGraph,
    settings: FileSettings,
    file: Path,
) -> dict[str, Any]:
    span = _row_span(pretrained, settings.lengths)
    content, operators = write_file(pretrained, _example(reference, settings), span)
    file.write_bytes(content)
    return _span(span) | {"operators": operators}


def _executorch(
    python: Path, pretrained: Pretrained, reference: TrainingGraph, settings: FileSettings, file: Path
) -> dict[str, Any]:
    row = _example(reference, settings)
    facts = executorch.write_pte(python, pretrained, row, file, settings.precision)
    return _span(settings.lengths) | facts


def _example(reference: TrainingGraph, settings: FileSettings) -> dict[str, np.ndarray]:
    return verify.sample_rows(reference, None, settings.lengths[-1])[0]


def _row_span(pretrained: Pretrained, sizes: Sequence[int]) -> Sequence[int]:
    return sizes if len(sizes) == 1 else lengths.length_bounds(pretrained)


def _span(span: Sequence[int]) -> dict[str, Any]:
    return {"lengths": {"shortest": span[0], "longest": span[-1]}}
