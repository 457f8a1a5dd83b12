"""Stands in for adb, and for LiteRT's benchmark_model on the phone, whose files are in the folder FAKE_CLOUD/phone.

The phone's model gives a row's first output the sum of its ids and the sum of its mask, each plus FAKE_CLOUD/error.
"""

import array
import os
import shutil
import subprocess
import sys

from documented import refusal

CLOUD = os.environ["FAKE_CLOUD"]
PHONE, SHELL = f"{CLOUD}/phone", "/data/local/tmp"


def adb(argv: list[str]) -> int:
    action, words = argv[0], [word.replace(SHELL, PHONE) for word in argv[1:]]
    if action == "get-state":
        state = given("state", "device")
        print(state)
        return 0 if state == "device" else 1
    if action in ("push", "pull"):
        source, target = words
        into = os.path.join(target, os.path.basename(source)) if os.path.isdir(target) else target
        (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, into)
        return 0
    os.makedirs(PHONE, exist_ok=True)
    return subprocess.run(["/bin/sh", "-c", words[0]], stdin=subprocess.DEVNULL).returncode


def given(name: str, default: str) -> str:
    try:
        with open(f"{CLOUD}/{name}") as file:
            return file.read()
    except FileNotFoundError:
        return default


def benchmark_model(argv: list[str]) -> int:
    flags = dict(word.removeprefix("--").split("=", 1) for word in argv)
    if flags.get("use_gpu") == "true" and given("gpu", ""):
        print(given("gpu", ""), file=sys.stderr)
        return 1
    names, shapes = flags["input_layer"].split(","), flags["input_layer_shape"].split(":")
    files = dict(pair.split(":") for pair in flags["input_layer_value_files"].split(","))
    rows = {}
    for name, shape in zip(names, shapes, strict=True):
        with open(files[name], "rb") as file:
            rows[name] = array.array("i", file.read())
        first, length = map(int, shape.split(","))
        assert first == 1 and len(rows[name]) == length == int(flags["signature_to_run_for"].removeprefix("length_"))
    assert os.path.getsize(flags["graph"])
    if "output_filepath" in flags:
        error = float(given("error", "0"))
        outputs = array.array("f", [sum(rows["input_ids"]) + error, sum(rows["attention_mask"]) + error])
        with open(flags["output_filepath"], "wb") as file:
            outputs.tofile(file)
    runs = flags["num_runs"]
    print(f"INFO: count={runs} first=2100 curr=2000 min=1990 max=2100 avg=2010.5 std=9 p5=1990 median=2005 p95=2100")
    print(
        "INFO: Inference timings in us: Init: 37432, First inference: 2100, Warmup (avg): 2050, Inference (avg): 2010.5"
    )
    print("INFO: Memory footprint delta from the start of the tool (MB): init=5.5 overall=7.25")
    return 0


def main() -> None:
    program, *argv = sys.argv[1:]
    with open(f"{CLOUD}/calls", "a") as file:
        file.write(f"{dict(argv=[program, *argv], host=None, cwd=os.getcwd(), xla=None)}\n")
    if program == "adb" and argv[0] == "-s":
        argv = argv[2:]
    if why := refusal([program, *argv]):
        print(f"ERROR: {why}", file=sys.stderr)
        sys.exit(2)
    sys.exit({"adb": adb, "benchmark_model": benchmark_model}[program](argv))


if __name__ == "__main__":
    main()
