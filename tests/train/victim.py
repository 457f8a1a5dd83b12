"""Saves a checkpoint, then is killed at a given moment of saving the next: python victim.py DIRECTORY MOMENT.

MOMENT is a share of the file operations of a save, which differ by a few from save to save; or "commit": before the
rename that makes the checkpoint one; or "manifest": after that, before the manifest. With "full"
nobody is killed, but the disk is full for the second save: the kernel's limit on the size of files stands for it.
"""

import os
import resource
import signal
import sys
from pathlib import Path

import jax.numpy as jnp

from bertzoo.core.errors import CheckpointError
from bertzoo.train import contents
from bertzoo.train.checkpoint import Checkpoints
from bertzoo.train.state import State

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def state(step: int) -> State:
    number = jnp.int32(step)
    return State(
        step=number,
        params={"w": jnp.full(100_000, step, jnp.float32)},
        opt_state={"mu": {"w": jnp.full(100_000, -step, jnp.float32)}},
        key=jnp.full(2, step, jnp.uint32),
        position={"stage": number, "row": number},
    )


def kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def out_of_space(checkpoints: Checkpoints) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        checkpoints.save(state(2))
        checkpoints.wait()
    except CheckpointError as error:
        print(f"CheckpointError: {error}", flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    checkpoints.save(state(3))
    checkpoints.close()
    print("third saved", flush=True)


def main(directory: Path, moment: str) -> None:
    seen = 0
    deadline = float("inf")

    def watch(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event in OPERATIONS and str(arguments[0]).startswith(str(directory)):
            seen += 1
            commits = event == "os.rename" and str(arguments[1]) == str(directory / "2")
            if seen >= deadline or (commits and moment == "commit"):
                kill()

    checkpoints = Checkpoints(directory)
    sys.addaudithook(watch)
    checkpoints.save(state(1))
    checkpoints.wait()
    print("first saved", flush=True)
    if moment == "full":
        return out_of_space(checkpoints)
    if moment == "manifest":
        contents.seal = kill
    elif moment != "commit":
        deadline = seen + max(1, round(float(moment) * seen))
    checkpoints.save(state(2))
    checkpoints.wait()
    print("second saved", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
