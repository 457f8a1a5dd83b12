"""The devices that processes side by side have, one each, by the environment that they are started with."""

import json
import os
import subprocess
import sys

from bertzoo.core.errors import UserError

# A chip of a TPU may hold two devices; a process of its own has the whole chip.
_COUNT = """
import json, jax
devices = jax.local_devices()
chips = {tuple(getattr(device, "coords", ())) for device in devices}
print(json.dumps([jax.default_backend(), len(chips) if jax.default_backend() == "tpu" else len(devices)]))
"""
Environment = dict[str, str]


def slots(processes: int | None) -> list[Environment]:
    """What is added to the environment of each process: one a device, of a CPU one, or as many as are asked for.

    Raises UserError where there are fewer devices than processes.
    """
    platform, count = found()
    if platform == "cpu":
        return [{} for _ in range(processes or 1)]
    if (processes or 0) > count:
        raise UserError(f"--processes={processes} is more than the {count} devices of this machine, one for each")
    make = {"tpu": _chip, "gpu": _card}.get(platform)
    if make is None:
        if (processes or 1) > 1:
            raise UserError(f"--processes={processes}: how to share out devices of the kind {platform} is not known")
        return [{}]
    return [make(number) for number in range(processes or count)]


def found() -> tuple[str, int]:
    """The platform and the number of its devices here, or of a TPU its chips; asked in a process that ends, for
    a device that is in use no other process can have.
    """
    asked = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True)
    if asked.returncode:
        last = next(iter(asked.stderr.strip().splitlines()[-1:]), f"exit code {asked.returncode}")
        raise RuntimeError(f"the devices of this machine cannot be counted: {last}")
    platform, count = json.loads(asked.stdout.splitlines()[-1])
    return platform, count


def _card(number: int) -> Environment:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")  # of the machine's, those that are given to this process
    return {"CUDA_VISIBLE_DEVICES": visible.split(",")[number] if visible else str(number)}


def _chip(number: int) -> Environment:
    visible = os.environ.get("TPU_VISIBLE_CHIPS", "")
    chip = visible.split(",")[number] if visible else str(number)
    bounds = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}  # each is a slice of its own
    return {"TPU_VISIBLE_CHIPS": chip, **bounds}
