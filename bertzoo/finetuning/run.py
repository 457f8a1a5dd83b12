"""A fine-tuning run: its task and its model put together, its seeds one after another, and what they came to."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.families import family_of
from bertzoo.finetuning.run_dir import check_config, claim, model_of
from bertzoo.finetuning.seeds import Seed, Work
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Family
from bertzoo.finetuning.warm_start import begin
from bertzoo.models.parts import padding_seen
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train import sharding

RESULTS = "results.json"
Results = dict[str, Any]


def train(
    recipe: Finetune, run_dir: str, origin: Path | None, teacher: Path | None, tell: Callable[[str], None]
) -> Results:
    """Train every seed that is not done yet, write results.json and return it; raises as the loop does."""
    on_disk(run_dir, "the run directory", "name a directory, a mounted one perhaps, and copy what is made there")
    task, run = family_of(recipe), RunDirectory(run_dir)
    check_teacher(recipe, task, teacher, known=run.origin("teacher") is not None)
    begun = begin(model_of(run, "from", origin), recipe, task)
    with run.locked():
        check_config(run, recipe)
        for line in begun.said:
            tell(line)
        mesh = sharding.make_mesh(recipe.mesh)
        teaches = model_of(run, "teacher", teacher) if recipe.alpha < 1 else None
        lessons = task.lessons(begun.objective, begun.tokenizer, padding_seen(begun.model), mesh, teaches, tell)
        models = {"from": begun.record} | ({"teacher": lessons.teacher} if lessons.teacher else {})
        claim(run, recipe, models, lessons.digests)  # after all has been read: what is refused leaves nothing behind
        work = Work(recipe=recipe, begun=begun, task=task.name, mesh=mesh, lessons=lessons, tell=tell)
        numbers = range(recipe.seed, recipe.seed + recipe.seeds)
        seeds = [Seed(work, seed, run.path / f"seed-{seed}") for seed in numbers]
        for seed in seeds:
            seed.run()
        return _results(work, seeds, run.path / RESULTS)


def check_teacher(recipe: Finetune, task: Family, teacher: Path | None, known: bool = False) -> None:
    """Raise ConfigError where a teacher, given or `known` already, does not go with its share or with the task."""
    if not task.taught and (teacher is not None or recipe.alpha < 1):
        given = f"alpha = {recipe.alpha}" if teacher is None else f"--teacher={teacher}"
        raise ConfigError(f"{given}: {task.name} is a task that is learnt without a teacher: leave it out")
    if (recipe.alpha < 1) != (teacher is not None or known):
        raise ConfigError(
            f"alpha = {recipe.alpha} leaves a share of what is learnt to a teacher: name it with --teacher"
            if recipe.alpha < 1
            else f"--teacher={teacher} is given, but alpha = 1 learns from the labels alone; give alpha below 1"
        )


def _results(work: Work, seeds: list[Seed], file: Path) -> Results:
    begun, lessons, rows = work.begun, work.lessons, []
    for seed in seeds:
        kept = {key: value for key, value in seed.chosen.items() if key != "loss"}
        rows.append({"seed": seed.seed, **kept, "history": seed.history})

    def over(summary: Callable[[list[float]], float]) -> dict[str, dict[str, float]]:
        return {
            split: {name: summary([row["scores"][split][name] for row in rows]) for name in scores}
            for split, scores in rows[0]["scores"].items()
        }

    found = {
        "version": 1,
        "task": work.task,
        "model": {"kind": begun.model.kind, "parameters": begun.parameters},
        "from": begun.record["path"],
        "config": loader.plain(work.recipe),
        "examples": lessons.examples,
        "skipped": lessons.skipped,
        "seeds": rows,
        "best": max(rows, key=lambda row: row["score"])["seed"],
        "median": over(statistics.median),
        "min": over(min),
        "max": over(max),
    }
    atomic.write_json(file, found)
    return found


def as_json(found: Results) -> str:
    """The results as one JSON document."""
    return json.dumps(found)


def lines(found: Results) -> list[str]:
    """The results for a person: every seed's chosen epoch, and the median with the least and the greatest."""
    said = []
    for row in found["seeds"]:
        scores = ", ".join(f"{_called(split, name, found)} {value:.2f}" for split, name, value in _each(row["scores"]))
        flag = "; every example got one answer" if row["collapsed"] else ""
        said.append(f"seed {row['seed']}, epoch {row['epoch']}: {scores}{flag}")
    for split, name, value in _each(found["median"]):
        least, most = found["min"][split][name], found["max"][split][name]
        called = _called(split, name, found)
        said.append(f"median of {len(found['seeds'])} seeds: {called} {value:.2f} ({least:.2f} to {most:.2f})")
    return said


def _each(scores: dict[str, dict[str, float]]) -> Iterator[tuple[str, str, float]]:
    return ((split, name, value) for split, found in scores.items() for name, value in found.items())


def _called(split: str, name: str, found: Results) -> str:
    return name if len(found["median"]) == 1 else f"{split} {name}"
