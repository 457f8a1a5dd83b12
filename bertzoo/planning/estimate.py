"""Plan a run on a TPU slice: memory (exact for the state, an upper bound for activations), operations, time and cost.

The training step is built for devices that this machine lacks. If the TPU compiler is installed, its results
(planning/compiled.py) replace the bound and the estimated traffic between devices. A plan is printed as text or JSON.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters.partial_eval import dce_jaxpr

from bertzoo.nn.flops import PRODUCTS, operation_flops, operations
from bertzoo.nn.platform import Platform, traced_for
from bertzoo.planning import chips, compiled
from bertzoo.planning.chips import GIB, Topology
from bertzoo.planning.compiled import BETWEEN_SLICES, CompiledStep
from bertzoo.runs.configs import Recipe, Transfer
from bertzoo.runs.experiments import build_experiment
from bertzoo.train import sharding
from bertzoo.train.experiment import Experiment
from bertzoo.train.memory import StepMemory, bytes_of, step_memory

SUBLANES = 8  # rows that go through a matrix unit together
# Model operations per second over the peak: the range of the published runs that docs/plans.md lists.
UTILISATION = (0.15, 0.25)
ASSUMPTIONS = (
    "activations: an upper bound, as if nothing were fused or split by the tensor axis. All values of a device's rows "
    "are alive at once, and all parameters that fsdp splits, a teacher's too, are gathered at once",
    "fits, without the compiler: there is room for the bound and a second copy of parameters and moments. The copy "
    "stands for the program, the padding of arrays and the optimiser's temporaries",
    f"steps/s and chip-hours: the model's operations reach {UTILISATION[0]:.0%} to {UTILISATION[1]:.0%} of the peak, "
    "as published runs of ELECTRA and BERT-base on a TPU v3-8 do, unless the three times below take longer: at best "
    "their maximum, at worst their sum",
    "compute: the matrix products of the forward and backward pass, padded to the matrix unit, at the bfloat16 peak",
    "memory: a step reads everything it holds once and writes parameters and moments once, at full bandwidth; a lower "
    "bound, because arrays that share memory count once",
    "interconnect: the bytes that the collectives send on rings, over all links of a chip at once; between slices, "
    "over a chip's share of the data-centre network",
    "without the compiler: a step holds state and batch. It sends the sums of float32 gradients and one gather of "
    "the arrays that fsdp splits, and nothing for the tensor axis",
)


def padded_flops(jaxpr: core.Jaxpr, width: int) -> tuple[int, int]:
    """Return (operations, padded operations) of the matrix products and convolutions that a jaxpr's results need.

    A multiply-add is 2 operations. In a product (m,k)·(k,n), k is padded to a multiple of the unit's `width`. Of m and
    n, one is padded to a multiple of `width` and the other to a multiple of SUBLANES, whichever way costs less.
    """

    def pad(size: int, tile: int) -> int:
        return -(-size // tile) * tile

    plain = padded = 0
    for _, repeats, equation in operations(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]):
        if equation.primitive.name in PRODUCTS:  # and not a convolution that is spelled out
            times, m, k, n = _product_sizes(equation)
            plain += repeats * operation_flops(equation)
            area = min(pad(m, SUBLANES) * pad(n, width), pad(m, width) * pad(n, SUBLANES))
            padded += repeats * 2 * times * pad(k, width) * area
    return plain, padded


def _product_sizes(equation: core.JaxprEqn) -> tuple[int, int, int, int]:
    """Return (number of products or groups, m, k, n) of the products (m,k)·(k,n); a convolution's m are patches."""
    numbers = equation.params["dimension_numbers"]
    left, right, result = (value.aval.shape for value in (*equation.invars, *equation.outvars))  # type: ignore[attr-defined]
    if equation.primitive.name == "dot_general":
        (contracted, _), (batch, _) = numbers
        times, k = (math.prod(left[axis] for axis in axes) for axes in (batch, contracted))
        return times, math.prod(left) // (times * k), k, math.prod(right) // (times * k)
    groups, outputs = equation.params["feature_group_count"], right[numbers.rhs_spec[0]]
    return groups, math.prod(result) // outputs, math.prod(right) // outputs, outputs // groups


@dataclasses.dataclass(frozen=True)
class AbsentDevice:
    """A stand-in for a device, in a mesh that is used only for its shape."""

    id: int
    process_index: int = 0
    platform: str = "none"
    device_kind: str = "none"
    slice_index: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
    """Minimum seconds of a step on the matrix units (compute), the memory and the interconnect.

    At best they overlap wholly, and the step takes their maximum (`seconds`); at worst it takes their sum.
    """

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        return max(dataclasses.astuple(self))

    @property
    def bound(self) -> str:
        """Name of the field with the most seconds."""
        return max(dataclasses.asdict(self).items(), key=lambda item: item[1])[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepCounts:
    """Operations, memory and traffic of a step, independent of the chip and its speed. Bytes are per device.

    rows, model_flops, computed_flops: as in StagePlan.
    padded_flops: operations with products padded to the matrix unit, by the unit's width.
    sent, between: bytes that a device sends inside a slice and between slices, derived by rule.
    """

    rows: int
    memory: StepMemory
    model_flops: int
    computed_flops: int
    padded_flops: Mapping[int, int]
    sent: int
    between: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """The plan of one training stage. Bytes are per device. Operations are per step, over all devices.

    rows: rows of one microbatch on one device.
    fits: whether the step fits, or None if it was not compiled and the estimates do not decide.
    model_flops: operations in matrix products of the forward and backward pass.
    computed_flops: operations in all matrix products of the step, also recomputed ones.
    padded_flops: computed_flops with products padded to the matrix unit.
    step_seconds: (at best, at worst).
    """

    index: int
    name: str = ""
    steps: int
    batch_size: int
    max_length: int
    accumulate: int
    rows: int
    estimated: StepMemory
    compiled: CompiledStep | None
    capacity: int
    fits: bool | None
    advice: str = ""
    model_flops: int
    computed_flops: int
    padded_flops: int
    roofline: Roofline
    step_seconds: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The plan of a run.

    fallbacks: one sentence for each parameter that the mesh does not divide.
    model_flops: operations of the whole run.
    chip_hours: (at best, at worst).
    dollars: (at best, at worst), or None without a price.
    not_compiled: the reason for missing compiler results, or None.
    note: the assumptions of a plan from `join_plans`; "" in any other plan.
    """

    topology: str
    chips: int
    devices: int
    mesh: dict[str, int]
    fallbacks: list[str]
    stages: tuple[StagePlan, ...]
    checkpoint_bytes: int
    model_flops: float
    chip_hours: tuple[float, float]
    dollars: tuple[float, float] | None
    not_compiled: str | None
    note: str = ""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(plan_to_text('run', self))}</pre>"


def build_on_slice(recipe: Recipe, topology: Topology) -> Experiment:
    """Build the run on all devices; raises ConfigError if they do not fit the mesh, a batch or a parameter."""
    per_slice = topology.devices // topology.slices
    devices = [AbsentDevice(index, slice_index=index // per_slice) for index in range(topology.devices)]
    return build_experiment(recipe, sharding.make_mesh(recipe.mesh, devices))


def planned_stages(recipe: Recipe) -> list[int]:
    """Return the indices of the stages to plan: of the layer-transfer stages the first, middle and last, else all."""
    groups = len(recipe.layer_groups) if isinstance(recipe, Transfer) else 0
    return sorted({0, (groups - 1) // 2, groups - 1} if groups else {}) + list(range(groups, len(recipe.stages)))


def plan(
    recipe: Recipe,
    topology: str,
    *,
    compile_steps: bool = True,
    cache_dir: Path | str | None = None,
    price: float | None = None,
) -> RunPlan:
    """Plan a run on a slice such as "v5e:16x16", as `bertzoo plan` does.

    compile_steps: whether to compile the steps if libtpu is installed. A step takes minutes, unless its result is
    in `cache_dir`.
    cache_dir: folder of the compiler's results, by default ~/.cache/bertzoo/plans.
    price: dollars per chip-hour.
    Raises ConfigError if the recipe does not fit the slice, and UserError if the compiler fails.
    """
    devices = chips.parse_topology(topology)
    build_on_slice(recipe, devices)  # raises errors before compilation takes minutes
    results, not_compiled = None, None
    if not compile_steps:
        not_compiled = "compiling is turned off (--no-compile)."
    elif not compiled.available():
        not_compiled = compiled.INSTALL
    else:
        results = compiled.compile_stages(recipe, devices, compiled.result_folder(cache_dir))
    return make_plan(recipe, devices, results, price=price, not_compiled=not_compiled)


def make_plan(
    recipe: Recipe,
    topology: Topology,
    compiled_steps: Mapping[int, CompiledStep] | None = None,
    *,
    price: float | None = None,
    not_compiled: str | None = None,
) -> RunPlan:
    """Plan a run from the compiler's results by stage, if any; raises ConfigError if it does not fit the slice."""
    built = build_on_slice(recipe, topology)
    stages = tuple(
        plan_stage(recipe, built, index, topology, (compiled_steps or {}).get(index))
        for index in planned_stages(recipe)
    )
    best, worst = chip_hours(recipe, stages, topology)
    placements = jax.tree.leaves(sharding.placements(built.named_boxed, built.mesh))
    return RunPlan(
        topology=topology.name,
        chips=topology.chips,
        devices=topology.devices,
        mesh=dict(built.mesh.shape),
        fallbacks=[note for leaf in placements for note in leaf.taken],
        stages=stages,
        checkpoint_bytes=max(bytes_of(built.state(stage.index), whole=True) for stage in stages),
        model_flops=sum_over_run(recipe, stages, lambda stage: stage.model_flops),
        chip_hours=(best, worst),
        dollars=None if price is None else (best * price, worst * price),
        not_compiled=not_compiled,
    )


def sum_over_run(recipe: Recipe, stages: Sequence[StagePlan], value: Callable[[StagePlan], float]) -> float:
    """Sum a value per step over all steps of a run, interpolated linearly for stages that are not planned."""
    values = np.interp(range(len(recipe.stages)), [stage.index for stage in stages], [value(stage) for stage in stages])
    return float(sum(stage.steps * x for stage, x in zip(recipe.stages, values, strict=True)))


def chip_hours(recipe: Recipe, stages: Sequence[StagePlan], topology: Topology) -> tuple[float, float]:
    """Return the chip-hours of a run (at best, at worst)."""
    best, worst = (sum_over_run(recipe, stages, lambda stage, end=end: stage.step_seconds[end]) for end in (0, 1))
    return best * topology.chips / 3600, worst * topology.chips / 3600


def join_plans(plans: Mapping[str, RunPlan], times: int, note: str) -> RunPlan:
    """Return the plan of a run that repeats all `plans` in order, `times` times.

    plans: {name for the plan's stages: plan}; all plans are for the same slice. note: as in RunPlan. The result
    lists every stage once, numbered from 0, with its steps in all repetitions.
    """
    runs = list(plans.values())
    stages = [(name, stage) for name, run in plans.items() for stage in run.stages]

    def total(pairs: Iterable[tuple[float, float] | None]) -> tuple[float, float]:
        low, high = zip(*(pair or (0.0, 0.0) for pair in pairs), strict=True)
        return times * sum(low), times * sum(high)

    return dataclasses.replace(
        runs[0],
        stages=tuple(
            dataclasses.replace(stage, index=index, name=name, steps=times * stage.steps)
            for index, (name, stage) in enumerate(stages)
        ),
        checkpoint_bytes=max(run.checkpoint_bytes for run in runs),
        model_flops=times * sum(run.model_flops for run in runs),
        chip_hours=total(run.chip_hours for run in runs),
        dollars=runs[0].dollars and total(run.dollars for run in runs),
        note=note,
    )


def plan_stage(
    recipe: Recipe, built: Experiment, index: int, topology: Topology, compiled_step: CompiledStep | None
) -> StagePlan:
    """Plan the training stage `index` of a recipe, built on a slice; compiled_step: the compiler's results, or None."""
    counts = count_step(recipe, built, index, (topology.chip.mxu,), topology.slices)
    plan = time_step(recipe, index, counts, topology, compiled_step)
    advice = _advice(recipe, built, index, counts.memory, topology, plan.fits)
    return dataclasses.replace(plan, name=built.setups[index].name, advice=advice)


def count_step(recipe: Recipe, built: Experiment, index: int, widths: Iterable[int], slices: int = 1) -> StepCounts:
    """Count the step of stage `index`, built on a slice; widths: of the matrix units to pad for."""
    stage, shards = built.stages[index], sharding.row_shards(built.mesh)
    rows = stage.batch_size // stage.microbatches // shards
    with traced_for(Platform("tpu")):  # on any machine
        gradients = built.trace_gradients(index, rows)
    # How often a step runs the traced gradients; the mesh's `tensor` axis splits each run over its devices.
    copies = stage.microbatches * shards
    padded = {width: padded_flops(gradients, width) for width in widths}
    sent, between = _derived_traffic(recipe, built, index, slices)
    return StepCounts(
        rows=rows,
        memory=step_memory(built, index, gradients=gradients),
        model_flops=stage.batch_size * built.flops(index),
        computed_flops=copies * max(plain for plain, _ in padded.values()),  # all are equal
        padded_flops={width: copies * flops for width, (_, flops) in padded.items()},
        sent=sent,
        between=between,
    )


def time_step(
    recipe: Recipe, index: int, counts: StepCounts, topology: Topology, compiled_step: CompiledStep | None = None
) -> StagePlan:
    """Plan a counted step on a slice, without name and advice; compiled_step: the compiler's results, or None."""
    stage, chip, memory = recipe.stages[index], topology.chip, counts.memory
    if compiled_step is not None:
        fits = compiled_step.fits
    else:
        fits = True if memory.ample <= chip.capacity else False if memory.exact > chip.capacity else None
    resident = memory.exact - memory.gradients if compiled_step is None else compiled_step.required
    sent, between = counts.sent, counts.between
    if compiled_step is not None and compiled_step.collectives is not None:
        kinds = [(total.kind.endswith(BETWEEN_SLICES), total.sent) for total in compiled_step.collectives]
        between = sum(size for across, size in kinds if across)
        sent = sum(size for _, size in kinds) - between
    padded = counts.padded_flops[chip.mxu]
    roofline = Roofline(
        compute=padded / topology.devices * chip.devices / chip.flops,
        memory=(resident + memory.parameters + memory.optimizer) * chip.devices / chip.hbm_bandwidth,
        interconnect=chip.devices * (sent / chip.ici_bandwidth + between / chip.dcn_bandwidth),
    )
    slow, fast = (counts.model_flops / (topology.chips * chip.flops * share) for share in UTILISATION)
    return StagePlan(
        index=index,
        steps=stage.steps,
        batch_size=stage.batch_size,
        max_length=stage.max_length,
        accumulate=stage.microbatches,
        rows=counts.rows,
        estimated=memory,
        compiled=compiled_step,
        capacity=chip.capacity,
        fits=fits,
        model_flops=counts.model_flops,
        computed_flops=counts.computed_flops,
        padded_flops=padded,
        roofline=roofline,
        step_seconds=(max(fast, roofline.seconds), max(slow, sum(dataclasses.astuple(roofline)))),
    )


def _derived_traffic(recipe: Recipe, built: Experiment, index: int, slices: int = 1) -> tuple[int, int]:
    """Return the bytes that a device sends in a step for gradients and for parameters that `fsdp` splits.

    Returns (bytes inside a slice, bytes between slices). Each device sums its shard of the gradients over the slices.

    Gradients are summed over the axes `data` and `fsdp`, which split the batch. If `fsdp` splits a parameter, its
    gradient is scattered over `fsdp` in every microbatch and summed over `data`. Such a parameter, or a teacher's, is
    also gathered once, in its own number format or that of the products, whichever is smaller.
    """
    data, fsdp = built.mesh.shape["data"] // slices, built.mesh.shape["fsdp"]
    width = np.dtype(recipe.compute.dtype).itemsize

    def summed(devices: int) -> float:  # bytes that a device sends on a ring for each byte of an all-reduce
        return 2 * (devices - 1) / devices

    sent = between = 0.0
    for leaf, trained in (
        *((leaf, True) for leaf in jax.tree.leaves(built.state(index).params)),
        *((leaf, False) for leaf in jax.tree.leaves(built.frozen_shapes)),
    ):
        split = "fsdp" in leaf.sharding.spec
        if split:
            sent += (fsdp - 1) * bytes_of(leaf) * min(width, leaf.dtype.itemsize) / leaf.dtype.itemsize
        if split and trained:
            sent += (recipe.stages[index].microbatches * (fsdp - 1) + summed(data)) * bytes_of(leaf)
        elif trained:
            sent += summed(data * fsdp) * bytes_of(leaf)
        if trained:
            between += summed(slices) * bytes_of(leaf) / (data if split else data * fsdp)
    return int(sent), int(between)


def _advice(
    recipe: Recipe, built: Experiment, index: int, memory: StepMemory, topology: Topology, fits: bool | None
) -> str:
    if fits:
        return "no need for remat or fsdp"
    if memory.exact > topology.chip.capacity:
        size = built.mesh.shape["fsdp"] * 2 ** math.ceil(math.log2(memory.exact / topology.chip.capacity))
        return f"the state alone is too large: split it with --mesh.fsdp={size} or more, or take a larger slice"
    options = [f"--{recipe.where(index)}.accumulate={2 * recipe.stages[index].microbatches}"]
    options += [] if recipe.compute.remat else ["--compute.remat=true"]
    problem = "only the compiler can tell whether it fits" if fits is None else "the activations are too large"
    return f"{problem}; {' or '.join(options)} makes the activations smaller, and so does a smaller batch"


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
    note = f" in {stage.accumulate} microbatches" if stage.accumulate > 1 else ""
    yield f"rows of a device: {stage.rows}{note}"
    memory, compiled = stage.estimated, stage.compiled
    exact = {kind: size for kind, size in dataclasses.asdict(memory).items() if kind != "activations"}
    yield "memory of a device, exact: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in exact.items())
    yield f"  = {_gib(memory.exact)} of {_gib(stage.capacity)} GiB"
    yield f"  activations: at most {_gib(memory.activations)} GiB, or {_gib(memory.total)} GiB with the exact bytes"
    if compiled is not None and compiled.total is None:
        yield f"memory of a device, compiled: needs {_gib(compiled.required)} of {_gib(stage.capacity)} GiB"
    elif compiled is not None:
        kinds = {"arguments": compiled.arguments, "temporaries": compiled.temporaries, "program": compiled.code}
        yield "memory of a device, compiled: " + " + ".join(f"{kind} {_gib(size)}" for kind, size in kinds.items())
        yield f"  = {_gib(compiled.total)} of {_gib(stage.capacity)} GiB"
    yield f"{ {True: 'it fits', False: 'IT DOES NOT FIT', None: 'IT MAY NOT FIT'}[stage.fits] }: {stage.advice}"
    for total in (compiled.collectives or ()) if compiled is not None else ():
        yield (
            f"{total.kind} over {total.group} devices: {total.count} a step, {total.size / 1e6:,.1f} MB, "
            f"a device sends {total.sent / 1e6:,.1f} MB"
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
    unit = next((unit for unit, count in units.items() if worst * count >= 1), "seconds")
    return f"{_rounded(best * units[unit])} to {_rounded(worst * units[unit])} {kind}{unit}"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.2f}"
