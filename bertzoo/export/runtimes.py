# pyright: reportMissingImports=false
"""Run exported files: one class per runtime, whose objects map a row's inputs by name to its outputs by name.

Inputs and outputs have a batch axis of 1. Every constructor takes a file, and raises ExportFailed if the runtime
rejects it.
"""

import importlib.util
import json
import subprocess
import weakref
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json
from bertzoo.export.failure import REWRITE, ExportFailed, tool_errors
from bertzoo.export.litert.write import signature
from bertzoo.runs.runner import Inputs, Runner

EXTENSIONS = "onnxruntime_extensions"
EXECUTORCH = Path(__file__).with_name("pytorch") / "executorch_process.py"


class LiteRT(Runner):
    """A .tflite file, or its bytes, in LiteRT's interpreter; a row runs in the signature for its length."""

    def __init__(self, file: Path | bytes):
        from ai_edge_litert import interpreter

        content = file if isinstance(file, bytes) else file.read_bytes()
        with tool_errors("LiteRT's interpreter", "the file", REWRITE):
            self._interpreter = interpreter.Interpreter(model_content=content, num_threads=1)
            self._interpreter.allocate_tensors()
        self._runners: dict[str, Any] = {}

    def __call__(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return self.run(signature(inputs["input_ids"].shape[1]), inputs)

    def run(self, name: str, inputs: Inputs) -> dict[str, np.ndarray]:
        """Return the outputs by name of the signature `name`."""
        try:
            if name not in self._runners:
                self._runners[name] = self._interpreter.get_signature_runner(name)
            return {key: np.array(value) for key, value in self._runners[name](**inputs).items()}
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ExportFailed(
                f"LiteRT's interpreter cannot run the signature {name} of the file. {REWRITE} Reason: {reason[:300]}"
            ) from error


class Onnx(Runner):
    """A .onnx file, or its bytes, in onnxruntime, on the CPU. extensions: a library of further operators."""

    def __init__(self, file: Path | bytes, threads: int = 1, extensions: str | None = None):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        with tool_errors("onnxruntime", "the file", REWRITE):
            if extensions is not None:
                options.register_custom_ops_library(extensions)
            self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return dict(zip(self._names, self._session.run(None, dict(inputs)), strict=True))


class OnnxText(Onnx):
    """A .onnx file that takes texts, in onnxruntime with onnxruntime-extensions, which must be installed."""

    def __init__(self, file: Path | bytes, threads: int = 1):
        # The library's path, without the package's import: that imports transformers and torch, for 14 seconds.
        package = importlib.util.find_spec(EXTENSIONS)
        assert package is not None
        library = PathFinder.find_spec("_extensions_pydll", package.submodule_search_locations)
        assert library is not None
        super().__init__(file, threads, library.origin)

    def run(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the outputs by name for a text or a pair of texts."""
        return self({"text": np.array(texts, object)})


class ExecuTorch(Runner):
    """A .pte file run by a process of `python`, which needs executorch; the process ends when the `with` block ends."""

    def __init__(self, python: Path, file: Path):
        self._process = start_process(python, "run", str(file))
        self._close = weakref.finalize(self, self._process.communicate)  # also ends the process without a `with` block
        try:
            self._answer("the file")
        except ExportFailed:
            self.__exit__()
            raise

    def __call__(self, inputs: Inputs) -> dict[str, np.ndarray]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({name: row.tolist() for name, row in inputs.items()}) + "\n")
        self._process.stdin.flush()
        outputs = self._answer("the row")["outputs"]
        return {name: np.array(values, kind).reshape(shape) for name, (kind, shape, values) in outputs.items()}

    def __exit__(self, *_: object) -> None:
        self._close()

    def _answer(self, subject: str) -> dict[str, Any]:
        assert self._process.stdout
        return parse_answer(
            self._process.stdout.readline(), f"ExecuTorch's runtime does not take {subject}. {REWRITE} Reason"
        )


def start_process(python: Path, *words: str) -> subprocess.Popen[str]:
    """Start executorch_process.py with the arguments `words` in `python`; it prints lines of JSON on stdout."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return start_python([str(EXECUTORCH), *words], python, text=True, **pipes)


def parse_answer(line: str, failure: str) -> dict[str, Any]:
    """Parse a line that executorch_process.py prints; raises ExportFailed with "FAILURE: reason" if it is an error."""
    document = parse_json(line or '{"error": "its process ended without an answer"}')
    if "error" in document:
        raise ExportFailed(f"{failure}: {' '.join(document['error'].split())[:300]}")
    return document
