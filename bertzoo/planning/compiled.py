"""What the TPU's own compiler says of a run's steps for a slice that need not be there.

The compiler is in libtpu, whose environment and lock no other part of the program should see: it runs in a process of
its own, `python -m bertzoo.planning.compiled CONFIG SLICE FOLDER`, which prints one JSON object for every stage, and
one more before it compiles.
"""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertzoo.core import config as loader
from bertzoo.core.errors import UserError
from bertzoo.planning import cache, chips, hlo
from bertzoo.runs.kind import recipe_class
from bertzoo.runs.transfer_config import Recipe

INSTALL = "the compiler of TPUs (libtpu) is missing: `pip install '.[tpu-plan]'` in the checkout adds it"
# No TPU, so no metadata server to ask for one; and another process may have libtpu open.
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
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """The compiler's account of one stage's step, bytes of one device; `needed` is set where it does not fit, and all
    else is then None.

    arguments: state and batch; temporaries: all that comes and goes within a step; code: the program itself.
    """

    seconds: float  # that compiling took
    needed: int | None = None
    arguments: int | None = None
    temporaries: int | None = None
    code: int | None = None
    collectives: tuple[hlo.Collective, ...] | None = None

    @property
    def fits(self) -> bool:
        return self.needed is None

    @property
    def total(self) -> int | None:
        """Bytes of memory that the step takes, where it was compiled."""
        if self.arguments is None or self.temporaries is None or self.code is None:
            return None
        return self.arguments + self.temporaries + self.code


def available() -> bool:
    """Whether the compiler is installed."""
    return importlib.util.find_spec("libtpu") is not None


def compile_stages(
    recipe: Recipe, topology: chips.Topology, folder: Path, said: Callable[[str], None], *, kept: bool = False
) -> list[Compiled | None]:
    """Compile the step of every stage, or read what an earlier call found; `said` hears of each, before and after.

    kept: compile nothing; a stage that no earlier call compiled is None. Raises UserError where there is no compiler
    or it fails otherwise than for want of memory.
    """
    if not available():
        raise UserError(INSTALL)
    found: list[Compiled | None] = []
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "config.toml")
        file.write_text(loader.dump(recipe), encoding="utf-8")
        command = [sys.executable, "-m", "bertzoo.planning.compiled", str(file), topology.name, str(folder)]
        command += ["kept"] * kept
        here = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}
        with (
            open(Path(scratch, "errors"), "w+", encoding="utf-8") as errors,
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        ):
            try:
                for line in process.stdout or ():
                    if not line.startswith("{"):  # libtpu, too, writes here
                        continue
                    record = json.loads(line)
                    stage = f"stage {len(found)} on {topology.name}"
                    if "compiling" in record:
                        said(f"{stage}: compiling, which takes minutes")
                        continue
                    known = record.pop("known", False)
                    found.append(one := _read(record))
                    if "passed_over" not in record:
                        took = f"{one.seconds:.0f} s to compile" if one else "not compiled yet"
                        said(f"{stage}: {'compiled before' if known else took}")
            except BaseException:  # who interrupts this does not wait for minutes
                process.kill()
                raise
            if process.wait():
                errors.seek(0)
                last = [line for line in errors.read().splitlines() if line.strip()][-1:]
                raise UserError(f"the compiler of TPUs failed for {topology.name}: {''.join(last)[:300]}")
    return found


def _read(record: dict[str, Any]) -> Compiled | None:
    if not record or "passed_over" in record:
        return None
    made = record.pop("collectives", None)
    return Compiled(**record, collectives=None if made is None else tuple(hlo.Collective(**one) for one in made))


def needed(message: str) -> int | None:
    """The bytes that a program wanted, in the compiler's words of what does not fit; None where it says something else.

    The words are those of libtpu 0.0.42 and 0.0.51, with and without what the program's parts take.
    """
    for pattern in (
        r"Total hbm usage >= ([\d.]+)([KMGT]?)",
        r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm",
        r"total memory required for [^(]*\(([\d.]+)([KMGT]?)\) exceeds",
    ):
        if match := re.search(pattern, message):
            return int(float(match[1]) * _UNITS[match[2]])
    return None


def _one(lowered: Any, devices: int) -> dict[str, Any]:
    """The record of a lowered step: compiled, or what it would have needed."""
    import jax

    began = time.monotonic()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) or (wanted := needed(str(error))) is None:
            raise
        return {"seconds": time.monotonic() - began, "needed": wanted}
    memory = program.memory_analysis()
    try:
        found = [dataclasses.asdict(one) for one in hlo.collectives(program.as_text(), devices)]
    except jax.errors.JaxRuntimeError:  # libtpu 0.0.51 could not read back some of its own programs for a v6e
        found = None
    return {
        "seconds": time.monotonic() - began,
        # What goes out in place of what came in takes no memory of its own.
        "arguments": memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "collectives": found,
    }


def devices(topology: chips.Topology) -> list[Any]:
    """The slice's devices as the compiler describes them; only in a process of its own, with ENVIRONMENT."""
    from jax.experimental import topologies

    # A host has 2x2 chips, unless the slice is one.
    host = {"chips_per_host_bounds": (1, 1, 1)} if topology.chips == 1 else {}
    described = topologies.get_topology_desc(
        platform="tpu", topology_name=topology.name, chip_config_name=topology.chip.configuration, **host
    )
    return described.devices


def main(file: str, slice_name: str, folder: str, mode: str = "compile") -> None:
    """Print the record of every stage of a config, {} where it is not to be compiled and was not."""
    import jax

    from bertzoo.planning import step
    from bertzoo.train import sharding

    recipe, topology = loader.load(recipe_class(file), [file], []), chips.parse(slice_name)
    mesh = step.checked(recipe, sharding.make_mesh(recipe.mesh, devices(topology)))
    versions = (jax.__version__, importlib.metadata.version("libtpu"), topology.name)
    shown = step.planned(recipe)
    for index in range(len(recipe.stages)):
        if index not in shown:
            print(json.dumps({"passed_over": True}), flush=True)
            continue
        lowered = step.lower(recipe, index, mesh)
        name = cache.key(lowered.as_text(), *versions)
        record = cache.read(Path(folder), name)
        if record is not None:
            print(json.dumps({**record, "known": True}), flush=True)
        elif mode == "compile":
            print(json.dumps({"compiling": True}), flush=True)
            record = _one(lowered, topology.devices)
            cache.write(Path(folder), name, record)
            print(json.dumps(record), flush=True)
        else:
            print(json.dumps({}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
