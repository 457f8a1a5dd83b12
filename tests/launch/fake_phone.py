"""Stands in for adb, and for benchmark_model on the phone, whose files are in the folder FAKE_CLOUD/phone.

The phone's model gives a row's first output the sum of its ids and the sum of its mask, each plus FAKE_CLOUD/error.
FAKE_CLOUD/gpu says what becomes of the GPU, and what the tool (tensorflow/lite/tools/benchmark) logs of that is logged;
but for "fails" the model is run and timed, on the CPU where the GPU takes nothing.
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


APPLIED = "INFO: Explicitly applied {} delegate, and the model graph will be"
REPLACING = "VERBOSE: Replacing {} out of {} node(s) with delegate ({}) node, yielding {} partitions for subgraph {}."
DELEGATES = {
    "": (
        "INFO: Created TensorFlow Lite delegate for GPU.",
        REPLACING.format(320, 320, "TfLiteGpuDelegateV2", 1, 0),
        REPLACING.format(320, 320, "TfLiteGpuDelegateV2", 1, 1),
        f"{APPLIED.format('GPU')} completely executed by the delegate.",
    ),
    "partly": (
        "INFO: Created TensorFlow Lite delegate for GPU.",
        "ERROR: Following operations are not supported by GPU delegate:",
        REPLACING.format(54, 320, "TfLiteGpuDelegateV2", 3, 0),
        REPLACING.format(54, 320, "TfLiteGpuDelegateV2", 3, 1),
        f"{APPLIED.format('GPU')} partially executed by the delegate w/ 3 delegate kernels.",
        "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.",
        REPLACING.format(250, 269, "TfLiteXNNPackDelegate", 4, 0),
    ),
    "not": (
        "INFO: Created TensorFlow Lite delegate for GPU.",
        REPLACING.format(320, 320, "TfLiteGpuDelegateV2", 1, 0),
        "INFO: Though GPU delegate is explicitly applied, the model graph will not be executed by the delegate.",
        REPLACING.format(300, 320, "TfLiteXNNPackDelegate", 4, 0),
    ),
    "unsupported": (
        "WARN: GPU acceleration is unsupported on this platform.",
        "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.",
        REPLACING.format(300, 320, "TfLiteXNNPackDelegate", 4, 0),
    ),
    "fails": ("ERROR: Failed to apply GPU delegate.", "ERROR: Benchmarking failed."),
}
XNNPACK = (
    "INFO: Created TensorFlow Lite XNNPACK delegate for CPU.",
    REPLACING.format(300, 320, "TfLiteXNNPackDelegate", 4, 0),
    REPLACING.format(302, 320, "TfLiteXNNPackDelegate", 4, 1),
    f"{APPLIED.format('XNNPACK')} partially executed by the delegate w/ 4 delegate kernels.",
)


def benchmark_model(argv: list[str]) -> int:
    flags = dict(word.removeprefix("--").split("=", 1) for word in argv)
    if flags.get("use_gpu") == "true":
        print(*DELEGATES[given("gpu", "")], sep="\n", file=sys.stderr)
        if given("gpu", "") == "fails":
            return 1
    elif flags.get("use_nnapi") == "true":
        print("WARN: NNAPI acceleration is unsupported on this platform.", file=sys.stderr)
    elif flags.get("use_xnnpack") == "true":
        print(*XNNPACK, sep="\n", file=sys.stderr)
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
        error, sums = float(given("error", "0")), (sum(rows["input_ids"]), sum(rows["attention_mask"]))
        outputs = array.array("f", [0.0, 0.0] if given("broken", "") else [each + error for each in sums])
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
