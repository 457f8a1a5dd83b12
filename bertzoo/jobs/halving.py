"""Search for models under a budget of milliseconds: keep points within it, and train them by successive halving."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError
from bertzoo.heads import NoHead
from bertzoo.jobs.check import Checks
from bertzoo.jobs.front import ranked, scored
from bertzoo.jobs.job import CommandJob
from bertzoo.pruning import latency
from bertzoo.pruning.structure import Structure


@dataclass(frozen=True)
class Budget:
    """Most milliseconds of a row, by the latency table in a file or, without one, by `bertzoo benchmark`."""

    limit: float
    table: Path | None = None

    @cached_property
    def _times(self) -> latency.LatencyTable | None:
        return latency.read_table(self.table) if self.table else None

    def next_job(self, checks: Checks, point: CommandJob) -> CommandJob | None:
        """Return a point within the budget, the job that measures its model first, or None if it is over.

        Raises UserError if the table does not cover the model.
        """
        record = checks.record
        # Points with equal models share the job that measures them.
        options = {key: value for key, value in point.options.items() if key.partition(".")[0] == "model"}
        name = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:12]
        timing = CommandJob(name=f"latency/{name}", verb="benchmark", models=("base",), options=options)
        if self._times is not None:
            structure = Structure(checks.recipe(point).model, NoHead(), {}, {}, ())
            milliseconds = latency.latency(structure, self._times, str(self.table))({})
        elif record.entry(timing) is not None:
            milliseconds = read_json(Path(record.places.output(timing)))["rows"][0]["median_ms"]
        else:
            return timing
        record.milliseconds[point.place] = milliseconds
        if milliseconds > self.limit:
            record.states[point.name] = "over budget", ""
            return None
        return point


class Halving:
    """Successive halving (Jamieson and Talwalkar 2016): each rung trains the better half of the one before for longer.

    points: the candidates. rungs: the last one trains for the FLOPs of the base config, each earlier one for half of
    the next. All points of a rung have the same FLOPs; their steps differ. 0: all points train for their own steps.
    budget: limit of milliseconds; points over it do not run. `ranked` chooses the better half.

    The scores alone decide, so an interrupted search continues with the same points. Points that failed are worst; if
    one succeeds when the command runs again, the better half of its rung may change.
    """

    def __init__(self, points: Sequence[CommandJob], rungs: int, budget: Budget | None):
        self._rungs, self._budget, self._rung, self._begun = rungs, budget, 0, 0
        self._points = list(points)  # of the current rung
        self._listed = {point.place: point for point in points}  # the last rung of each, and the jobs that measure them
        self._steps: dict[str, float] = {}  # steps of the FLOPs of the base config, by place

    @property
    def total(self) -> int:
        """Number of jobs, if every point is within the budget."""
        left, total = len(self._points), self._begun
        for rung in range(self._rung, max(1, self._rungs)):
            left = _half(left) if rung else left
            total += left
        return total

    def choose(self, checks: Checks, processes: int) -> list[CommandJob]:
        """Return the jobs that measure the points, then the points of the next rung; [] after the last one."""
        if self._rung >= max(1, self._rungs):
            return []
        if self._rung:
            pairs = scored(checks.record, self._points)
            best = [[*pairs][index] for index in ranked([*pairs.values()])[: _half(len(self._points))]]
            self._points = [point for point in self._points if point.name in best]
        elif not self._begun:
            self._check(checks)
        if not self._rung and self._budget is not None:
            due = [(point, self._budget.next_job(checks, point)) for point in self._points]
            timings = {job.place: job for point, job in due if job is not None and job is not point}
            if new := [job for place, job in timings.items() if place not in self._listed]:
                return self._listing(checks, new)
            for point, job in due:
                if job is not None and job is not point:
                    checks.record.states[point.name] = "failed", f"{job.place}, which measures it, failed"
            self._points = [point for point, job in due if job is point]
        self._rung += 1
        self._points = [self._of_rung(checks, point) for point in self._points]
        return self._listing(checks, self._points)

    def _listing(self, checks: Checks, jobs: list[CommandJob]) -> list[CommandJob]:
        """Return `jobs`, and add them to the list of the record."""
        self._begun += len(jobs)
        self._listed |= {job.place: job for job in jobs}
        checks.record.list = replace(checks.record.list, jobs=tuple(self._listed.values()))
        return jobs

    def _check(self, checks: Checks) -> None:
        """Raise ConfigError unless each point has one training stage whose steps the grid leaves open."""
        for point in self._points if self._rungs else ():
            recipe = checks.recipe(point)
            key, count = f"{recipe.where(0)}.steps", len(recipe.stages)
            if count > 1:
                raise ConfigError(
                    f"--halving sets the steps of one stage, but {point.name} has {count}. Use a base config with one, "
                    "or leave --halving out."
                )
            if key in (point.settings or {}):
                raise ConfigError(f"--halving sets {key}, but the grid has it too. Remove it from the grid.")

    def _of_rung(self, checks: Checks, point: CommandJob) -> CommandJob:
        """Return the point with the steps of the current rung."""
        if not self._rungs:
            return point
        recipe, settings = checks.recipe(point), point.settings or {}
        if point.place not in self._steps:
            common = {name: value for name, value in point.options.items() if name not in settings}
            base = replace(point, name=f"{point.task}/base", options=common)
            (steps, flops), (_, target) = checks.work(point), checks.work(base)
            self._steps[point.place] = target * steps / flops
        steps = max(1, round(self._steps[point.place] / 2 ** (self._rungs - self._rung)))
        options = {**point.options, f"{recipe.where(0)}.steps": str(steps)}
        return replace(point, name=f"{point.place}@{self._rung}", options=options, rung=self._rung)


def _half(number: int) -> int:
    return (number + 1) // 2
