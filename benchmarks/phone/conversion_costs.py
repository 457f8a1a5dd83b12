"""How long `bertzoo convert` takes for a phone's file, and how much memory, for converters.py."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bertzoo.export.companions import companions

FORMATS = {  # by the name in the table
    "LiteRT, five lengths": (".tflite", ["--to=litert", "--lengths=32,64,128,256,384"]),
    "LiteRT, int8-dynamic": (".tflite", ["--to=litert", "--precision=int8-dynamic"]),
    "ONNX": (".onnx", ["--to=onnx"]),
}
MINUTES, GIGABYTES = 3, 6  # targets
# Prints the peak memory of a process and its children. Linux starts a child's peak at the memory of its parent, so that
# a small process has to start it.
STARTER = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def rows(source: Path, file: Path, executorch: str) -> list[dict[str, Any]]:
    """Seconds and peak gigabytes of converting a model, check included, by format; `file` keeps what was measured."""
    formats = dict(FORMATS)
    if executorch:
        formats["ExecuTorch"] = (".pte", ["--to=executorch", "--lengths=128", f"--python={executorch}"])
    costs: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    for name, (suffix, options) in formats.items():
        if name not in costs:
            converted = file.with_name(f"converted{suffix}")
            for old in (converted, converted.with_name(companions(converted)[0])):
                old.unlink(missing_ok=True)
            print(f"{name}: measuring a conversion", flush=True)
            costs[name] = {"format": name} | _measure(["convert", str(source), str(converted), *options])
            file.write_text(json.dumps(costs, indent=1))
    return [costs[name] for name in formats]


def _measure(words: list[str]) -> dict[str, Any]:
    start = time.perf_counter()
    command = [sys.executable, "-c", STARTER, "-m", "bertzoo", *words]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        sys.exit(f"bertzoo {' '.join(words)} fails")
    seconds, gigabytes = time.perf_counter() - start, int(process.stdout) * 1024 / 1e9
    met = seconds <= 60 * MINUTES and gigabytes <= GIGABYTES
    return {"seconds": round(seconds), "peak memory, GB": round(gigabytes, 1), "met": met}
