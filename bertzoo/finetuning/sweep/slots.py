"""The environment variables that give each of several processes a device of its own."""

import os
from subprocess import PIPE

from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import UserError

# A chip of a TPU may hold two devices; a process gets a whole chip.
_COUNT = """
import json, jax
devices = jax.local_devices()
chips = {tuple(getattr(device, "coords", ())) for device in devices}
print(json.dumps([jax.default_backend(), len(chips) if jax.default_backend() == "tpu" else len(devices)]))
"""
Environment = dict[str, str]


def device_environments(processes: int | None) -> list[Environment]:
    """Return, for each process, environment variables that give the process a device of its own.

    On a CPU, no variables are set. processes: number of processes; None: one per device, or one on a CPU.

    Raises UserError if there are fewer devices than processes.
    """
    platform, count = count_devices()
    if platform == "cpu":
        return [{} for _ in range(processes or 1)]
    if (processes or 0) > count:
        raise UserError(
            f"--processes={processes} is more than the {count} devices of this machine. Use at most {count}, one "
            "per device."
        )
    make = {"tpu": _chip, "gpu": _card}.get(platform)
    if make is None and (processes or 1) > 1:
        raise UserError(
            f"--processes={processes} applies only to CPUs, GPUs and TPUs, not to the platform {platform}. Use "
            "--processes=1."
        )
    return [make(number) for number in range(processes or count)] if make else [{}]


def count_devices() -> tuple[str, int]:
    """Return JAX's platform and its number of devices, or of chips for a TPU.

    A separate process counts them, since counting occupies the devices until the process ends.
    """
    with start_python(["-c", _COUNT], stdout=PIPE, stderr=PIPE, text=True) as process:
        output, errors = process.communicate()
    if process.returncode:
        last = next(iter(errors.strip().splitlines()[-1:]), f"exit code {process.returncode}")
        raise RuntimeError(f"JAX cannot count the devices of this machine: {last}. Correct the installation of JAX.")
    platform, count = parse_json(output.splitlines()[-1], list)
    return platform, count


def _visible(variable: str, number: int) -> str:
    """Return the id of device `number`, counted from 0 among the ids that the environment variable lists.

    Without the variable, the id is `number`.
    """
    visible = os.environ.get(variable, "")
    return visible.split(",")[number] if visible else str(number)


def _card(number: int) -> Environment:
    return {"CUDA_VISIBLE_DEVICES": _visible("CUDA_VISIBLE_DEVICES", number)}


def _chip(number: int) -> Environment:
    bounds = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}  # each chip is a slice of its own
    return {"TPU_VISIBLE_CHIPS": _visible("TPU_VISIBLE_CHIPS", number), **bounds}
