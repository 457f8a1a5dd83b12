"""Compile a run's training steps for a TPU slice, on a machine without TPUs, and read the compiler's measurements.

The compiler, libtpu, runs in a child process, so that its environment variables and its lock do not affect the caller.
`python -m bertzoo.planning.compiled CONFIG SLICE FOLDER` prints progress and results as JSON objects, one per line.
FOLDER keeps the results, because a step takes minutes to compile, and JAX's own cache does not hold programs for
devices that this machine lacks.
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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

from bertzoo.core import atomic, paths
from bertzoo.core import config as loader
from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json, read_json
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import config_class
from bertzoo.planning import chips
from bertzoo.runs.configs import Recipe

_LOG = logging.getLogger(__name__)

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
_REVISION = "3"  # in the keys of stored results; raise it if the same program gets other measurements or fields
# Bytes that a device sends in the best algorithm on a ring of n devices, per byte of the operation's result.
_SENT = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,  # relative to the result, 1/n of the input
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
}
ELEMENT_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f32": 4, "s32": 4, "u32": 4}
ELEMENT_BYTES |= {"f64": 8, "s64": 8, "u64": 8}

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(_SENT)})(-start)?\(")
# Between slices, libtpu hands an array to its runtime, which sums it over the devices of the same index.
_BETWEEN_SLICES = re.compile(r'= \((.*?), u32\[\], .* send\(.*_megascale_target="\{(\S+?)\}.*_transfer_type="(\w+)"')
BETWEEN_SLICES = " between slices"
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_LOOP = re.compile(r" while\(.*condition=%?([\w.\-]+), body=%?([\w.\-]+)")
_LIMIT = re.compile(r"= s32\[\]\S* constant\((\d+)\)")
_CALLS = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective:
    """Totals for a step's collectives of one kind, such as all-reduce, that work in groups of `group` devices.

    A kind that ends in BETWEEN_SLICES uses the network between `group` slices.

    count: number of these collectives.
    size: bytes of their results.
    sent: bytes that a device sends for these collectives, with the best algorithm on a ring.
    """

    kind: str
    group: int
    count: int
    size: int
    sent: int


def find_collectives(text: str, devices: int) -> list[Collective]:
    """Return a compiled program's collectives, each once per iteration of a loop, the largest traffic first."""
    bodies = computations(text)
    runs, counted = count_runs(text, bodies), set()
    totals = defaultdict(lambda: [0, 0, 0.0])
    for name, lines in bodies.items():
        for line in lines:
            between = _BETWEEN_SLICES.search(line)
            if not (match := between or _COLLECTIVE.search(line)):
                continue
            if between:
                shape, slices, kind = between[1], [int(number) for number in re.findall(r"\d+", between[2])], between[3]
                kind, group, start = kind.lower().replace("_", "-"), slices[-1] - slices[0] + 1, False
            else:
                (shape, kind, start), group = match.groups(), _group_size(line, devices)
            label = kind + BETWEEN_SLICES * bool(between)
            # An asynchronous collective is printed once for each operation that overlaps it, on one channel.
            channel = re.search(r"channel_id=(\d+)", line)
            if channel and (label, channel[1]) in counted:
                continue
            counted.update([(label, channel[1])] if channel else ())
            size = _result_bytes(shape, kind, bool(start))
            total = totals[label, group]
            for index, value in enumerate((1, size, size * _SENT[kind](group))):
                total[index] += value * runs.get(name, 1)
    collectives = [
        Collective(kind=kind, group=group, count=int(count), size=int(size), sent=round(sent))
        for (kind, group), (count, size, sent) in totals.items()
    ]
    return sorted(collectives, key=lambda collective: (-collective.sent, collective.kind, collective.group))


def computations(text: str) -> dict[str, list[str]]:
    """Return the lines of each computation by its name."""
    return {name: body.splitlines() for name, body in _COMPUTATION.findall(text)}


def count_runs(text: str, bodies: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return how often a program runs each computation in `bodies`, counting the iterations of all loops around it."""
    runs: dict[str, int] = {}

    def visit(name: str, times: int) -> None:
        if runs.get(name, 0) >= times:
            return
        runs[name] = times
        for line in bodies.get(name, ()):
            loop = _LOOP.search(line)
            for called in _CALLS.findall(line):
                visit(called, times * (_iterations(bodies.get(loop[1], ())) if loop and called == loop[2] else 1))

    if entry := re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE):
        visit(entry[1], 1)
    return runs


def _iterations(condition: Sequence[str]) -> int:
    """Return a loop's iterations: the constant that the lines of its condition count up to, or 1 without one."""
    limits = [match[1] for line in condition if (match := _LIMIT.search(line))]
    return int(limits[0]) if len(limits) == 1 and any("direction=LT" in line for line in condition) else 1


def _result_bytes(shape: str, kind: str, start: bool) -> int:
    """Return the bytes of a collective's results from their `shape` in the program's text.

    start: whether the collective is asynchronous. The shape of an asynchronous all-reduce has only results; that of any
    other asynchronous collective has operands, results and counters, in this order.
    """
    shapes = [(ELEMENT_BYTES.get(name, 0), sizes) for name, sizes in _ARRAY.findall(shape)]
    arrays = [width * math.prod(int(n) for n in sizes.split(",") if n) for width, sizes in shapes]
    if start and kind != "all-reduce":
        arrays = [size for size in arrays if size > 4]
        return sum(arrays[len(arrays) // 2 :])
    return sum(arrays)


def _group_size(line: str, devices: int) -> int:
    if match := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", line):
        sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", match[1])}
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", match[2])
        return math.prod(int(size) if size else sizes[name] for name, size in axes)
    if match := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(match[2])
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(match[1].split(","))
    return 2 if "source_target_pairs" in line else devices


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledStep:
    """The compiler's measurements of one stage's training step; sizes are bytes on one device.

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
    def required(self) -> int:
        """Bytes of memory that the step takes, or would take if it does not fit."""
        return self.total or self.needed or 0


def available() -> bool:
    """Return whether the compiler, libtpu, is installed."""
    return importlib.util.find_spec("libtpu") is not None


def result_folder(folder: Path | str | None = None) -> Path:
    """Return `folder` or, by default, "plans" in the user's cache folder; the folder may not exist yet."""
    return Path(folder).expanduser() if folder else paths.cache_folder("plans")


def result_key(program: str, *versions: str) -> str:
    """Return the SHA-256 of a lowered program and of the versions of jax, libtpu, the slice and the results."""
    return hashlib.sha256("\0".join((*versions, program)).encode()).hexdigest()


def read_result(folder: Path, name: str) -> CompiledStep | None:
    """Return the result that was saved as `name`, or None if its file is missing or damaged."""
    with contextlib.suppress(FileNotFoundError, ValueError, ConfigError):
        return loader.from_dict(CompiledStep, read_json(folder / f"{name}.json"))


def write_result(folder: Path, name: str, result: CompiledStep) -> None:
    """Save a result as `name`.json; creates the folder if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    # Another plan may compile the same step.
    atomic.write_json(folder / f"{name}.json", dataclasses.asdict(result), shared=True)


def compile_stages(recipe: Recipe, topology: chips.Topology, folder: Path) -> dict[int, CompiledStep]:
    """Compile the training steps of the stages in `estimate.planned_stages`; return a CompiledStep by stage index.

    folder: stores results, which later calls read.
    Raises UserError if there is no compiler, or if it fails for a reason other than memory.
    """
    if not available():
        raise UserError(INSTALL)
    results: dict[int, CompiledStep] = {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "config.toml")
        file.write_text(loader.dump(recipe), encoding="utf-8")
        words = ["-m", "bertzoo.planning.compiled", str(file), topology.name, str(folder)]
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
                        results[message["stage"]] = loader.from_dict(CompiledStep, message["result"])
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
    return results


def needed_bytes(message: str) -> int | None:
    """Return the bytes that a program needs if `message` is the compiler's out-of-memory error, else None.

    The patterns match libtpu 0.0.42 and 0.0.51, with and without the table of the program's components.
    """
    for pattern in (
        r"Total hbm usage >= ([\d.]+)([KMGT]?)",
        r"Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm",
        r"total memory required for [^(]*\(([\d.]+)([KMGT]?)\) exceeds",
    ):
        if match := re.search(pattern, message):
            return int(float(match[1]) * 1024 ** " KMGT".find(match[2]))
    return None


def compile_step(lowered: Any, device_count: int) -> CompiledStep:
    """Compile a lowered step; raises the compiler's error unless the step is only too large."""
    import jax

    start = time.monotonic()
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        needed = needed_bytes(str(error))
        if "RESOURCE_EXHAUSTED" not in str(error) or needed is None:
            raise
        return CompiledStep(seconds=time.monotonic() - start, needed=needed)
    return measure(program, device_count, time.monotonic() - start)


def measure(program: Any, device_count: int, seconds: float) -> CompiledStep:
    """Return the compiler's measurements of a program that took `seconds` to compile."""
    import jax

    memory, collectives, accessed = program.memory_analysis(), None, None
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # libtpu 0.0.51 could not print some programs for a v6e
        collectives = tuple(find_collectives(program.as_text(), device_count))
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        accessed = int(program.cost_analysis()["bytes accessed"])
    return CompiledStep(
        seconds=seconds,
        # Outputs that replace donated inputs take no more memory.
        arguments=memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes,
        temporaries=memory.temp_size_in_bytes,
        code=memory.generated_code_size_in_bytes,
        accessed=accessed,
        collectives=collectives,
    )


def slice_devices(topology: chips.Topology) -> list[Any]:
    """Return the devices of all slices as the compiler defines them; the process needs the variables in ENVIRONMENT."""
    from jax.experimental import topologies

    # A host has 2x2 chips, unless the slice is a single chip.
    options: dict[str, Any] = {"chips_per_host_bounds": (1, 1, 1)} if math.prod(topology.shape) == 1 else {}
    options |= {"num_slices": topology.slices} if topology.slices > 1 else {}
    return topologies.get_topology_desc(
        platform="tpu", topology_name=topology.slice_name, chip_config_name=topology.chip.configuration, **options
    ).devices


def main(file: str, slice_name: str, folder: str) -> None:
    """Compile the training steps of a config file; print JSON lines."""
    import jax

    from bertzoo.planning.estimate import planned_stages
    from bertzoo.runs.experiments import build_experiment
    from bertzoo.train import sharding

    recipe, topology = loader.load(config_class(file), [file], []), chips.parse_topology(slice_name)
    built = build_experiment(recipe, sharding.make_mesh(recipe.mesh, slice_devices(topology)))
    versions = (jax.__version__, importlib.metadata.version("libtpu"), topology.name, _REVISION)
    for index in planned_stages(recipe):
        lowered = built.lower(index)
        name = result_key(lowered.as_text(), *versions)
        result = read_result(Path(folder), name)
        if result is not None:
            _send(index, "compiled before", result)
        else:
            _send(index, "compiling, which takes minutes")
            result = compile_step(lowered, topology.devices)
            write_result(Path(folder), name, result)
            _send(index, f"{result.seconds:.0f} s to compile", result)


def _send(stage: int, progress: str, result: CompiledStep | None = None) -> None:
    fields = {"result": dataclasses.asdict(result)} if result else {}
    print(json.dumps({"stage": stage, "progress": progress, **fields}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
