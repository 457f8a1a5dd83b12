"""A plan in words: for a person at a terminal, for a program, and as a row of a page."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from bertzoo.plan.chips import GIB
from bertzoo.plan.estimate import ASSUMED, Plan, StagePlan
from bertzoo.plan.hlo import Collective

HEAD = (
    "config",
    "slice",
    "stage",
    "rows a device",
    "memory, GiB: parameters + optimizer + gradients + activations + temporaries + program (+ batch) = estimated",
    "compiled",
    "estimated / compiled",
    "fits",
    "most rows",
    "padded / computed",
    "roofline of a step, ms (bound)",
    "steps/s",
    "chip-hours",
)

_OPENING = """# Plans

What every shipped recipe takes on a TPU slice, at its paper's own batch size: made by `make plans`, which compiles the
real step of every stage with TPUs' own compiler (libtpu) for a slice that is not there. `bertzoo plan CONFIG
--topology=KIND:SHAPE` says the same of any config, and more. Memory is of one device at the worst moment of a step;
"estimated" needs no compiler, and an empty "compiled" has not been compiled. "Most rows" is by the estimate.
"""


def as_json(name: str, plan: Plan) -> dict[str, Any]:
    """All of a plan, with the sums that its classes make."""
    made = {"name": name, **dataclasses.asdict(plan), "assumptions": assumed(plan)}
    for stage, found in zip(plan.stages, made["stages"], strict=True):
        found["estimated"]["total"] = stage.estimated.total
        found["roofline"] |= {"seconds": stage.roofline.seconds, "bound": stage.roofline.bound}
        if stage.compiled is not None:
            found["compiled"] |= {"total": stage.compiled.total, "fits": stage.compiled.fits}
    return made


def as_text(name: str, plan: Plan, missing: str | None) -> str:
    """A plan for a person; `missing` says why there is nothing of the compiler."""
    mesh = " ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    lines = [f"{name} on {plan.topology}: {plan.chips} chips, {plan.devices} devices, mesh {mesh}"]
    lines += [f"  {line}" for line in plan.fallbacks]
    for index, stage in enumerate(plan.stages):
        lines += ["", f"stage {index}: {stage.steps:,} steps of {stage.batch_size:,} rows of {stage.max_length} tokens"]
        lines += [f"  {line}" for line in _stage(stage)]
    lines += ["", "whole run", *(f"  {line}" for line in _run(plan))]
    lines += ["", "assumed", *(f"  {line}" for line in assumed(plan))]
    if missing:
        lines += ["", f"Memory and collectives are estimates: {missing}."]
    return "\n".join(lines)


def assumed(plan: Plan) -> list[str]:
    """What the figures of a plan rest on."""
    whole = "estimated memory: arrays that the mesh axis tensor would split are counted whole"
    return [*ASSUMED, whole] if plan.mesh["tensor"] > 1 else list(ASSUMED)


def _stage(stage: StagePlan) -> Iterable[str]:
    parts = f" in {stage.accumulate} microbatches" if stage.accumulate > 1 else ""
    yield f"rows of a device: {stage.rows}{parts}; at most {stage.largest_rows} fit by the estimate"
    kinds = dataclasses.asdict(stage.estimated)
    yield "memory of a device, estimated: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in kinds.items())
    yield f"  = {_gib(stage.estimated.total)} of {_gib(stage.capacity)} GiB"
    made = stage.compiled
    if made is not None and made.total is None:
        yield f"memory of a device, compiled: {_gib(made.needed)} wanted of {_gib(stage.capacity)} GiB"
    elif made is not None:
        found = {"arguments": made.arguments, "temporaries": made.temporaries, "program": made.code}
        yield "memory of a device, compiled: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in found.items())
        yield f"  = {_gib(made.total)} GiB; estimated / compiled {_ratio(stage)}"
    yield f"{'it fits' if stage.fits else 'IT DOES NOT FIT'}: {stage.advice}"
    for one in (made.collectives or ()) if made is not None else ():
        yield (
            f"{one.kind} over {one.group} devices: {one.count} a step, {one.size / 1e6:,.1f} MB, "
            f"of which a device sends {one.sent / 1e6:,.1f} MB"
        )
    yield (
        f"operations of a step: {stage.model_flops:.3g} of the model, {stage.computed_flops:.3g} computed, "
        f"{stage.padded_flops:.3g} with padding"
    )
    line = stage.roofline
    yield (
        f"by its roofline a step takes {line.seconds * 1e3:.2f} ms: compute {line.compute * 1e3:.2f}, memory "
        f"{line.memory * 1e3:.2f}, interconnect {line.interconnect * 1e3:.2f}"
    )
    best, worst = stage.step_seconds
    yield f"steps a second: {1 / worst:.3g} to {1 / best:.3g}"


def _run(plan: Plan) -> Iterable[str]:
    best, worst = plan.chip_hours
    yield f"{best:,.0f} to {worst:,.0f} chip-hours, {best / plan.chips:,.1f} to {worst / plan.chips:,.1f} hours"
    if plan.dollars is not None:
        yield f"{plan.dollars[0]:,.0f} to {plan.dollars[1]:,.0f} dollars"
    yield f"checkpoint: {plan.checkpoint_bytes / 1e9:.2f} GB"
    yield f"training operations: {plan.model_flops:.3g} (products, forward and twice that backward)"
    printed = "" if plan.published_flops is None else f"; ConvBERT prints {plan.published_flops:.2g}"
    note = f" ({plan.published_note})" if plan.published_note else ""
    yield f"as ELECTRA's authors count them: {plan.electra_flops:.3g}{printed}{note}"


def rows(name: str, plan: Plan) -> Iterable[tuple[str, ...]]:
    """The rows of a table under HEAD, one for each stage; the chip-hours are the run's."""
    for index, stage in enumerate(plan.stages):
        memory, made = stage.estimated, stage.compiled
        kinds = (memory.parameters, memory.optimizer, memory.gradients, memory.activations, memory.temporaries)
        compiled = "" if made is None else _gib(made.total if made.fits else made.needed)
        best, worst = stage.step_seconds
        yield (
            name,
            plan.topology,
            str(index),
            str(stage.rows),
            f"{' + '.join(_gib(size) for size in (*kinds, memory.program))} = {_gib(memory.total)}",
            compiled,
            _ratio(stage),
            "yes" if stage.fits else "no",
            str(stage.largest_rows),
            f"{stage.padded_flops / stage.computed_flops:.2f}",
            f"{stage.roofline.seconds * 1e3:.1f} ({stage.roofline.bound})",
            f"{1 / worst:.3g} to {1 / best:.3g}",
            "" if index else f"{plan.chip_hours[0]:,.0f} to {plan.chip_hours[1]:,.0f}",
        )


def markdown(plans: Sequence[tuple[str, Plan, str]]) -> str:
    """The page of many plans: (config, plan, what another slice said of it, if anything)."""
    lines = [_OPENING, *_table(HEAD, [row for name, plan, _ in plans for row in rows(name, plan)])]
    ratios = [
        stage.estimated.total / stage.compiled.total
        for _, plan, _ in plans
        for stage in plan.stages
        if stage.compiled is not None and stage.compiled.total
    ]
    if ratios:
        near = sum(abs(ratio - 1) <= 0.15 for ratio in ratios)
        lines += [
            "",
            f"Of {len(ratios)} compiled steps {near} are within 15 % of the estimate; the quotients range from",
        ]
        lines[-1] += f" {min(ratios):.2f} to {max(ratios):.2f}."
    if refused := [f"- `{name}`: {said}" for name, _, said in plans if said]:
        lines += ["", "Not on the slice that the others are on, where a run would say:", "", *refused]
    lines += ["", "## Operations of whole runs", ""]
    lines += _table(
        ("config", "ours", "as ELECTRA counts", "ConvBERT prints", "of", "checkpoint, GB"),
        [
            (
                name,
                f"{plan.model_flops:.2e}",
                f"{plan.electra_flops:.2e}",
                "" if plan.published_flops is None else f"{plan.published_flops:.1e}",
                plan.published_note,
                f"{plan.checkpoint_bytes / 1e9:.2f}",
            )
            for name, plan in {name: plan for name, plan, _ in reversed(plans)}.items()
        ],
    )
    lines += ["", "## What the devices send one another in a step", ""]
    lines += _table(
        ("config", "slice", "stage", "operation", "devices", "count", "MB", "MB a device sends"),
        [
            (name, plan.topology, str(index), one.kind, *_numbers(one))
            for name, plan, _ in plans
            for index, stage in enumerate(plan.stages)
            for one in ((stage.compiled.collectives or ()) if stage.compiled is not None else ())
        ],
    )
    return "\n".join([*lines, "", "## Assumed", "", *(f"- {line}" for line in ASSUMED), ""])


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _numbers(one: Collective) -> tuple[str, ...]:
    return str(one.group), str(one.count), f"{one.size / 1e6:,.1f}", f"{one.sent / 1e6:,.1f}"


def _ratio(stage: StagePlan) -> str:
    total = None if stage.compiled is None else stage.compiled.total
    return "" if total is None else f"{stage.estimated.total / total:.2f}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
