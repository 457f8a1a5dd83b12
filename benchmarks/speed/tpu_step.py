"""A training step on a TPU, by its compiler's account: bytes moved by part of the step, memory, padding, collectives.

    .venv-tpu/bin/python -m benchmarks speed.tpu_step

libtpu compiles each step for slices of four chips that are absent, 32 rows a device; nothing runs. A step takes minutes
to compile the first time (--cache keeps the results).
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ["JAX_PLATFORMS"] = "cpu"

from benchmarks.lib import results
from bertzoo.core import config as loader
from bertzoo.core.kinds import config_class
from bertzoo.planning import cache, chips, compiled, estimate, step
from bertzoo.planning.compiled import CompiledStep
from bertzoo.planning.traffic import REVISION

COUNT = f"bytes by revision {REVISION} of planning/traffic.py"
SLICES = ("v5e:2x2", "v6e:2x2")
KEY = ("step", "tokens", "chip")
COMPARED = ("HBM, GB", "counted by the compiler, GB", "peak memory, MiB")
BATCH = 128  # rows of a step, 32 on each device
FSDP = ", fsdp=4"  # in the name of a step whose devices share parameters and updates


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
_FSDP = ("mesh.fsdp", "4")
_TWO = (*_ROWS, ("model.layers", "2"))
_CONVOLUTION = ("compute.grouped", "convolution")
_LABELS = {_FSDP: FSDP, _TWO[-1]: ", 2 layers", _CONVOLUTION: ", grouped convolution"}
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
    Case("squeezebert", 0, 128, (*_TWO, _CONVOLUTION)),
)


def account(case: Case, slice_: str, folder: Path, cached_only: bool) -> tuple[CompiledStep, int, int] | None:
    """Return a step's figures, its operations, and those with padding; None without a result if `cached_only`.

    Exits if the compiler could not print the program, whose bytes are then unknown.
    """
    recipe = loader.load(config_class(case.config), [case.config], case.options)
    topology = chips.parse_topology(slice_)
    name = f"{case.name} at {case.length}"
    steps = compiled.compile_stages(
        recipe,
        topology,
        folder,
        lambda line: print(f"{name}: {line}", flush=True),
        cached_only=cached_only,
        stage=case.stage,
    )
    if case.stage not in steps:
        if cached_only:
            return None
        sys.exit(f"{name} on {slice_}: libtpu compiled no step; its messages are above")
    if steps[case.stage].traffic is None:
        sys.exit(f"{name} on {slice_}: the compiled program has no account of its bytes; remove it from --cache")
    built = step.build_on_slice(recipe, topology)
    plan = estimate.plan_stage(recipe, built, case.stage, topology, steps[case.stage])
    return steps[case.stage], plan.computed_flops // topology.devices, plan.padded_flops // topology.devices


def row(step: CompiledStep, flops: int, padded: int) -> dict[str, Any]:
    """The figures of a device in one step."""
    assert step.traffic is not None
    return {
        "HBM, GB": round(step.traffic.total / 1e9, 2),
        "counted by the compiler, GB": round(step.traffic.accessed / 1e9, 1),
        "peak memory, MiB": round(step.wanted / 2**20),
        "TFLOPs": round(flops / 1e12, 2),
        "with padding": round(padded / 1e12, 2),
        "sent, MB": round(sum(one.sent for one in step.collectives or ()) / 1e6),
    }


def comparison(earlier: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the earlier program's figures beside today's, which are None for steps that are not in `steps`.

    A step that shares the updates has a row of its own, beside the earlier program that does not.
    """
    today = {tuple(one[name] for name in KEY): one for one in steps}
    rows = []
    for one in earlier:
        for suffix in ("", FSDP):
            key = {name: one[name] for name in KEY} | {"step": one["step"] + suffix}
            now = today.get(tuple(key.values()), {})
            pairs = [{f"{name}, before": one[name], f"{name}, now": now.get(name)} for name in COMPARED]
            if now or not suffix:
                rows.append(key | pairs[0] | pairs[1] | pairs[2])
    return rows


def main() -> None:
    """Compile every step and write the tables."""
    parser = results.parser("tpu_step", __doc__)
    parser.add_argument("--cache", help="the folder of compiled steps (default: ~/.cache/bertzoo)")
    parser.add_argument("--cached", action="store_true", help="compile nothing; leave out steps without a result")
    parser.add_argument("--slices", default=",".join(SLICES), help="(default: %(default)s)")
    parser.add_argument("--cases", default=",".join(map(str, range(len(CASES)))), help="(default: %(default)s)")
    parser.add_argument("--before", type=Path, help="an earlier program's result, to compare with")
    args: argparse.Namespace = parser.parse_args()
    numbers = args.cases.split(",")
    if unknown := set(numbers) - set(map(str, range(len(CASES)))):
        parser.error(f"--cases: {', '.join(sorted(unknown))} is no number from 0 to {len(CASES) - 1}")
    steps, parts = [], []
    for slice_ in args.slices.split(","):
        for case in (CASES[int(number)] for number in numbers):
            figures = account(case, slice_, cache.result_folder(args.cache), args.cached)
            if figures is None:
                continue
            key = {"step": case.name, "tokens": case.length, "chip": slice_.partition(":")[0]}
            steps.append(key | row(*figures))
            traffic = figures[0].traffic
            assert traffic is not None
            hbm = {f"{part}, GB": round(size / 1e9, 2) for part, size in traffic.hbm.items()}
            parts.append(key | hbm | {"on the chip, GB": round(traffic.vmem / 1e9, 1)})
    context = [results.packages("jax", "libtpu"), f"commit {results.commit()}", COUNT]
    measured = {"steps": steps, "parts": parts}
    if args.before:
        earlier = json.loads(args.before.read_text(encoding="utf-8"))
        if COUNT not in earlier["context"]:
            parser.error(f"--before: {args.before} lacks {COUNT!r} in its context; make it anew to compare bytes")
        measured |= {"cuts": comparison(earlier["tables"]["steps"], steps), "parts_before": earlier["tables"]["parts"]}
    results.write(args.out, context, measured)
