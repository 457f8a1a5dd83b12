"""A plan in words: for a person at a terminal, for a program, and as a row of a page."""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from bertzoo.planning.chips import GIB
from bertzoo.planning.estimate import ASSUMED, Plan, StagePlan
from bertzoo.planning.hlo import Collective

HEAD = (
    "config",
    "slice",
    "stage",
    "rows",
    "parameters + optimizer + teacher + gradients + activations + temporaries + program + batch = estimated, MiB",
    "compiled, MiB",
    "estimated / compiled",
    "fits",
    "most rows",
    "padded / computed",
    "least time of a step, ms (bound)",
    "steps/s",
    "chip-hours",
)

_OPENING = """# Plans

What every shipped recipe takes on a TPU slice, at its paper's own batch size: made by `make plans`, which compiles the
real step of every stage for a slice that is not there, with the compiler that a run on it would use
({compiler}). `bertzoo plan CONFIG --topology=KIND:SHAPE` says the same of any config, and more.

## Memory and time

Memory is of one device at the worst moment of a step. {progress}

- rows: of the batch, on one device at a time; most rows: how many its memory would hold, by the estimate.
- estimated: without the compiler, from the shapes and a model of what it keeps; compiled: what the compiler says that
  the step takes, or would have taken where it does not fit. "not yet": `make plans` has not come to it.
- fits: the device's memory that a program may use is {capacities}.
- padded / computed: operations of the matrix products once padded to the chip's matrix unit, over those asked for.
- least time of a step: the largest of what computing, memory and interconnect need; the bound says which it is.
- steps/s, chip-hours: at worst and at best, by what is assumed at the end of this page; chip-hours are the whole run's.
"""
SPLIT = (
    "fsdp and tensor: the estimate is modelled on what the compiler made of 1 to 3 layers on 4 devices, where memory "
    "is within 10% and what is sent within 25%; deeper models and larger meshes have not been compared"
)
_MEASURED = """
## Meshes that split parameters

All plans above are of meshes of `data` alone. What `mesh.fsdp` and `mesh.tensor` do to a step is modelled on these,
compiled with libtpu 0.0.42.1 for v5e:2x2, their stage 0 with other layers and batch sizes:

| config | layers | batch | mesh | estimated, MiB | compiled, MiB | estimated / compiled | MB a device sends, estimated | compiled |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| bert_base | 1 | 256 | fsdp=4 | 958 | 939 | 1.02 | 439 | 512 |
| bert_base | 1 | 256 | fsdp=2 tensor=2 | 921 | 904 | 1.02 | 547 | 673 |
| bert_base | 2 | 256 | data=2 tensor=2 | 870 | 935 | 0.93 | 445 | 444 |
| bert_small | 1 | 512 | fsdp=4 | 569 | 559 | 1.02 | 40 | 40 |
| bert_small | 3 | 512 | fsdp=4 | 900 | 943 | 0.95 | 47 | 47 |
| bert_small | 1 | 64, of 512 tokens | data=2 fsdp=2 | 370 | 363 | 1.02 | 39 | 40 |
| squeezebert | 1 | 256 | fsdp=4 | 994 | 902 | 1.10 | 370 | 486 |

`tensor` is Megatron-LM's split: what lies between the two maps of a layer is in parts, the second map's result and the
first one's gradient are summed. Under `fsdp` parameters are gathered as they are used and their gradients stay in
parts. With a sentence loss the compiler also turns the gradients of hidden states from rows to columns and back
(all-to-all), which is more than half of what is sent; without one (bert_small) it does not. Deeper models and larger
meshes have not been compared.
"""  # noqa: E501, a row of a table
_LAYER = re.compile(r"\blayers_(\d+)\b")
_NEAR, _NEAR_BYTES = 0.15, 32 << 20  # the estimate's distance from the compiler's figure


def as_json(name: str, plan: Plan, missing: str | None) -> dict[str, Any]:
    """All of a plan, with the sums that its classes make; `missing` says why there is nothing of the compiler."""
    made = {"name": name, **dataclasses.asdict(plan), "assumptions": assumed(plan), "not_compiled": missing}
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
    lines += [f"  {line}" for line in folded(plan.fallbacks)]
    for stage in plan.stages:
        name = f" ({stage.name})" if stage.name else ""
        size = f"{stage.steps:,} steps of {stage.batch_size:,} rows of {stage.max_length} tokens"
        lines += ["", f"stage {stage.index}{name}: {size}"]
        lines += [f"  {line}" for line in _stage(stage)]
    lines += ["", "whole run", *(f"  {line}" for line in _run(plan))]
    lines += ["", "assumed", *(f"  {line}" for line in assumed(plan))]
    if missing:
        lines += ["", f"Memory and collectives are estimates: {missing}."]
    return "\n".join(lines)


def folded(lines: Iterable[str]) -> list[str]:
    """The lines, with those once that say the same of several layers, as of layers_0 … layers_11."""
    found: dict[tuple[str, ...], list[int]] = {}
    for line in lines:
        before, *number = _LAYER.split(line, maxsplit=1)
        found.setdefault((before, *number[1:]), []).extend(map(int, number[:1]))
    return [_layers(*words, numbers=sorted(numbers)) for words, numbers in found.items()]


def _layers(before: str, after: str = "", *, numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    names = (" … ".join(f"layers_{end}" for end in dict.fromkeys((run[0], run[-1]))) for run in runs)
    return f"{before}{', '.join(names)}{after}"


def assumed(plan: Plan) -> list[str]:
    """What the figures of a plan rest on."""
    return [*ASSUMED, SPLIT] if max(plan.mesh["fsdp"], plan.mesh["tensor"]) > 1 else list(ASSUMED)


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
    if plan.electra_flops is not None:
        yield f"as ELECTRA's authors count them: {plan.electra_flops:.3g}{printed}{note}"


def rows(name: str, plan: Plan) -> Iterable[tuple[str, ...]]:
    """The rows of a table under HEAD, one for each stage; the chip-hours are the run's."""
    for stage in plan.stages:
        memory, made = stage.estimated, stage.compiled
        kinds = (
            memory.parameters,
            memory.optimizer,
            memory.teacher,
            memory.gradients,
            memory.activations,
            memory.temporaries,
        )
        compiled = "not yet" if made is None else _mib(made.total if made.fits else made.needed)
        best, worst = stage.step_seconds
        yield (
            name,
            plan.topology,
            str(stage.index),
            f"{stage.rows:,}",
            f"{' + '.join(_mib(size) for size in (*kinds, memory.program, memory.batch))} = {_mib(memory.total)}",
            compiled,
            _ratio(stage),
            f"{'yes' if stage.fits else 'no'}{'' if made else ', by the estimate'}",
            f"{stage.largest_rows:,}",
            f"{stage.padded_flops / stage.computed_flops:.2f}",
            f"{_few(stage.roofline.seconds * 1e3)} ({stage.roofline.bound})",
            f"{_few(1 / worst)} to {_few(1 / best)}",
            "" if stage.index else f"{_few(plan.chip_hours[0])} to {_few(plan.chip_hours[1])}",
        )


def markdown(plans: Sequence[tuple[str, Plan, str]], compiler: str) -> str:
    """The page of many plans: (config, plan, what another slice said of it, if anything); `compiler`: its version."""
    stages = [
        (f"`{name}` on {plan.topology}, stage {stage.index}", stage) for name, plan, _ in plans for stage in plan.stages
    ]
    chips = {plan.topology.partition(":")[0]: _gib(stage.capacity) for _, plan, _ in plans for stage in plan.stages}
    opening = _OPENING.format(
        compiler=compiler,
        progress=_progress([stage for _, stage in stages]),
        capacities=", ".join(f"{size} GiB on {chip}" for chip, size in chips.items()),
    )
    lines = [opening, *_table(HEAD, [row for name, plan, _ in plans for row in rows(name, plan)])]
    if over := [f"- {where}: {stage.advice}." for where, stage in stages if not stage.fits]:
        lines += ["", "What does not fit, and what would make it (by the estimate):", "", *over]
    if refused := [f"- `{name}`: {said}" for name, _, said in plans if said]:
        lines += ["", "Not on the slice that the others are on, where a run would say:", "", *refused]
    lines += [*_MEASURED.splitlines(), "", "## Operations of whole runs", ""]
    lines += _table(
        ("config", "ours", "as ELECTRA counts", "ConvBERT prints", "of", "checkpoint, GB"),
        [
            (
                name,
                f"{plan.model_flops:.2e}",
                "" if plan.electra_flops is None else f"{plan.electra_flops:.2e}",
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
            (name, plan.topology, str(stage.index), one.kind, *_numbers(one))
            for name, plan, _ in plans
            for stage in plan.stages
            for one in ((stage.compiled.collectives or ()) if stage.compiled is not None else ())
        ],
    )
    return "\n".join([*lines, "", "## Assumed", "", *(f"- {line}" for line in ASSUMED), ""])


def _progress(stages: Sequence[StagePlan]) -> str:
    """How many of the steps were compiled, and how near the estimates are."""
    done = [stage for stage in stages if stage.compiled is not None]
    pairs = [(one.estimated.total, one.compiled.total) for one in done if one.compiled and one.compiled.total]
    near = sum(abs(estimated - made) <= max(_NEAR * made, _NEAR_BYTES) for estimated, made in pairs)
    words = f"{len(done)} of {len(stages)} steps have been compiled"
    if not pairs:
        return f"{words}."
    close = f"the estimate is within {_NEAR * 100:.0f} % or {_mib(_NEAR_BYTES)} MiB of {near}"
    return f"{words}; of the {len(pairs)} of these that fit, {close}."


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def _numbers(one: Collective) -> tuple[str, ...]:
    return str(one.group), str(one.count), f"{one.size / 1e6:,.1f}", f"{one.sent / 1e6:,.1f}"


def _ratio(stage: StagePlan) -> str:
    total = None if stage.compiled is None else stage.compiled.total
    return "" if total is None else f"{stage.estimated.total / total:.2f}"


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / (1 << 20):,.0f}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
