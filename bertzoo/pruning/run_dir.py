"""The directory of a pruning run: a training run for each scoring and each fine-tuning, and the results."""

from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import kind_of_run
from bertzoo.pruning import layout
from bertzoo.pruning.costs import Latency, Target
from bertzoo.pruning.settings import Prune
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train.experiment import Stage, total_steps

# Config keys, or their beginnings, that may change during a run.
FREE = ("run.", "mesh.", "compute.dtype", "compute.remat")


class PartRun(NamedTuple):
    """A training run inside a pruning run. first: index of its first stage in `Prune.stages`."""

    run: RunDirectory
    first: int
    stages: tuple[Stage, ...]

    @property
    def finished(self) -> bool:
        """Whether the newest checkpoint is of the last step."""
        return self.run.latest() == total_steps(self.stages)


class PruneDirectory(RunDirectory):
    """The directory of a pruning run, whose checkpoints are in the directories of its training runs."""

    def part(self, recipe: Prune, iteration: int, name: Literal["weigh", "tune"]) -> PartRun:
        """Return a training run of an iteration, of its prune vectors or after its cut (see `layout.part`)."""
        run, first = RunDirectory(layout.part(self.path, iteration, name)), (iteration - 1) * (1 + len(recipe.tuning))
        if name == "weigh":
            return PartRun(run, first, (recipe.weigh.stage(),))
        return PartRun(run, first + 1, recipe.tuning_stages)

    def latest(self) -> int | None:
        """Return the sum of the training runs' newest checkpoint steps, or None without a checkpoint."""
        steps = [step for part in layout.parts(self.path) if (step := RunDirectory(part).latest()) is not None]
        return sum(steps) if steps else None

    def changes(self, recipe: Prune) -> list[str]:
        """Return a line for each key of the config that changed since the run began.

        Raises ConfigError for another kind of run and, after the first checkpoint, for a key that is not in FREE.
        """
        if not self.config.exists():
            return []
        if kind_of_run(self.path) is not layout.PRUNE:
            raise ConfigError(f"{self.name} does not hold a pruning run. Use a different --run_dir.")
        changed = config.difference(config.load(Prune, [self.config]), recipe)
        if self.latest() is not None:
            config.reject(self.name, [line for line in changed if not line.startswith(FREE)])
        return changed

    def begin(self, recipe: Prune) -> None:
        """Write the config and, before the first checkpoint of a run under a budget in milliseconds, copy its table."""
        self.write_config(recipe)
        if isinstance(recipe.target, Latency) and self.latest() is None:
            atomic.write_bytes(self.path / layout.TABLE, Path(recipe.target.table).read_bytes())

    def target(self, recipe: Prune) -> Target:
        """Return the recipe's target; after the first checkpoint, with the run's copy of the latency table, if any."""
        if isinstance(recipe.target, Latency) and self.latest() is not None:
            return replace(recipe.target, table=str(self.path / layout.TABLE))
        return recipe.target
