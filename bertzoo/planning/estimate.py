"""A plan: what each stage of a run needs and takes on a slice, and what the whole run costs."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import numpy as np

from bertzoo.core.errors import ConfigError
from bertzoo.planning import convention, step
from bertzoo.planning.analytic import Estimate, Memory
from bertzoo.planning.chips import Chip, Topology
from bertzoo.planning.compiled import Compiled
from bertzoo.planning.tiles import padded_flops
from bertzoo.runs import phases
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.runs.transfer_config import Recipe, Transfer
from bertzoo.train import sharding

# Model operations over peak operations in the time of a step: what runs of BERT-like models on TPUs come to.
UTILISATION = (0.2, 0.5)
ASSUMED = (
    f"steps/s and chip-hours: {UTILISATION[0]:.0%} to {UTILISATION[1]:.0%} of the peak spent on the model's own "
    "operations, where the three below allow it: at best they overlap wholly, at worst not at all",
    "compute: the matrix products of the forward and backward pass, padded to the matrix unit, at the bfloat16 peak",
    "memory: the state read and written once, every array of the step written once and read once, at full bandwidth",
    "interconnect: what the collectives send on rings, over all links of a chip at once",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roofline:
    """Seconds that a step takes at least: for the matrix units, for memory, for the interconnect."""

    compute: float
    memory: float
    interconnect: float

    @property
    def seconds(self) -> float:
        return max(dataclasses.astuple(self))

    @property
    def apart(self) -> float:
        """Seconds where none overlaps another."""
        return sum(dataclasses.astuple(self))

    @property
    def bound(self) -> str:
        """The slowest of the three."""
        return max(dataclasses.asdict(self).items(), key=lambda item: item[1])[0]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage; bytes and rows are of one device, operations of one step over all of them.

    model_flops: 3 times the products of the forward pass; computed_flops: all products of the step, recomputed ones
    too; padded_flops: the same padded to the matrix unit; step_seconds: (at best, at worst).
    """

    index: int
    name: str
    steps: int
    batch_size: int
    max_length: int
    accumulate: int
    rows: int
    estimated: Memory
    compiled: Compiled | None
    capacity: int
    fits: bool
    largest_rows: int
    advice: str
    model_flops: int
    computed_flops: int
    padded_flops: int
    roofline: Roofline
    step_seconds: tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run; chip_hours and dollars are (at best, at worst), dollars None without a price.

    fallbacks: in words, where parameters go that the mesh does not divide as it should; model_flops: of the whole run;
    electra_flops: the same as ELECTRA's authors count; published_flops: as printed, of what `published_note` says where
    that is not this recipe.
    """

    topology: str
    chips: int
    devices: int
    mesh: dict[str, int]
    fallbacks: list[str]
    stages: tuple[StagePlan, ...]
    checkpoint_bytes: int
    model_flops: float
    electra_flops: float | None
    published_flops: float | None
    published_note: str
    chip_hours: tuple[float, float]
    dollars: tuple[float, float] | None


def make(
    recipe: Recipe,
    topology: Topology,
    compiled: Sequence[Compiled | None] | None = None,
    *,
    price: float | None = None,
    published: tuple[float, str] | None = None,
) -> Plan:
    """The plan of a recipe, with what the compiler found of its stages; raises ConfigError as a run there does.

    price: of a chip for an hour.
    """
    mesh = step.imagined(recipe, topology)
    shown = step.planned(recipe)
    estimates = {index: Estimate(recipe, index, mesh, topology.chip) for index in shown}
    stages = tuple(
        _stage(recipe, index, topology, mesh, estimate, compiled[index] if compiled else None)
        for index, estimate in estimates.items()
    )

    def total(of: Callable[[StagePlan], float]) -> float:
        """Over all stages; those between two that are looked at lie between them."""
        given = np.interp(range(len(recipe.stages)), shown, [of(stage) for stage in stages])
        return float(sum(stage.steps * value for stage, value in zip(recipe.stages, given, strict=True)))

    best, worst = (total(lambda stage, end=end: stage.step_seconds[end]) * topology.chips / 3600 for end in (0, 1))
    return Plan(
        topology=topology.name,
        chips=topology.chips,
        devices=topology.devices,
        mesh=dict(mesh.shape),
        fallbacks=step.fallbacks(recipe, mesh),
        stages=stages,
        checkpoint_bytes=max(estimate.checkpoint for estimate in estimates.values()),
        model_flops=total(lambda stage: stage.model_flops),
        electra_flops=None if isinstance(recipe, Transfer) else convention.train_flops(recipe),
        published_flops=published[0] if published else None,
        published_note=published[1] if published else "",
        chip_hours=(best, worst),
        dollars=None if price is None else (best * price, worst * price),
    )


def _stage(
    recipe: Recipe,
    index: int,
    topology: Topology,
    mesh: jax.sharding.Mesh,
    estimate: Estimate,
    compiled: Compiled | None,
) -> StagePlan:
    stage, chip, devices = recipe.stages[index], topology.chip, topology.devices
    memory = estimate.memory()
    fits = memory.total <= chip.capacity if compiled is None else compiled.fits
    model = stage.batch_size * phases.model_flops(recipe, index)
    plain, padded = _products(recipe, index, estimate.rows, mesh, chip)
    copies = stage.accumulate * estimate.shards  # those that share a batch's rows; `tensor` splits the products
    traffic, sent = estimate.traffic(), None
    if compiled is not None and compiled.collectives is not None:
        sent = sum(collective.sent for collective in compiled.collectives)
    roofline = Roofline(
        compute=padded * copies / devices * chip.devices / chip.flops,
        memory=traffic.memory * chip.devices / chip.hbm_bandwidth,
        interconnect=(traffic.sent if sent is None else sent) * chip.devices / chip.ici_bandwidth,
    )
    slow, fast = (model / (topology.chips * chip.flops * share) for share in UTILISATION)
    return StagePlan(
        index=index,
        name=phases.of(recipe)[index].name,
        steps=stage.steps,
        batch_size=stage.batch_size,
        max_length=stage.max_length,
        accumulate=stage.accumulate,
        rows=estimate.rows,
        estimated=memory,
        compiled=compiled,
        capacity=chip.capacity,
        fits=fits,
        largest_rows=estimate.largest_rows(),
        advice=_advice(recipe, index, mesh, chip, fits),
        model_flops=model,
        computed_flops=plain * copies,
        padded_flops=padded * copies,
        roofline=roofline,
        step_seconds=(max(fast, roofline.seconds), max(slow, roofline.apart)),
    )


def _products(recipe: Recipe, index: int, rows: int, mesh: jax.sharding.Mesh, chip: Chip) -> tuple[int, int]:
    """Operations of the products for so many rows, forward and backward, and once padded to the matrix unit."""
    params, batch = step.parameters(recipe), batch_shapes(recipe, index, rows)
    return padded_flops(phases.gradient_function(recipe, index), chip.mxu, params, step.frozen(recipe, mesh), batch)


def _advice(recipe: Recipe, index: int, mesh: jax.sharding.Mesh, chip: Chip, fits: bool) -> str:
    """Whether recomputing, sharding or microbatches are needed, and the least of each that fits by the estimate."""
    if fits:
        return "neither remat nor fsdp is needed"

    def total(changed: Recipe, place: jax.sharding.Mesh) -> int | None:
        try:
            stage = changed.stages[index]
            sharding.check_rows(stage.batch_size, stage.accumulate, place)
            return Estimate(changed, index, place, chip).memory().total
        except ConfigError:  # that mesh or that cut cannot be
            return None

    found = []
    if not recipe.compute.remat:
        remat = dataclasses.replace(recipe, compute=dataclasses.replace(recipe.compute, remat=True))
        found.append(("--compute.remat=true", total(remat, mesh)))
    devices = list(mesh.devices.flat)
    for name, sizes in (("fsdp", (2, 4, 8, 16)), ("accumulate", (2, 4, 8, 16))):
        for size in sizes:
            if name == "fsdp":
                config = sharding.Mesh(data=-1, fsdp=size * mesh.shape["fsdp"], tensor=mesh.shape["tensor"])
                option = _mesh_options(recipe.mesh, config)
                even = len(devices) % (config.fsdp * config.tensor) == 0
                needed = total(recipe, sharding.make_mesh(config, devices)) if even else None
            else:
                parts = size * recipe.stages[index].accumulate
                option = f"--{recipe.where(index)}.accumulate={parts}"
                needed = total(_cut(recipe, index, parts), mesh) if _divides(recipe, index, parts) else None
            if needed is not None and needed <= chip.capacity:
                found.append((option, needed))
                break
    fitting = [option for option, needed in found if needed is not None and needed <= chip.capacity]
    if not fitting:
        return "neither remat nor fsdp nor microbatches alone make it fit; take a larger slice or a smaller batch"
    return f"it would fit with {' or '.join(fitting)}"


def _mesh_options(given: sharding.Mesh, wanted: sharding.Mesh) -> str:
    """What makes one mesh of the other: all sizes that differ, as a run refuses those that do not fit its devices."""
    before = given.sizes
    return " ".join(f"--mesh.{name}={size}" for name, size in wanted.sizes.items() if size != before[name])


def _divides(recipe: Recipe, index: int, parts: int) -> bool:
    return recipe.stages[index].batch_size % parts == 0


def _cut(recipe: Recipe, index: int, parts: int) -> Recipe:
    """The recipe with a stage in so many microbatches."""
    if isinstance(recipe, Transfer) and index < len(recipe.layer_groups):
        return dataclasses.replace(recipe, transfer=dataclasses.replace(recipe.transfer, accumulate=parts))
    name = "stages" if isinstance(recipe, Pretrain) else "distillation"
    stages, place = list(getattr(recipe, name)), index - (len(recipe.stages) - len(getattr(recipe, name)))
    stages[place] = dataclasses.replace(stages[place], accumulate=parts)
    return dataclasses.replace(recipe, **{name: tuple(stages)})
