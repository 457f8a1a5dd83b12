"""Search for points of a sweep: by Optuna, or by successive halving under a budget; and the Pareto front of both."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bertzoo.core import atomic, config
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError, UserError, needs_extra
from bertzoo.heads import NoHead
from bertzoo.jobs.job import TRAINING, CommandJob
from bertzoo.jobs.progress import write_csv
from bertzoo.jobs.record import JobRecord
from bertzoo.jobs.run import Checks
from bertzoo.jobs.sweep import ValueRange
from bertzoo.pruning import latency
from bertzoo.pruning.structure import Structure
from bertzoo.runs.report import HELDOUT, new_figure

Points = Sequence[tuple[float, float]]
_OF_MODEL = re.compile(r"model\.|data\.tokenizer\.|stages\.\d+\.max_")  # options that decide whether a config is valid
NAME = "pareto"  # of the table, the picture and the folder of configs, in the sweep's directory


def fronts(points: Points) -> list[int]:
    """Return the front of each point: 0 if no other point beats it, then 1 on the front of the rest, and so on.

    A point beats another one if both values are at least as low, and one is lower. All values must be finite.
    """
    remaining, result, number = sorted(range(len(points)), key=points.__getitem__), [0] * len(points), 0
    while remaining:
        lowest, behind = (inf, inf), []
        for index in remaining:
            if points[index] == lowest or points[index][1] < lowest[1]:
                lowest, result[index] = points[index], number
            else:
                behind.append(index)
        remaining, number = behind, number + 1
    return result


def ranked(points: Points) -> list[int]:
    """Return the indices of (milliseconds, loss), best first: front by front (Schmucker et al. 2021).

    A front begins with its lowest loss. The next point is always the farthest from all earlier points (an ε-net), with
    both values as shares of the front's range. The beginning of a front then holds fast models and accurate models.
    """
    numbers, order = fronts(points), []
    for number in sorted({*numbers}):
        front = [index for index, other in enumerate(numbers) if other == number]
        values = np.array([points[index] for index in front])
        shares = (values - values.min(axis=0)) / np.maximum(np.ptp(values, axis=0), 1e-12)
        gaps, position = np.full(len(front), inf), int(np.lexsort((values[:, 0], values[:, 1]))[0])
        for _ in front:
            order.append(front[position])
            gaps = np.minimum(gaps, np.linalg.norm(shares - shares[position], axis=1))
            gaps[position] = -1.0
            position = int(np.argmax(gaps))
    return order


def scored(record: JobRecord, points: Iterable[CommandJob]) -> dict[str, tuple[float, float]]:
    """Return milliseconds (0 without a budget) and held-out loss, by name, of finished points with a finite loss."""
    finished = [job for job in points if record.entry(job) is not None]
    pairs = {job.name: (record.milliseconds.get(job.path, 0.0), record.scores(job)["score"]) for job in finished}
    return {name: pair for name, pair in pairs.items() if isfinite(pair[1])}


def write_front(record: JobRecord, limit: float) -> list[Path]:
    """Write the front of the last rung's points within the budget `limit` as a table, configs and a picture.

    Return the paths of table and picture; without such points, write nothing and return [].
    """
    points = [job for job in record.list.points if record.milliseconds.get(job.path, inf) <= limit]
    pairs, last = scored(record, points), max((job.rung for job in points), default=0)
    trained = [job for job in points if job.name in pairs]
    final = sorted((job for job in trained if job.rung == last), key=lambda job: pairs[job.name])
    if not final:
        return []
    numbers = fronts([pairs[job.name] for job in final])
    best = [job for job, number in zip(final, numbers, strict=True) if not number]
    folder, rows, configs = record.path / NAME, [], {}
    for job in best:
        name = f"{job.path.rpartition('/')[2]}.toml"
        configs[name] = config.dump(record.recipes[job.name][0])
        milliseconds, loss = pairs[job.name]
        values = {"ms": milliseconds, "loss": loss, **(job.settings or {})}
        rows.append(values | {"run": record.paths.output(job), "config": str(folder / name)})
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier front
    with atomic.new_directory(folder) as temporary:
        for name, text in configs.items():
            (temporary / name).write_text(text, encoding="utf-8")
    table, picture = (record.path / f"{NAME}.{suffix}" for suffix in ("csv", "png"))
    write_csv(table, rows, rows[0])
    earlier = [pairs[job.name] for job in trained if job.rung < last]
    _draw(picture, earlier, [pairs[job.name] for job in final], [pairs[job.name] for job in best], limit)
    return [table, picture]


def _draw(path: Path, earlier: Points, final: Points, best: Points, limit: float) -> None:
    figure = new_figure(7, 4.5)
    axes = figure.subplots()
    for points, label, style in (
        (earlier, "stopped after an earlier rung", {"color": "0.75", "marker": "o"}),
        (final, "trained to the end", {"color": "0.35", "marker": "o"}),
        (best, "Pareto front", {"color": HELDOUT, "marker": "o", "linestyle": "-"}),
    ):
        if points:
            axes.plot(*zip(*points, strict=True), **{"linestyle": "", "markersize": 5, **style}, label=label)
    axes.axvline(limit, color="0.4", linewidth=0.9, linestyle=":", label="budget")
    axes.set_xlabel("milliseconds per sequence")
    axes.set_ylabel("held-out loss (nats)")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    figure.savefig(path, dpi=120)


@dataclass(frozen=True)
class Budget:
    """Most milliseconds of a sequence, by the latency table in a file or, without one, by `bertzoo benchmark`."""

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
        # Points with equal models share the job that measures them. Other options may be needed for a valid config.
        options = {key: value for key, value in point.options.items() if _OF_MODEL.match(key)}
        name = hashlib.sha256(repr(sorted(options.items())).encode()).hexdigest()[:12]
        timing = CommandJob(name=f"latency/{name}", verb="benchmark", models=("base",), options=options)
        if self._times is not None:
            structure = Structure(checks.recipe(point).model, NoHead(), {}, {}, ())
            milliseconds = latency.latency(structure, self._times, str(self.table))({})
        elif record.entry(timing) is not None:
            milliseconds = read_json(Path(record.paths.output(timing)))["rows"][0]["median_ms"]
        else:
            return timing
        record.milliseconds[point.path] = milliseconds
        if milliseconds > self.limit:
            record.states[point.name] = "over budget", ""
            return None
        return point


class Halving:
    """Successive halving (Jamieson and Talwalkar 2016): each rung trains the better half of the rung before for longer.

    points: the candidates. rungs: number of rungs; 0: each point sets its steps. The last rung trains for the FLOPs of
    the base config, each earlier rung for half of the next. All points of a rung have the same FLOPs, not steps.
    budget: limit of milliseconds; points over it do not run. `ranked` chooses the better half.

    The scores alone decide, so an interrupted search continues with the same points. Points that failed are worst; if
    one succeeds when the command runs again, the better half of its rung may change.
    """

    def __init__(self, points: Sequence[CommandJob], rungs: int, budget: Budget | None):
        self._rungs, self._budget, self._rung, self._begun = rungs, budget, 0, 0
        self._points = list(points)  # of the current rung
        self._listed = {point.path: point for point in points}  # the last rung of each, and the jobs that measure them
        self._steps: dict[str, float] = {}  # steps of the FLOPs of the base config, by path

    @property
    def total(self) -> int:
        """Number of jobs, if every point is within the budget."""
        remaining, total = len(self._points), self._begun
        for rung in range(self._rung, max(1, self._rungs)):
            remaining = _half(remaining) if rung else remaining
            total += remaining
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
            timings = {job.path: job for point, job in due if job is not None and job is not point}
            if new := [job for path, job in timings.items() if path not in self._listed]:
                return self._listing(checks, new)
            for point, job in due:
                if job is not None and job is not point:
                    checks.record.states[point.name] = "failed", f"{job.path}, which measures it, failed"
            self._points = [point for point, job in due if job is point]
        self._rung += 1
        self._points = [self._of_rung(checks, point) for point in self._points]
        return self._listing(checks, self._points)

    def _listing(self, checks: Checks, jobs: list[CommandJob]) -> list[CommandJob]:
        """Return `jobs`, and add them to the list of the record."""
        self._begun += len(jobs)
        self._listed |= {job.path: job for job in jobs}
        checks.record.list = replace(checks.record.list, jobs=tuple(self._listed.values()))
        return jobs

    def _check(self, checks: Checks) -> None:
        """Raise ConfigError unless each point has one training stage whose steps the grid does not set."""
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
        if point.path not in self._steps:
            common = {name: value for name, value in point.options.items() if name not in settings}
            base = replace(point, name=f"{point.task}/base", options=common)
            (steps, flops), (_, target) = checks.work(point), checks.work(base)
            self._steps[point.path] = target * steps / flops
        steps = max(1, round(self._steps[point.path] / 2 ** (self._rungs - self._rung)))
        options = {**point.options, f"{recipe.where(0)}.steps": str(steps)}
        return replace(point, name=f"{point.path}@{self._rung}", options=options, rung=self._rung)


def _half(number: int) -> int:
    return (number + 1) // 2


MakePoint = Callable[[Mapping[str, str]], CommandJob]  # makes the point of some settings


class _Space(NamedTuple):
    """The points of a task. name: that of its study, which changes with the grid, the sampler and the seed."""

    name: str
    distributions: dict[str, Any]
    point: MakePoint


class Study:
    """A study of Optuna for each task of a sweep.

    trials: number of points that a task gets in all. sampler: "tpe" (Bergstra et al. 2011) or "random". seed: 0 if
    None. A point depends on the seed, its number, and the scores known when it is chosen. budget: limit of
    milliseconds; a point over it counts as a trial, but does not run.
    """

    def __init__(self, trials: int, sampler: Literal["tpe", "random"], seed: int | None, budget: Budget | None = None):
        with needs_extra("--trials", "optuna"):
            import optuna  # pyright: ignore[reportMissingImports]
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._trials, self._choice = optuna, trials, (sampler, seed or 0)
        self._budget, self._returned, self._remaining = budget, set[str](), 0
        self._sampler = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.RandomSampler
        self._spaces: dict[str, _Space] = {}

    @property
    def total(self) -> int:
        """Number of jobs, if no further point is over the budget or drawn twice."""
        return len(self._returned) + self._remaining

    def draw(self, task: str, grid: Mapping[str, Any], point: MakePoint) -> list[CommandJob]:
        """Return the points of a task that the study would choose without any score."""
        distributions = {key: self._distribution(values) for key, values in grid.items()}
        digest = hashlib.sha256(repr((self._choice, sorted(distributions.items()))).encode()).hexdigest()
        self._spaces[task] = space = _Space(f"{task}/{digest[:12]}", distributions, point)
        study = self._optuna.create_study()
        jobs = [self._new_trial(study, space)[1] for _ in range(self._trials)]
        return list({job.name: job for job in jobs}.values())

    def choose(self, checks: Checks, processes: int) -> list[CommandJob]:
        """Return the next points, or jobs that measure their models, and add them to the record's list; [] at the end.

        The first call also returns the earlier points of an interrupted sweep. processes: number of points that can
        run at once.
        """
        record, chosen = checks.record, dict[str, CommandJob]()
        listed, self._remaining = {job.name: job for job in record.list.jobs}, 0
        for task, space in self._spaces.items():
            study = self._open(record, space, "minimize" if task in TRAINING else "maximize")
            jobs = [(trial.number, self._point(space, trial.params)) for trial in study.get_trials(deepcopy=False)]
            new: dict[str, CommandJob] = {}
            share = max(1, processes // len(self._spaces))
            while jobs or len(study.get_trials(deepcopy=False)) < self._trials:
                if not jobs and len(record.waiting([*new.values()])) >= share:
                    break
                number, job = jobs.pop(0) if jobs else self._new_trial(study, space)
                due = self._report(study, checks, number, job)
                listed[job.name] = job
                if due is not None and due.name not in self._returned:  # a failed one waits for the next command
                    new[due.name] = due
                    self._remaining += due is not job  # the point follows its measurement
            chosen |= new
            self._remaining += self._trials - len(study.get_trials(deepcopy=False))
        self._returned |= chosen.keys()
        record.list = replace(record.list, jobs=(*(listed | chosen).values(),))
        return list(chosen.values())

    def _distribution(self, values: Any) -> Any:
        kinds = self._optuna.distributions
        if not isinstance(values, ValueRange):
            return kinds.CategoricalDistribution(values)
        whole = isinstance(values.low, int) and isinstance(values.high, int)
        return (kinds.IntDistribution if whole else kinds.FloatDistribution)(values.low, values.high, log=values.log)

    def _open(self, record: JobRecord, space: _Space, direction: Literal["minimize", "maximize"]) -> Any:
        file, storages = record.path / "optuna.log", self._optuna.storages  # the trials of all studies
        try:
            storage = storages.JournalStorage(storages.journal.JournalFileBackend(str(file)))
            return self._optuna.create_study(
                storage=storage, study_name=space.name, direction=direction, load_if_exists=True
            )
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{file} is damaged: {error}. Remove it; the study starts again, and its points remain."
            ) from error

    def _new_trial(self, study: Any, space: _Space) -> tuple[int, CommandJob]:
        """Return a new trial's number and point. Each trial has a seed of its own, so that a study can be resumed."""
        seed = repr((self._choice[1], len(study.get_trials(deepcopy=False))))
        study.sampler = self._sampler(seed=int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16))
        trial = study.ask(space.distributions)
        return trial.number, self._point(space, trial.params)

    def _point(self, space: _Space, params: Mapping[str, Any]) -> CommandJob:
        fractions = tuple(key for key, value in params.items() if isinstance(value, float))
        settings = {key: f"{value:.4g}" if key in fractions else str(value) for key, value in params.items()}
        return replace(space.point(settings), fractions=fractions)

    def _report(self, study: Any, checks: Checks, number: int, job: CommandJob) -> CommandJob | None:
        """Report a finished point's score to the study; return the job to run for a point (`Budget.next_job`).

        A point over the budget is a pruned trial. A point that failed stays open, and the next command repeats it.
        """
        record = checks.record
        due = self._budget.next_job(checks, job) if self._budget else job
        if due is None:
            study.tell(number, state=self._optuna.trial.TrialState.PRUNED, skip_if_finished=True)
        elif due == job and record.entry(job) is not None:
            checks.recipe(job)  # the score of a training is that of its last step
            study.tell(number, record.scores(job)["score"], skip_if_finished=True)
        return due


Chooser = Halving | Study  # chooses the points of a sweep by the scores of earlier ones
