"""Compile a run's training steps for a TPU slice, on a machine without TPUs, to get the compiler's figures.

The compiler, libtpu, runs in a child process, so that its environment variables and its lock do not affect the caller.
`python -m bertzoo.planning.compiled CONFIG SLICE FOLDER [MODE [FILE]]` prints progress and results as JSON objects, one
per line. FOLDER keeps the results, because a step takes minutes to compile, and JAX's own cache does not hold programs
for devices that this machine lacks. FILE gets the compiled steps (`train.executable`).
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import math
import re
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

from bertzoo.core import atomic, paths
from bertzoo.core import config as loader
from bertzoo.core.child import start_python
from bertzoo.core.documents import fitting, parse_json, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import config_class
from bertzoo.core.paths import Location
from bertzoo.planning import chips
from bertzoo.planning.hlo import Collective, find_collectives
from bertzoo.runs.configs import Recipe

INSTALL = "the TPU compiler (libtpu) is missing. Run `pip install -c constraints.txt -e '.[tpu-plan]'` in the checkout."
# There is no TPU, so skip the metadata server; another process may have libtpu open.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-256",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
_REVISION = "3"  # part of the keys of stored results; raise it when the same program gets other figures or fields
_COLLECTIVE = {"kind": str, "group": int, "count": int, "size": int, "sent": int}
_SIZES = dict.fromkeys(("needed?", "arguments?", "temporaries?", "code?", "accessed?"), int | None)
_RESULT = {"seconds": float, **_SIZES, "collectives?": list | None}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """The compiler's figures for one stage's training step; sizes are bytes on one device.

    seconds: compile time.
    needed: size of a step that does not fit, else None. If it is set, the other sizes are None.
    arguments: size of the state and the batch.
    temporaries: peak size of all other values.
    code: size of the program.
    accessed: bytes of the operations' operands and results, without the padding of arrays; None if the compiler
    did not count them.
    collectives: the program's collective operations, or None if the compiler could not print the program.
    """

    seconds: float
    needed: int | None = None
    arguments: int | None = None
    temporaries: int | None = None
    code: int | None = None
    accessed: int | None = None
    collectives: tuple[Collective, ...] | None = None

    @property
    def fits(self) -> bool:
        return self.needed is None

    @property
    def total(self) -> int | None:
        """Bytes of memory that the step takes, or None if it does not fit."""
        if self.arguments is None or self.temporaries is None or self.code is None:
            return None
        return self.arguments + self.temporaries + self.code

    @property
    def wanted(self) -> int:
        """Bytes of memory that the step takes, or would take if it does not fit."""
        return self.total or self.needed or 0


def available() -> bool:
    """Return whether the compiler, libtpu, is installed."""
    return importlib.util.find_spec("libtpu") is not None


def result_folder(folder: Path | str | None = None) -> Path:
    """Return `folder` or, by default, "plans" in the user's cache folder; the folder may not exist yet."""
    return Path(folder).expanduser() if folder else paths.cache_folder("plans")


def result_key(program: str, *versions: str) -> str:
    """Return the SHA-256 of a lowered program and of the versions of jax, libtpu, the slice and the figures."""
    return hashlib.sha256("\0".join((*versions, program)).encode()).hexdigest()


def read_result(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the result that was saved as `name`, or None if its file is missing or damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        result = read_json(folder / f"{name}.json", _RESULT)
        fitting(result.get("collectives") or [], [_COLLECTIVE])
        return result


def write_result(folder: Path, name: str, result: dict[str, Any]) -> None:
    """Save a result as `name`.json; creates the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_json(folder / f"{name}.json", result, shared=True)  # another plan may compile the same step


def compile_stages(
    recipe: Recipe, topology: chips.Topology, folder: Path, *, cached_only: bool = False, save: Location | None = None
) -> dict[int, CompiledStep]:
    """Compile the training steps of the stages in `estimate.planned_stages`; return a CompiledStep by stage index.

    folder: stores results, which later calls read.
    cached_only: compile nothing and leave out stages without a stored result.
    save: file for the compiled steps of all stages; they are compiled even if their results are stored.
    Raises UserError if there is no compiler, or if it fails for a reason other than memory, or if no step fits that is
    to be saved.
    """
    if not available():
        raise UserError(INSTALL)
    results: dict[int, CompiledStep] = {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "config.toml")
        file.write_text(loader.dump(recipe), encoding="utf-8")
        words = ["-m", "bertzoo.planning.compiled", str(file), topology.name, str(folder)]
        words += ["cached"] if cached_only else ["compile"] if save is None else ["save", str(save)]
        with (
            open(Path(scratch, "errors"), "w+", encoding="utf-8") as errors,
            start_python(words, environment=ENVIRONMENT, stdout=PIPE, stderr=errors, text=True) as process,
        ):
            try:
                for line in process.stdout or ():
                    if not line.startswith("{"):  # libtpu writes to standard output too
                        continue
                    message = parse_json(line)
                    if "result" in message:
                        results[message["stage"]] = parse_result(message["result"])
                    _LOG.info(f"stage {message['stage']} on {topology.name}: {message['progress']}")
            except BaseException:  # an interrupt must not wait minutes for the compiler
                process.kill()
                raise
            if process.wait():
                errors.seek(0)
                last = [line for line in errors.read().splitlines() if line.strip()][-1:]
                raise UserError(
                    f"the TPU compiler failed for {topology.name}: {''.join(last)[:300]}. Use --no-compile instead."
                )
    if save is not None:
        if not all(step.fits for step in results.values()):
            raise UserError(
                f"--save_executable={save} is not written, because a step does not fit {topology.name}. Leave it out "
                "to see the plan."
            )
        _LOG.info(f"wrote the compiled steps into {save}")
    return results


def parse_result(result: dict[str, Any]) -> CompiledStep:
    """Return the CompiledStep of its fields as JSON data; fields that are missing are None."""
    fields: dict[str, Any] = {field.name: result.get(field.name) for field in dataclasses.fields(CompiledStep)}
    if fields["collectives"] is not None:
        fields["collectives"] = tuple(Collective(**one) for one in fields["collectives"])
    return CompiledStep(**fields)


def needed_bytes(message: str) -> int | None:
    """Return the bytes that a program needs if `message` is the compiler's out-of-memory error, else None.

    The patterns match libtpu 0.0.42 and 0.0.51, with and without the table of the program's parts.
    """
    for pattern in (
        r"Total hbm usage >= ([\d.]+)([KMGT]?)",
        r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm",
        r"total memory required for [^(]*\(([\d.]+)([KMGT]?)\) exceeds",
    ):
        if match := re.search(pattern, message):
            return int(float(match[1]) * _UNITS[match[2]])
    return None


def compile_step(lowered: Any, device_count: int) -> tuple[Any, dict[str, Any]]:
    """Compile a lowered step; return the program, or None if it does not fit, and the fields of its CompiledStep."""
    import jax

    start = time.monotonic()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        needed = needed_bytes(str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or needed is None:
            raise
        return None, {"seconds": time.monotonic() - start, "needed": needed}
    memory, collectives, accessed = program.memory_analysis(), None, None
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # libtpu 0.0.51 could not print some programs for a v6e
        collectives = [dataclasses.asdict(one) for one in find_collectives(program.as_text(), device_count)]
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        accessed = int(program.cost_analysis()["bytes accessed"])
    return program, {
        "seconds": time.monotonic() - start,
        # Outputs that replace donated inputs take no memory of their own.
        "arguments": memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "accessed": accessed,
        "collectives": collectives,
    }


def slice_devices(topology: chips.Topology) -> list[Any]:
    """Return the devices of all slices as the compiler defines them; the process needs the variables in ENVIRONMENT."""
    from jax.experimental import topologies

    # A host has 2x2 chips, unless the slice is a single chip.
    options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if math.prod(topology.shape) == 1 else {}
    options |= {"num_slices": topology.slices} if topology.slices > 1 else {}
    return topologies.get_topology_desc(
        platform="tpu", topology_name=topology.slice_name, chip_config_name=topology.chip.configuration, **options
    ).devices


def main(file: str, slice_name: str, folder: str, mode: str = "compile", save: str = "") -> None:
    """Compile the training steps of a config file; print JSON lines.

    Mode "cached" only reads stored results, and mode "save" also writes the compiled steps into the file `save`.
    """
    import jax

    from bertzoo.planning.estimate import planned_stages
    from bertzoo.runs.experiments import build_experiment
    from bertzoo.train import sharding
    from bertzoo.train.executable import write_programs

    recipe, topology = loader.load(config_class(file), [file], []), chips.parse_topology(slice_name)
    built = build_experiment(recipe, sharding.make_mesh(recipe.mesh, slice_devices(topology)))
    versions = (jax.__version__, importlib.metadata.version("libtpu"), topology.name, _REVISION)
    programs = []
    for index in range(len(recipe.stages)) if mode == "save" else planned_stages(recipe):
        lowered = built.lower(index)
        name = result_key(lowered.as_text(), *versions)
        result = read_result(Path(folder), name)
        if result is not None and mode != "save":
            _send(index, "compiled before", result=result)
        elif mode == "cached":
            _send(index, "not compiled yet")
        else:
            _send(index, "compiling, which takes minutes")
            program, result = compile_step(lowered, topology.devices)
            programs.append((lowered, program))
            write_result(Path(folder), name, result)
            _send(index, f"{result['seconds']:.0f} s to compile", result=result)
    if mode == "save" and all(program for _, program in programs):
        write_programs(Path(save), built.mesh, programs)


def _send(stage: int, progress: str, **result: dict[str, Any]) -> None:
    print(json.dumps({"stage": stage, "progress": progress, **result}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

_LOG = logging.getLogger(__name__)
