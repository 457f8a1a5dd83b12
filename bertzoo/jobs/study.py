"""Choose a sweep's points by Optuna, a few at a time: it learns from the scores of the finished points."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from bertzoo.core.errors import UserError, needs_extra
from bertzoo.jobs.check import Checks
from bertzoo.jobs.halving import Budget
from bertzoo.jobs.job import TRAINING, CommandJob
from bertzoo.jobs.record import JobRecord
from bertzoo.jobs.sweep import ValueRange

MakePoint = Callable[[Mapping[str, str]], CommandJob]  # makes the point of some settings


class _Space(NamedTuple):
    """What a task's points can be. name: of its study; it changes with the grid, the sampler and the seed."""

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
        self._budget, self._returned, self._left = budget, set[str](), 0
        self._sampler = optuna.samplers.TPESampler if sampler == "tpe" else optuna.samplers.RandomSampler
        self._spaces: dict[str, _Space] = {}

    @property
    def total(self) -> int:
        """Number of jobs, if no further point is over the budget or drawn twice."""
        return len(self._returned) + self._left

    def draw(self, task: str, grid: Mapping[str, Any], point: MakePoint) -> list[CommandJob]:
        """Return the points of a task that the study would choose if it never learnt a score."""
        distributions = {key: self._distribution(values) for key, values in grid.items()}
        digest = hashlib.sha256(repr((self._choice, sorted(distributions.items()))).encode()).hexdigest()
        self._spaces[task] = space = _Space(f"{task}/{digest[:12]}", distributions, point)
        study = self._optuna.create_study()
        jobs = [self._ask(study, space)[1] for _ in range(self._trials)]
        return list({job.name: job for job in jobs}.values())

    def choose(self, checks: Checks, processes: int) -> list[CommandJob]:
        """Return the next points, or jobs that measure their models, and add them to the record's list; [] at the end.

        The first call also returns the earlier points of an interrupted sweep. processes: number of points that can
        run at once.
        """
        record, chosen = checks.record, dict[str, CommandJob]()
        listed, self._left = {job.name: job for job in record.list.jobs}, 0
        for task, space in self._spaces.items():
            study = self._open(record, space, "minimize" if task in TRAINING else "maximize")
            jobs = [(trial.number, self._point(space, trial.params)) for trial in study.get_trials(deepcopy=False)]
            new: dict[str, CommandJob] = {}
            share = max(1, processes // len(self._spaces))
            while jobs or len(study.get_trials(deepcopy=False)) < self._trials:
                if not jobs and len(record.waiting([*new.values()])) >= share:
                    break
                number, job = jobs.pop(0) if jobs else self._ask(study, space)
                due = self._tell(study, checks, number, job)
                listed[job.name] = job
                if due is not None and due.name not in self._returned:  # a failed one waits for the next command
                    new[due.name] = due
                    self._left += due is not job  # the point follows its measurement
            chosen |= new
            self._left += self._trials - len(study.get_trials(deepcopy=False))
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
                f"{file} is damaged: {error}. Remove it; the study begins anew, its points stay."
            ) from error

    def _ask(self, study: Any, space: _Space) -> tuple[int, CommandJob]:
        """Return a new trial's number and point. Each trial has a seed of its own, so that a study can be resumed."""
        seed = repr((self._choice[1], len(study.get_trials(deepcopy=False))))
        study.sampler = self._sampler(seed=int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16))
        trial = study.ask(space.distributions)
        return trial.number, self._point(space, trial.params)

    def _point(self, space: _Space, params: Mapping[str, Any]) -> CommandJob:
        fractions = tuple(key for key, value in params.items() if isinstance(value, float))
        settings = {key: f"{value:.4g}" if key in fractions else str(value) for key, value in params.items()}
        return replace(space.point(settings), fractions=fractions)

    def _tell(self, study: Any, checks: Checks, number: int, job: CommandJob) -> CommandJob | None:
        """Give the study a finished point's score, and return the job to run for a point (`Budget.next_job`).

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
