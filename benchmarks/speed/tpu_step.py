"""A training step on a TPU, by its compiler's account: bytes moved by part of the step, memory, padding, collectives.

    .venv-tpu/bin/python -m benchmarks speed.tpu_step

libtpu compiles each step for slices of four chips that are absent, 32 rows a device; nothing runs. A step takes minutes
to compile the first time (--cache keeps the results).
"""

import dataclasses
import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from benchmarks.lib import results
from benchmarks.lib.hbm_traffic import REVISION, Traffic, measure_traffic
from bertzoo.core import config as loader
from bertzoo.core.kinds import config_class
from bertzoo.planning import chips, compiled, estimate
from bertzoo.runs.experiments import build_experiment
from bertzoo.train import sharding

SLICES = ("v5e:2x2", "v6e:2x2")
BATCH = 128  # rows of a step, 32 on each device


class Case(NamedTuple):
    """A stage of a config, at its own length or, for a config of one length, at the length in `options`."""

    config: str
    stage: int
    length: int
    options: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        layer = f", layer {self.stage + 1}" if self.config.endswith("_transfer") else ""
        return self.config + layer + "".join(label for option, label in _LABELS.items() if option in self.options)


_ROWS = (("stages.*.batch_size", str(BATCH)),)
_MOBILE = (*_ROWS, ("stages.*.max_length", "128"))
_TRANSFER = (("transfer.batch_size", str(BATCH)), ("transfer.max_length", "128"))
_FSDP = ("mesh.fsdp", "4")  # devices share parameters and updates
_TWO = (*_ROWS, ("model.layers", "2"))
_LABELS = {_FSDP: ", fsdp=4", _TWO[-1]: ", 2 layers"}  # in the names of steps
CASES = (
    Case("squeezebert", 0, 128, _ROWS),
    Case("squeezebert", 1, 512, _ROWS),
    Case("bert_base", 0, 128, _ROWS),
    Case("bert_base", 1, 512, _ROWS),
    Case("convbert_base", 0, 128, _ROWS),
    Case("mobilebert", 0, 128, _MOBILE),
    Case("mobilebert_transfer", 11, 128, _TRANSFER),
    Case("squeezebert", 0, 128, (*_ROWS, _FSDP)),
    Case("bert_base", 0, 128, (*_ROWS, _FSDP)),
    Case("squeezebert", 0, 128, _TWO),
)


def account(case: Case, slice_: str, folder: Path) -> tuple[dict[str, Any], Traffic]:
    """Return what a device holds and computes in one step, and its traffic; files in `folder` keep them."""
    recipe = loader.load(config_class(case.config), [case.config], case.options)
    topology = chips.parse_topology(slice_)
    built = build_experiment(recipe, sharding.make_mesh(recipe.mesh, compiled.slice_devices(topology)))
    lowered = built.lower(case.stage)
    versions = (jax.__version__, importlib.metadata.version("libtpu"), topology.name, REVISION)
    file = folder / f"traffic-{compiled.result_key(lowered.as_text(), *versions)}.json"
    if file.is_file():
        row, traffic = json.loads(file.read_text(encoding="utf-8"))
        return row, Traffic(**traffic)
    print(f"{case.name} at {case.length} on {slice_}: compiling, which takes minutes", flush=True)
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if compiled.needed_bytes(str(error)) is None:
            raise
        sys.exit(f"{case.name} does not fit on {slice_}. Leave it out with --cases, or the slice with --slices.")
    step = compiled.measure(program, topology.devices, seconds=0.0)
    if step.total is None or step.accessed is None or step.collectives is None:
        sys.exit(
            f"{case.name} on {slice_}: the compiler cannot print or measure the program. Leave it out with --cases."
        )
    traffic = measure_traffic(program.as_text(), step.accessed)
    plan = estimate.plan_stage(recipe, built, case.stage, topology, None)
    row = {
        "HBM, GB": round(traffic.total / 1e9, 2),
        "counted by the compiler, GB": round(traffic.accessed / 1e9, 1),
        "peak memory, MiB": round(step.total / 2**20),
        "TFLOPs": round(plan.computed_flops // topology.devices / 1e12, 2),
        "with padding": round(plan.padded_flops // topology.devices / 1e12, 2),
        "sent, MB": round(sum(one.sent for one in step.collectives) / 1e6),
    }
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([row, dataclasses.asdict(traffic)]), encoding="utf-8")
    return row, traffic


def main() -> None:
    """Compile every step and write the tables."""
    parser = results.parser("tpu_step", __doc__)
    parser.add_argument("--cache", help="the folder of compiled steps (default: ~/.cache/bertzoo)")
    parser.add_argument("--slices", default=",".join(SLICES), help="(default: %(default)s)")
    every = [*map(str, range(len(CASES)))]
    parser.add_argument("--cases", default=",".join(every), help="(default: %(default)s)")
    args = parser.parse_args()
    numbers = results.names(parser, "cases", args.cases, every)
    os.environ |= compiled.ENVIRONMENT  # before libtpu starts
    steps, parts = [], []
    for slice_ in args.slices.split(","):
        for case in (CASES[int(number)] for number in numbers):
            row, traffic = account(case, slice_, compiled.result_folder(args.cache))
            key = {"step": case.name, "tokens": case.length, "chip": slice_.partition(":")[0]}
            steps.append(key | row)
            hbm = {f"{part}, GB": round(size / 1e9, 2) for part, size in traffic.hbm.items()}
            parts.append(key | hbm | {"on the chip, GB": round(traffic.vmem / 1e9, 1)})
    revision = f"bytes by revision {REVISION} of benchmarks/lib/hbm_traffic.py"
    context = [results.packages("jax", "libtpu"), f"commit {results.commit()}", revision]
    results.write(args.out, context, {"steps": steps, "parts": parts})
