# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""One model in one runtime, in a process of its own that runs it when it is told to.

    python -m bertzoo.benchmarking.worker

Reads JSON documents, a line each, and answers each with another. The first is a `Load` as an object; then
{"lengths": [128, …]} runs a row of each length and says the `seconds` of each, {"outputs": 128} the `outputs` of such a
row by name, each in one list, and {"peak": true} the most bytes that it took in memory beyond `empty`, the runtime
without a model.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

TEXT = ("input_ids", "token_type_ids", "attention_mask")
Run = Callable[[], Mapping[str, Any]]  # an inference of one row, its outputs there


class Load(NamedTuple):
    """What is loaded: a file or directory that `backend` runs, whose rows have ids below `vocabulary`; inputs: by name,
    of files that do not tell them themselves.
    """

    backend: str
    path: str
    threads: int
    vocabulary: int
    inputs: Sequence[str] = TEXT


class Loaded(NamedTuple):
    """run: of a length, how to run a row of it. lengths: those that the file has; none where it runs any. threads: what
    the runtime was told, or says that it uses.
    """

    run: Callable[[int], Run]
    lengths: tuple[int, ...]
    threads: int


class Runtime(NamedTuple):
    """A runtime with all that it imports for a model: the package that has the version, and how it loads the model."""

    package: str
    load: Callable[[], Loaded]


def row(shapes: Mapping[str, tuple[int, ...]], vocabulary: int) -> dict[str, Any]:
    """Inputs by name: random ids, no padding, one segment, the first position."""

    def filled(name: str, shape: tuple[int, ...]) -> Any:
        if "mask" in name and "position" not in name:
            return np.ones(shape)
        if "type" in name or "position" in name:
            return np.zeros(shape)
        return np.random.default_rng(0).integers(0, vocabulary, shape)

    return {name: filled(name, tuple(shape)) for name, shape in shapes.items()}


def litert(given: Load) -> Runtime:
    """LiteRT's interpreter, the file mapped into memory as on a phone."""
    from ai_edge_litert.interpreter import Interpreter

    def load() -> Loaded:
        interpreter = Interpreter(model_path=given.path, num_threads=given.threads)
        runners = {name: interpreter.get_signature_runner(name) for name in interpreter.get_signature_list()}
        details = {name: runner.get_input_details() for name, runner in runners.items()}
        lengths = {max(int(one["shape"][-1]) for one in inputs.values()): name for name, inputs in details.items()}

        def run(length: int) -> Run:
            inputs, runner = details[lengths[length]], runners[lengths[length]]
            made = row({name: tuple(one["shape"]) for name, one in inputs.items()}, given.vocabulary)
            made = {name: array.astype(inputs[name]["dtype"]) for name, array in made.items()}
            return lambda: runner(**made)

        return Loaded(run, tuple(sorted(lengths)), given.threads)

    return Runtime("ai-edge-litert", load)


def torch(given: Load) -> Runtime:
    """PyTorch without a compiler, on the module that `--to=pytorch` writes, or on a file."""
    import torch

    torch.set_num_threads(given.threads)
    if Path(given.path).is_file():
        return Runtime("torch", _torch_file(given))
    from bertzoo.conversion.modeling_bertzoo import load as module_in

    def load() -> Loaded:
        module = module_in(given.path)

        def run(length: int) -> Run:
            made = row(dict.fromkeys(TEXT, (1, length)), given.vocabulary)
            tensors = {name: torch.from_numpy(array).long() for name, array in made.items()}

            def once() -> Mapping[str, Any]:
                with torch.inference_mode():
                    return module(**tensors)

            return once

        return Loaded(run, (), torch.get_num_threads())

    return Runtime("torch", load)


def _torch_file(given: Load) -> Callable[[], Loaded]:
    import torch

    from bertzoo.export import runtimes

    kind = runtimes.TorchScript
    if given.path.endswith(".pt2"):
        kind = runtimes.TorchExport
        # Half of torch is imported by the first that is read: this is, so that none of it counts as the model's.
        first, some = io.BytesIO(), {0: torch.export.Dim("some")}
        torch.export.save(torch.export.export(torch.nn.Identity(), (torch.zeros(2),), dynamic_shapes=(some,)), first)
        torch.export.load(io.BytesIO(first.getvalue())).module()(torch.zeros(2))
    return lambda: _file(kind(Path(given.path), given.threads), given, torch.get_num_threads())


def onnx(given: Load) -> Runtime:
    """onnxruntime on the CPU."""
    import onnxruntime  # noqa: F401 (it takes memory without a model, too)

    from bertzoo.export import runtimes

    return Runtime("onnxruntime", lambda: _file(runtimes.Onnx(Path(given.path), given.threads), given, given.threads))


def executorch(given: Load) -> Runtime:
    """ExecuTorch's runtime, in a Python that has it."""
    import executorch.runtime
    import torch

    from bertzoo.export.pytorch.executorch_process import opened

    executorch.runtime.Runtime.get()

    def load() -> Loaded:
        inputs, outputs, method = opened(given.path, given.threads)
        shapes = {name: method.metadata.input_tensor_meta(place).sizes() for place, name in enumerate(inputs)}

        def run(length: int) -> Run:
            made = row(shapes, given.vocabulary)
            tensors = [torch.tensor(made[name], dtype=torch.int32) for name in inputs]
            return lambda: dict(zip(outputs, method.execute(tensors), strict=True))

        return Loaded(run, (max(shape[-1] for shape in shapes.values()),), given.threads)

    return Runtime("executorch", load)


def _file(opened: Any, given: Load, threads: int) -> Loaded:
    """One of export.runtimes, whose file reads rows of any length, or says at its first that it does not."""

    def run(length: int) -> Run:
        shapes = {name: (1, 1 if name == "masked_positions" else length) for name in given.inputs}
        made = {name: array.astype(np.int32) for name, array in row(shapes, given.vocabulary).items()}
        return lambda: opened(made)

    return Loaded(run, (), threads)


def jax(given: Load) -> Runtime:
    """The training graph, compiled by XLA; its threads are as many as the cores that the process may use."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    import jax
    import jax.numpy as jnp

    from bertzoo.export.graph.heads import FirstEmbedding
    from bertzoo.export.graph.reference import Plain
    from bertzoo.runs import any_model

    jnp.zeros(1).block_until_ready()

    def load() -> Loaded:
        module, params = any_model.read_model(Path(given.path)).module()
        plain = Plain(params=params, pooling=FirstEmbedding(), model=module)
        compiled = jax.jit(lambda plain, given: plain(**given))

        def run(length: int) -> Run:
            made = row({name: (length,) for name in plain.inputs}, given.vocabulary)
            arrays = {name: jnp.asarray(array, jnp.int32) for name, array in made.items()}
            return lambda: jax.block_until_ready(compiled(plain, arrays))

        return Loaded(run, (), len(os.sched_getaffinity(0)))

    return Runtime("jax", load)


RUNTIMES: dict[str, Callable[[Load], Runtime]] = {
    "litert": litert,
    "torch": torch,
    "onnx": onnx,
    "executorch": executorch,
    "jax": jax,
}


def peak() -> int:
    """The most bytes that the process has had in memory."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss is there also the peak of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(asked: TextIO, answer: Callable[[dict[str, Any]], None]) -> None:
    """Load what the first line says, and run until there are no more lines."""
    first = json.loads(next(asked))
    given = Load(**first)
    runtime = RUNTIMES[given.backend](given)
    empty = peak()
    loaded = runtime.load()
    said = {"empty": empty, "lengths": loaded.lengths, "threads": loaded.threads}
    answer({**said, "version": version(runtime.package)})
    runs: dict[int, Run] = {}
    for line in asked:
        message = json.loads(line)
        lengths = message.get("lengths", [])
        for length in {*lengths, *([message["outputs"]] if "outputs" in message else [])} - runs.keys():
            runs[length] = loaded.run(length)
        if "peak" in message:
            answer({"peak": max(0, peak() - empty)})
        elif "outputs" in message:
            outputs = runs[message["outputs"]]()
            answer({"outputs": {name: np.asarray(array).ravel().tolist() for name, array in outputs.items()}})
        else:
            answer({"seconds": [_timed(runs[length]) for length in lengths]})


def _timed(run: Run) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main() -> None:
    """Serve standard input; whatever else is printed goes to standard error."""
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
