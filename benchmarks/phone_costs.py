"""How long `bertzoo convert` takes for a phone's file and how much memory, for the section that phone.py writes."""

import json
import subprocess
import sys
import time
from pathlib import Path

FORMATS = {  # by what the table calls them
    "LiteRT, five lengths": (".tflite", ["--to=litert", "--lengths=32,64,128,256,384"]),
    "LiteRT, int8-dynamic": (".tflite", ["--to=litert", "--precision=int8-dynamic"]),
    "torch.export": (".pt2", ["--to=torch-export"]),
    "TorchScript": (".pt", ["--to=torchscript"]),
    "ONNX": (".onnx", ["--to=onnx"]),
}
EXECUTORCH = "ExecuTorch"  # where a Python that has it is named
MINUTES, GIGABYTES = 3, 6  # that a conversion may take
# Says the peak memory of a process and of what that started. Linux counts to a process what its parent had in memory
# as it began: this one has little.
STARTER = """
import resource, subprocess, sys
code = subprocess.run([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def costs(source: Path, kept: Path, executorch: str) -> dict[str, dict[str, float]]:
    """By format the seconds and at most the gigabytes of converting a model, proof included; what is kept is read."""
    formats = dict(FORMATS)
    if executorch:
        formats[EXECUTORCH] = (".pte", ["--to=executorch", "--lengths=128", f"--python={executorch}"])
    found: dict[str, dict[str, float]] = json.loads(kept.read_text()) if kept.exists() else {}
    for name, (suffix, options) in formats.items():
        if name not in found:
            file = kept.with_name(f"converted{suffix}")
            for old in (file, file.with_suffix(".json")):
                old.unlink(missing_ok=True)
            print(f"{name}: a conversion is measured", flush=True)
            found[name] = _measured(["convert", str(source), str(file), *options])
            kept.write_text(json.dumps(found, indent=1))
    return {name: found[name] for name in formats}


def _measured(words: list[str]) -> dict[str, float]:
    began = time.perf_counter()
    asked = [sys.executable, "-c", STARTER, "-m", "bertzoo", *words]
    process = subprocess.run(asked, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        sys.exit(f"bertzoo {' '.join(words)} fails")
    return {"seconds": time.perf_counter() - began, "gigabytes": int(process.stdout) * 1024 / 1e9}
