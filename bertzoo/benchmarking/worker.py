# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""A process that loads one model in one runtime and times it on request.

    python -m bertzoo.benchmarking.worker

Reads JSON objects from standard input, one per line, and answers each with a JSON object on one line.

The first request holds the fields of a `LoadRequest`. The answer has:

- `empty`: peak memory of the runtime without a model, in bytes
- `lengths`: sequence lengths of the file, in tokens; empty if the file takes any length
- `threads`: number of threads in use
- `version`: version of the runtime

Later requests and their answers:

- {"lengths": [128, …]}: run a sequence of each length; the answer has the `seconds` of each run.
- {"outputs": 128}: run a sequence of this length; the answer has its `outputs` by name, flattened.
- {"peak": true}: the answer has the `peak` memory of the process minus `empty`, in bytes.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from bertzoo.core.documents import parse_json

TEXT_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
Inference = Callable[[], Mapping[str, Any]]  # runs one sequence; returns once its outputs are computed


class LoadRequest(NamedTuple):
    """A file to load, in the format `backend`, and sequences of ids below `vocabulary`.

    inputs: names of the inputs, for files that do not record them.
    """

    backend: str
    path: str
    threads: int
    vocabulary: int
    inputs: Sequence[str] = TEXT_INPUTS


# A generator that imports the runtime, yields its package's name, then loads a model. The memory at the first yield
# is the runtime's. Then it yields a function that maps a length to one that runs a random row of this length, and
# the file's sequence lengths, empty if it takes any length.
Loader = Iterator[Any]


def random_row(shapes: Mapping[str, tuple[int, ...]], vocabulary: int) -> dict[str, Any]:
    """Return inputs with these shapes by name: random ids below `vocabulary`, no padding, one segment, positions 0."""

    def fill(name: str, shape: tuple[int, ...]) -> Any:
        if "mask" in name and "position" not in name:
            return np.ones(shape)
        if "type" in name or "position" in name:
            return np.zeros(shape)
        return np.random.default_rng(0).integers(0, vocabulary, shape)

    return {name: fill(name, tuple(shape)) for name, shape in shapes.items()}


def litert(request: LoadRequest) -> Loader:
    """Yield LiteRT's package name, then the loaded file; LiteRT maps the file into memory, as on a phone."""
    from ai_edge_litert.interpreter import Interpreter

    yield "ai-edge-litert"
    interpreter = Interpreter(model_path=request.path, num_threads=request.threads)
    runners = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
    details = {name: runner.get_input_details() for name, runner in runners.items()}
    lengths = {max(int(port["shape"][-1]) for port in inputs.values()): name for name, inputs in details.items()}

    def prepare(length: int) -> Inference:
        inputs, runner = details[lengths[length]], runners[lengths[length]]
        row = random_row({name: tuple(port["shape"]) for name, port in inputs.items()}, request.vocabulary)
        row = {name: array.astype(inputs[name]["dtype"]) for name, array in row.items()}
        return lambda: runner(**row)

    yield prepare, tuple(sorted(lengths))


def onnx(request: LoadRequest) -> Loader:
    """Yield onnxruntime's package name, then the file loaded for the CPU.

    In a file that takes texts, N tokens are a text of N - 2 full stops, because the file adds [CLS] and [SEP].
    """
    import onnxruntime  # noqa: F401 (its memory must not count as the model's)

    from bertzoo.export import runtimes

    yield "onnxruntime"
    if request.backend == "onnx-text":
        file = runtimes.OnnxText(Path(request.path), request.threads)
        yield (lambda length: lambda: file.run(["." * (length - 2)])), ()
        return
    run = runtimes.Onnx(Path(request.path), request.threads)  # raises an exception for a wrong length

    def prepare(length: int) -> Inference:
        shapes = {name: (1, 1 if name == "masked_positions" else length) for name in request.inputs}
        row = {name: array.astype(np.int32) for name, array in random_row(shapes, request.vocabulary).items()}
        return lambda: run(row)

    yield prepare, ()


def executorch(request: LoadRequest) -> Loader:
    """Yield ExecuTorch's package name, then the loaded file; requires a Python that has ExecuTorch."""
    import executorch.runtime
    import torch

    from bertzoo.export.pytorch.executorch_process import open_program

    executorch.runtime.Runtime.get()
    yield "executorch"
    inputs, outputs, method = open_program(request.path, request.threads)
    shapes = {name: method.metadata.input_tensor_meta(index).sizes() for index, name in enumerate(inputs)}

    def prepare(length: int) -> Inference:
        row = random_row(shapes, request.vocabulary)
        tensors = [torch.tensor(row[name], dtype=torch.int32) for name in inputs]
        return lambda: dict(zip(outputs, method.execute(tensors), strict=True))

    yield prepare, (max(shape[-1] for shape in shapes.values()),)


LOADERS: dict[str, Callable[[LoadRequest], Loader]] = {
    "litert": litert,
    "mediapipe": litert,
    "onnx": onnx,
    "onnx-text": onnx,
    "executorch": executorch,
}


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss includes the peak of the parent process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(requests: TextIO, answer: Callable[[dict[str, Any]], None]) -> None:
    """Load the model that the first line of `requests` names, and answer the other lines until the input ends."""
    request = LoadRequest(**parse_json(next(requests)))
    loader = LOADERS[request.backend](request)
    package, empty = next(loader), peak()
    prepare, available = next(loader)
    answer({"empty": empty, "lengths": available, "threads": request.threads, "version": version(package)})
    runs: dict[int, Inference] = {}
    for line in requests:
        message = parse_json(line)
        lengths = message.get("lengths", [])
        for length in {*lengths, *([message["outputs"]] if "outputs" in message else [])} - runs.keys():
            runs[length] = prepare(length)
        if "peak" in message:
            answer({"peak": max(0, peak() - empty)})
        elif "outputs" in message:
            outputs = runs[message["outputs"]]()
            answer({"outputs": {name: np.asarray(array).ravel().tolist() for name, array in outputs.items()}})
        else:
            answer({"seconds": [_seconds(runs[length]) for length in lengths]})


def _seconds(run: Inference) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    """Serve requests from standard input; everything that libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(message: dict[str, Any]) -> None:
        print(json.dumps(message), file=answers, flush=True)

    try:
        serve(sys.stdin, answer)
    except Exception as error:
        answer({"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]})
        sys.exit(1)


if __name__ == "__main__":
    main()
