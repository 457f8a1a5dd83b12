"""The directory of a pruning run: an ordinary run for every weighing and every fine-tuning, and what came of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError
from bertzoo.pruning.settings import Prune
from bertzoo.pruning.target import Latency, Target
from bertzoo.runs import prune_layout
from bertzoo.runs.kind import kind_of
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train.stages import Stage, total_steps

FREE = ("run.", "mesh.", "compute.dtype", "compute.remat", "compute.grouped")  # what may change while a run is at work


class Part(NamedTuple):
    """One run of the chain; first: its first stage among those of all."""

    run: RunDirectory
    first: int
    stages: tuple[Stage, ...]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.run.latest() == total_steps(self.stages)


class Directory(RunDirectory):
    """As RunDirectory, on disk; the checkpoints are those of its parts."""

    def weighing(self, recipe: Prune, iteration: int) -> Part:
        """The run that trains the vectors of an iteration, counted from 1."""
        first = (iteration - 1) * (1 + len(recipe.tuning))
        return Part(RunDirectory(prune_layout.part(self.path, iteration, "weigh")), first, (recipe.weigh.stage(),))

    def tuning(self, recipe: Prune, iteration: int) -> Part:
        """The run that fine-tunes what an iteration has cut."""
        first = (iteration - 1) * (1 + len(recipe.tuning)) + 1
        return Part(RunDirectory(prune_layout.part(self.path, iteration, "tune")), first, recipe.tuning_stages)

    @property
    def model(self) -> Path:
        """The result, there once it is complete."""
        return self.path / prune_layout.MODEL

    def latest(self) -> int | None:
        """The steps of all parts together as far as they are saved; None where nothing is."""
        found = [RunDirectory(part).latest() for part in prune_layout.parts(self.path)]
        return sum(step for step in found if step is not None) if any(step is not None for step in found) else None

    def changes(self, recipe: Prune) -> list[str]:
        """What has changed since the run began; anything may while nothing is saved.

        Raises ConfigError where something differs that a run cannot change half-way, or another run is here.
        """
        if not self.config.exists():
            return []
        if kind_of(self.config) != "prune":
            raise ConfigError(f"{self.name} holds a run that is no pruning; choose another --run_dir")
        changed = config.difference(config.load(Prune, [self.config]), recipe)
        refused = [line for line in changed if not line.startswith(FREE)]
        if refused and self.latest() is not None:
            raise ConfigError(
                f"{self.name} holds a run with another config: {'; '.join(refused)}; "
                "give back these values, or choose another --run_dir"
            )
        self._check_table(recipe)
        return changed

    def begin(self, recipe: Prune) -> None:
        """Keep what the run began with: its config, and a copy of the table that a budget is counted with."""
        atomic.write_bytes(self.config, config.dump(recipe).encode())
        if isinstance(recipe.target, Latency):
            atomic.write_bytes(self.path / prune_layout.TABLE, Path(recipe.target.table).read_bytes())

    def counted(self, recipe: Prune) -> Target:
        """The recipe's target; of a run that has begun with the copy of the table that it keeps."""
        kept = self.path / prune_layout.TABLE
        if isinstance(recipe.target, Latency) and self.latest() is not None and kept.is_file():
            return replace(recipe.target, table=str(kept))
        return recipe.target

    def _check_table(self, recipe: Prune) -> None:
        kept = self.path / prune_layout.TABLE
        if self.latest() is None or not isinstance(recipe.target, Latency) or not kept.is_file():
            return
        given = Path(recipe.target.table)
        if given.is_file() and given.read_bytes() != kept.read_bytes():
            raise ConfigError(
                f"{given} is not the table that {self.name} began with, which is in {kept}: put that back, or choose "
                "another --run_dir"
            )

    def record(self, iteration: int, cut: dict[str, Any]) -> None:
        """Write what an iteration cut."""
        said = (json.dumps(cut, indent=1) + "\n").encode()
        atomic.write_bytes(prune_layout.cut_file(self.path, iteration), said)
