# pyright: reportMissingImports=false
"""Written files in the runtimes that they are for: a row's inputs by name -> its outputs by name.

Every loader takes a file and the number of threads, and raises ExportFailed where its runtime does not take the file;
rows have a first axis of 1, as export.graph.reference's inputs and outputs have none.
"""

import json
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.export.failure import ExportFailed, refusing

Row = Mapping[str, np.ndarray]
EXECUTORCH = Path(__file__).with_name("pytorch") / "executorch_process.py"


class Runtime(ABC):
    """A file that can be run, until the end of its `with`."""

    @abstractmethod
    def __call__(self, given: Row) -> dict[str, np.ndarray]:
        """The outputs of a row."""

    def seconds(self, given: Row, calls: int) -> list[float]:
        """How long each of so many calls takes, from inputs in memory to outputs in memory."""
        found = []
        for _ in range(calls):
            start = time.perf_counter()
            self(given)
            found.append(time.perf_counter() - start)
        return found

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: object) -> None:
        return None  # most hold nothing that would have to be let go


class LiteRT(Runtime):
    """A .tflite file, or its content, in LiteRT's interpreter; a row is read by the signature of its length."""

    def __init__(self, file: Path | bytes, threads: int = 1):
        from bertzoo.export.litert import litert  # and with it jax, whose memory no other runtime takes

        self._signature = litert.signature
        self._run = litert.Interpreter(file if isinstance(file, bytes) else file.read_bytes(), threads)

    def __call__(self, given: Row) -> dict[str, np.ndarray]:
        return self._run(self._signature(given["input_ids"].shape[1]), given)


class _Torch(Runtime):
    """Of a callable of tensors by name; the threads are those of all of torch in this process."""

    def __init__(self, run: Any, threads: int):
        import torch

        torch.set_num_threads(threads)
        self._run = run

    def __call__(self, given: Row) -> dict[str, np.ndarray]:
        import torch

        with torch.inference_mode():
            found = self._run(**{name: torch.from_numpy(np.ascontiguousarray(row)) for name, row in given.items()})
        return {name: tensor.numpy() for name, tensor in found.items()}


class TorchExport(_Torch):
    """A .pt2 file as torch.export reads it, run operator by operator."""

    def __init__(self, file: Path, threads: int = 1):
        import torch

        with refusing("torch", "the file"):
            module = torch.export.load(file).module()
        super().__init__(module, threads)


class TorchScript(_Torch):
    """A .pt file in TorchScript's interpreter."""

    def __init__(self, file: Path, threads: int = 1):
        import torch

        with refusing("torch", "the file"):
            module = torch.jit.load(file)
        super().__init__(module, threads)


class Onnx(Runtime):
    """A .onnx file in onnxruntime, on the CPU."""

    def __init__(self, file: Path, threads: int = 1):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        with refusing("onnxruntime", "the file"):
            self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, given: Row) -> dict[str, np.ndarray]:
        return dict(zip(self._names, self._session.run(None, dict(given)), strict=True))


class ExecuTorch(Runtime):
    """A .pte file in a process of `python`, which has the executorch package; it ends with the `with`."""

    def __init__(self, python: Path, file: Path, threads: int = 1):
        self._process = ask(python, "run", str(file), str(threads))
        try:
            self._said("the file")
        except ExportFailed:
            self.__exit__()
            raise

    def __call__(self, given: Row) -> dict[str, np.ndarray]:
        found = self._asked(given, 1)["outputs"]
        return {name: np.array(values, kind).reshape(shape) for name, (kind, shape, values) in found.items()}

    def seconds(self, given: Row, calls: int) -> list[float]:
        return self._asked(given, calls)["seconds"]

    @property
    def pid(self) -> int:
        """The process that runs it."""
        return self._process.pid

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _asked(self, given: Row, calls: int) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([{name: row.tolist() for name, row in given.items()}, calls]) + "\n")
        self._process.stdin.flush()
        return self._said("the row")

    def _said(self, given: str) -> dict[str, Any]:
        assert self._process.stdout
        return answer(self._process.stdout.readline(), f"ExecuTorch's runtime does not take {given}")


def ask(python: Path, *words: str) -> subprocess.Popen[str]:
    """A process of executorch_process.py, which answers on its output, a line of JSON each."""
    command, pipe = [str(python), "-I", str(EXECUTORCH), *words], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def answer(line: str, failed: str) -> dict[str, Any]:
    """What a line of the process says; raises ExportFailed where that is an error, or nothing."""
    said = json.loads(line or '{"error": "its process ended without a word"}')
    if "error" in said:
        raise ExportFailed(f"{failed}: {' '.join(said['error'].split())[:300]}")
    return said
