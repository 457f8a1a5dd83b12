"""What a step takes and moves on one device, from the config and the sharding rules alone: no compiler."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from bertzoo.planning import step, tiles
from bertzoo.planning.alive import Growth
from bertzoo.planning.chips import Chip
from bertzoo.planning.fusion import Cut, Flat
from bertzoo.runs.batches import batch_shapes
from bertzoo.runs.transfer_config import Recipe
from bertzoo.train.optim import Lamb
from bertzoo.train.sharding import ROWS
from bertzoo.train.stacking import STACK_LIMIT

# Fitted to what libtpu 0.0.42.1 made of steps of BERT, ALBERT, SqueezeBERT, MobileBERT and ELECTRA, most for a v5e.
PROGRAM = 85e3  # bytes for each unit of alive.Alive.effort, give or take 30 %
# What the update takes: the gradients as float32, with what is lost between arrays that come and go; beside them so
# many copies of the largest parameter, of which LAMB looks at a whole tensor before it applies any of its update, and
# so many of all that train.stacking stacks.
GRADIENTS, UPDATE, LAMB_UPDATE, STACKED = 1.15, 0.5, 2.0, 3.25
# The gradient of a pooler, of one position a row, comes by columns where fsdp splits its kernel, and all that it is
# added to further down with it: arrays that go from rows to columns, or back, for each that a scale or bias sums up.
TURNS = 2.5
UPDATE_ON_CHIP = 0.375  # of a device's on-chip memory, for some of these copies
# A table of words whose rows are not whole tiles lies by columns, and is turned, as its two moments are, to be updated
# where its gradient has been gathered by rows.
TURNED = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one device's memory at the worst moment of a step, by kind; `total` is their sum.

    parameters, optimizer, teacher: padded to tiles, as they lie in memory; temporaries: all that comes and goes but
    gradients and activations, which the backward pass waits for.
    """

    parameters: int
    optimizer: int
    teacher: int
    batch: int
    gradients: int
    activations: int
    temporaries: int
    program: int

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes that one device reads and writes in its memory, and sends to others, in a step."""

    memory: int
    sent: int


class Estimate:
    """A stage's step on a mesh, for any number of rows on each device; raises ConfigError as a run does.

    What loops do within (a transfer's layers below the one that learns) is counted whole where `tensor` would split it.
    """

    def __init__(self, recipe: Recipe, index: int, mesh: jax.sharding.Mesh, chip: Chip):
        self._recipe, self._index, self._mesh, self._chip = recipe, index, mesh, chip
        self.stage = recipe.stages[index]
        state = step.abstract(recipe, index, mesh)
        self._state = _bytes(state.params, tiles.stored), _bytes(state.opt_state, tiles.stored)
        self.parameters, self.optimizer = _bytes(state.params), _bytes(state.opt_state)
        self.checkpoint = _bytes(state, whole=True)
        leaves = jax.tree.leaves(nn.unbox(state.params))
        largest = max(leaves, key=_bytes)
        update = LAMB_UPDATE if isinstance(recipe.optimizer, Lamb) else UPDATE
        stacked = sum(_bytes(leaf) for leaf in leaves if leaf.size <= STACK_LIMIT)
        self._update = int(update * _bytes(largest) + STACKED * stacked)
        by_rows = _bytes(largest, tiles.by_rows)
        self._turned = TURNED * by_rows if by_rows > _bytes(largest, tiles.stored) else 0
        frozen = step.frozen(recipe, mesh)
        self._teacher = _bytes(frozen, tiles.stored)
        kept = tuple(_along(leaf, "fsdp") is not None for leaf in leaves)
        self._split = sum(_bytes(leaf) for leaf, split in zip(leaves, kept, strict=True) if split)
        cut = Cut(
            parts=mesh.shape["tensor"],
            arguments=tuple(_along(leaf, "tensor") for leaf in jax.tree.leaves((leaves, nn.unbox(frozen)))),
            results=tuple(leaf.size // math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves),
            kept=kept,
            gathered=tuple(kept),
            turned=any(kept) and "pooler" in step.parameters(recipe),
        )
        kept = chip.keeps_shares

        def flat(rows: int) -> Flat:
            return Flat(step.traced(recipe, index, rows), cut=cut, shares_kept=kept)

        self._growth = Growth(flat)

    @property
    def shards(self) -> int:
        """How many devices share the rows of a batch."""
        return math.prod(self._mesh.shape[axis] for axis in ROWS)

    @property
    def rows(self) -> int:
        """Rows of the stage's batch on one device at a time."""
        return self.stage.batch_size // self.stage.accumulate // self.shards

    def memory(self, rows: int | None = None) -> Memory:
        """The account for so many rows a device, by default the stage's."""
        rows = self.rows if rows is None else rows
        alive, parts = self._growth.at(rows), self.stage.accumulate
        # Microbatches add up into gradients of float32, which are there all the time.
        summed = self.parameters if parts > 1 else 0
        fixed = {
            "parameters": self._state[0],
            "optimizer": self._state[1],
            "teacher": self._teacher,
            "batch": sum(_bytes(array) for array in batch_shapes(self._recipe, self._index, rows * parts).values()),
            "program": int(PROGRAM * alive.effort),
        }
        room = self._chip.on_chip << 20
        # What would fit on the chip lives there; of more, the less does the more there is.
        if self._chip.late_gradients:
            alive = dataclasses.replace(alive, gradients=alive.returned + alive.kept)
        spared = min(room, room**2 // max(1, alive.total))
        temporaries = max(0, alive.temporaries - spared)
        activations = max(0, alive.activations - max(0, spared - alive.temporaries))
        gradients = max(0, alive.gradients - max(0, spared - alive.temporaries - alive.activations))
        backward = Memory(
            **fixed,
            gradients=gradients + summed,
            activations=activations,
            temporaries=temporaries,
        )
        after = Memory(
            **fixed,
            gradients=int(GRADIENTS * self._state[0]),
            activations=0,
            temporaries=max(0, self._update - int(UPDATE_ON_CHIP * room)) + self._turned,
        )
        return max(backward, after, key=lambda memory: memory.total)

    def largest_rows(self, limit: int = 1 << 24) -> int:
        """The most rows a device that fit its memory; 0 where not one does."""
        low, high = 0, 1
        while high < limit and self.memory(high).total <= self._chip.capacity:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.memory(middle).total <= self._chip.capacity else (low, middle)
        return low

    def traffic(self) -> Traffic:
        """What moves in a step: the state is read and written, every array written once and read once, and gradients
        are summed over the devices that share the rows. Parameters that `fsdp` splits are gathered for the forward and
        for the backward pass, their gradients are left where they belong, and what is summed up for those of norms and
        biases is turned. What `tensor` splits into parts of a sum is summed.
        """
        alive, parts = self._growth.at(self.rows), self.stage.accumulate
        state = self.parameters + self.optimizer
        data, fsdp, tensor = (self._mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
        width = np.dtype(self._recipe.compute.dtype).itemsize
        sent = _ring(self.shards) * alive.returned + (fsdp - 1 + _ring(data)) * alive.kept
        sent += parts * (_ring(tensor) * alive.summed + (fsdp - 1) / fsdp * TURNS * alive.turned)
        sent += parts * 2 * (fsdp - 1) * self._split * width / 4
        return Traffic(memory=2 * state + self._teacher * parts + 2 * alive.moved * parts, sent=int(sent))


def _ring(devices: int) -> float:
    """What a device sends in a sum over so many, for each byte of it."""
    return 2 * (devices - 1) / devices


def _along(leaf: Any, axis: str) -> int | None:
    """The dimension of an array that a mesh axis splits."""
    names = [name if isinstance(name, tuple) else (name,) for name in leaf.sharding.spec]
    return next((dimension for dimension, split in enumerate(names) if axis in split), None)


def _bytes(tree: Any, elements: Callable[[Sequence[int]], int] = math.prod, whole: bool = False) -> int:
    """Bytes of all leaves on one device, or of them whole; `elements`: of an array of a shape."""
    total = 0
    for leaf in jax.tree.leaves(nn.unbox(tree)):
        place = getattr(leaf, "sharding", None)
        shape = leaf.shape if whole or place is None else place.shard_shape(leaf.shape)
        total += elements(shape) * np.dtype(leaf.dtype).itemsize
    return total
