"""Format a plan as text for a terminal and as JSON."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from bertzoo.planning.chips import GIB
from bertzoo.planning.estimate import ASSUMPTIONS, RunPlan, StagePlan

_LAYER = re.compile(r"\blayers_(\d+)\b")


def plan_to_json(name: str, plan: RunPlan) -> dict[str, Any]:
    """Return all fields of a plan and its computed totals as JSON data; name: the config's name."""
    fields = {"name": name, **dataclasses.asdict(plan), "assumptions": list(ASSUMPTIONS)}
    for stage, stage_fields in zip(plan.stages, fields["stages"], strict=True):
        stage_fields["estimated"]["total"] = stage.estimated.total
        stage_fields["roofline"] |= {"seconds": stage.roofline.seconds, "bound": stage.roofline.bound}
        if stage.compiled is not None:
            stage_fields["compiled"] |= {"total": stage.compiled.total, "fits": stage.compiled.fits}
    return fields


def plan_to_text(name: str, plan: RunPlan) -> str:
    """Return a plan as text for a terminal; name: the config's name."""
    mesh = " ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    lines = [f"{name} on {plan.topology}: {plan.chips} chips, {plan.devices} devices, mesh {mesh}"]
    lines += [f"  {line}" for line in [*filter(None, [plan.note]), *fold_layers(plan.fallbacks)]]
    for stage in plan.stages:
        title = f"stage {stage.index}" + (f" ({stage.name})" if stage.name else "")
        lines += ["", f"{title}: {stage.steps:,} steps of {stage.batch_size:,} rows of {stage.max_length} tokens"]
        lines += [f"  {line}" for line in _stage_lines(stage)]
    best, worst = plan.chip_hours
    lines += ["", "whole run"]
    lines += [f"  {_duration(best, worst, 'chip-')}, {_duration(best / plan.chips, worst / plan.chips)}"]
    if plan.dollars is not None:
        cheap = plan.dollars[1] < 0.01
        lines += ["  under 0.01 dollars" if cheap else f"  {' to '.join(map(_rounded, plan.dollars))} dollars"]
    lines += [f"  checkpoint: {plan.checkpoint_bytes / 1e9:.2f} GB"]
    lines += [f"  training operations: {plan.model_flops:.3g} (matrix products; backward costs twice forward)"]
    lines += ["", "assumed", *(f"  {line}" for line in ASSUMPTIONS)]
    if plan.not_compiled:
        lines += ["", f"Without the TPU compiler, activations are a bound: {plan.not_compiled}"]
    return "\n".join(lines)


def fold_layers(lines: Iterable[str]) -> list[str]:
    """Merge lines that differ only in the number of a layer, which becomes a list such as layers_0,1,2."""
    numbers: dict[str, list[str]] = {}
    for line in lines:
        numbers.setdefault(_LAYER.sub("layers_*", line, count=1), []).extend(_LAYER.findall(line)[:1])
    return [line.replace("layers_*", f"layers_{','.join(layers)}", 1) for line, layers in numbers.items()]


def _stage_lines(stage: StagePlan) -> Iterable[str]:
    parts = f" in {stage.accumulate} microbatches" if stage.accumulate > 1 else ""
    yield f"rows of a device: {stage.rows}{parts}"
    memory, compiled = stage.estimated, stage.compiled
    exact = {kind: size for kind, size in dataclasses.asdict(memory).items() if kind != "activations"}
    yield "memory of a device, exact: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in exact.items())
    yield f"  = {_gib(memory.exact)} of {_gib(stage.capacity)} GiB"
    yield f"  activations: at most {_gib(memory.activations)} GiB, or {_gib(memory.total)} GiB with the exact bytes"
    if compiled is not None and compiled.total is None:
        yield f"memory of a device, compiled: needs {_gib(compiled.wanted)} of {_gib(stage.capacity)} GiB"
    elif compiled is not None:
        kinds = {"arguments": compiled.arguments, "temporaries": compiled.temporaries, "program": compiled.code}
        yield "memory of a device, compiled: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in kinds.items())
        yield f"  = {_gib(compiled.total)} of {_gib(stage.capacity)} GiB"
    yield f"{ {True: 'it fits', False: 'IT DOES NOT FIT', None: 'IT MAY NOT FIT'}[stage.fits] }: {stage.advice}"
    for one in (compiled.collectives or ()) if compiled is not None else ():
        yield (
            f"{one.kind} over {one.group} devices: {one.count} a step, {one.size / 1e6:,.1f} MB, "
            f"a device sends {one.sent / 1e6:,.1f} MB"
        )
    if compiled is not None and compiled.accessed is not None:
        yield f"memory traffic of a step as the compiler counts it: {compiled.accessed / 1e9:,.2f} GB"
    yield (
        f"operations of a step: {stage.model_flops:.3g} of the model, {stage.computed_flops:.3g} computed, "
        f"{stage.padded_flops:.3g} with padding"
    )
    line = stage.roofline
    yield (
        f"by its roofline a step takes at least {line.seconds * 1e3:.2f} ms: compute {line.compute * 1e3:.2f}, memory "
        f"{line.memory * 1e3:.2f}, interconnect {line.interconnect * 1e3:.2f}"
    )
    best, worst = stage.step_seconds
    yield f"steps a second: {1 / worst:.3g} to {1 / best:.3g}"


def _duration(best: float, worst: float, kind: str = "") -> str:
    units = {"hours": 1, "minutes": 60, "seconds": 3600}
    unit = next((unit for unit, parts in units.items() if worst * parts >= 1), "seconds")
    return f"{_rounded(best * units[unit])} to {_rounded(worst * units[unit])} {kind}{unit}"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
