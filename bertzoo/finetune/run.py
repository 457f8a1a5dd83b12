"""A fine-tuning run: its task and its model put together, its seeds one after another, and what they came to."""

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertzoo import config as loader
from bertzoo.data.rng import fold, fold_arrays
from bertzoo.data.vocabulary import write_atomically
from bertzoo.errors import ConfigError
from bertzoo.finetune import teacher as teaching
from bertzoo.finetune.begin import Begun, begin
from bertzoo.finetune.claim import check_config, claim, model_of
from bertzoo.finetune.judge import Judge, Split, scaled
from bertzoo.finetune.seeds import Seed, Work
from bertzoo.finetune.settings import Finetune
from bertzoo.objectives.labelled import TEACHER
from bertzoo.rundir import RunDirectory
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.task import Example, Task, double_unordered
from bertzoo.train import sharding
from bertzoo.train.step import HostBatch

RESULTS = "results.json"
_SUBSET = 3  # what is drawn
Results = dict[str, Any]


def task_of(recipe: Finetune) -> Task:
    """The task that a config names; raises ConfigError where there is none of that name."""
    if not recipe.task:
        raise ConfigError(f"no task is named; give --task with one of {', '.join(GLUE)} or own")
    if recipe.task == "own":
        return recipe.own.task(recipe.data_dir)
    if recipe.task not in GLUE:
        raise ConfigError(f"task = {recipe.task!r} is unknown; the tasks are {', '.join(GLUE)} and own")
    return GLUE[recipe.task]


def train(
    recipe: Finetune, run_dir: str, origin: Path | None, teacher: Path | None, tell: Callable[[str], None]
) -> Results:
    """Train every seed that is not done yet, write results.json and return it; raises as the loop does."""
    task, run = task_of(recipe), RunDirectory(run_dir)
    if not task.train or not task.dev:
        raise ConfigError(f"task = {task.name} has no {'development' if task.train else 'training'} examples")
    if (recipe.alpha < 1) != (teacher is not None or run.origin("teacher") is not None):
        raise ConfigError(
            f"alpha = {recipe.alpha} leaves a share of what is learnt to a teacher: name it with --teacher"
            if recipe.alpha < 1
            else f"--teacher={teacher} is given, but alpha = 1 learns from the labels alone; give alpha below 1"
        )
    begun = begin(model_of(run, "from", origin), recipe, task)
    with run.locked():
        check_config(run, recipe)
        for line in begun.said:
            tell(line)
        data = _read(recipe, task, begun, tell)
        mesh = sharding.make_mesh(recipe.mesh)
        theirs, models = None, {"from": begun.record}
        if recipe.alpha < 1:
            path = model_of(run, "teacher", teacher)
            theirs, models["teacher"] = teaching.logits(path, recipe, task, data.train.examples, mesh)
        claim(run, recipe, models)  # after all has been read: what is refused leaves nothing behind
        seeds = _seeds(recipe, task, begun, data, theirs, mesh, run.path, tell)
        for seed in seeds:
            seed.run()
        return _results(recipe, task, begun, data, seeds, run.path / RESULTS)


@dataclass(frozen=True, kw_only=True)
class _Data:
    train: Split
    dev: dict[str, Split]
    lengths: tuple[int, ...]
    skipped: dict[str, dict[str, int]]


def _read(recipe: Finetune, task: Task, begun: Begun, tell: Callable[[str], None]) -> _Data:
    read = {split: task.read(split, recipe.data_dir) for split in (*task.train, *task.dev)}
    examples = [example for split in task.train for example in read[split].examples]
    if recipe.train_rows > len(examples):
        raise ConfigError(f"train_rows = {recipe.train_rows} is more than the {len(examples)} examples there are")
    if recipe.train_rows:
        order = np.argsort(fold_arrays(fold(recipe.seed, _SUBSET), np.arange(len(examples))), kind="stable")
        examples = [examples[index] for index in sorted(order[: recipe.train_rows])]
    if recipe.double_unordered:
        if not task.symmetric:
            raise ConfigError(
                f"double_unordered is for pairs whose order means nothing, which those of {task.name} are not"
            )
        examples = double_unordered(examples)

    def split(found: list[Example]) -> Split:
        return Split(found, encode(found, begun.tokenizer, recipe.max_length, task.kind))

    made = _Data(
        train=split(examples),
        dev={name: split(read[name].examples) for name in task.dev},
        lengths=(),
        skipped={name: one.skipped for name, one in read.items() if one.skipped},
    )
    for name, reasons in made.skipped.items():
        tell(f"{name}: passed over {', '.join(f'{count} rows ({reason})' for reason, count in reasons.items())}")
    parts = {"train": made.train, **made.dev}
    for name, part in parts.items():
        cut = int(part.rows.cut.sum())
        more = f", {cut:,} of them cut to {recipe.max_length} tokens" if cut else ""
        tell(f"{name}: {len(part.rows):,} examples{more}")
    lengths = bucket_lengths([part.rows for part in parts.values()], recipe.buckets, recipe.max_length)
    tell(f"rows of {', '.join(map(str, lengths))} tokens")
    return _Data(train=made.train, dev=made.dev, lengths=lengths, skipped=made.skipped)


def _seeds(
    recipe: Finetune,
    task: Task,
    begun: Begun,
    data: _Data,
    theirs: np.ndarray | None,
    mesh: jax.sharding.Mesh,
    folder: Path,
    tell: Callable[[str], None],
) -> list[Seed]:
    judge = Judge(task, begun.objective, mesh, batch_size=recipe.batch_size, lengths=data.lengths, scale=recipe.scale)

    def batches(seed: int, row: int) -> Iterator[HostBatch]:
        rows, size = data.train.rows, recipe.batch_size
        epoch, done = divmod(row // size, -(-len(rows) // size))
        while True:
            for slot in rows.plan(size, data.lengths, seed, epoch)[done:]:
                batch = scaled(rows.batch(slot, size), recipe.scale)
                if theirs is not None:
                    batch[TEACHER] = np.zeros((size, theirs.shape[1]), np.float32)
                    batch[TEACHER][: len(slot.rows)] = theirs[slot.rows]
                yield batch
            epoch, done = epoch + 1, 0

    work = Work(
        recipe=recipe,
        begun=begun,
        task=task.name,
        mesh=mesh,
        rows=len(data.train.rows),
        judge=lambda params: judge(params, data.dev),
        batches=batches,
        tell=tell,
    )
    return [Seed(work, seed, folder / f"seed-{seed}") for seed in range(recipe.seed, recipe.seed + recipe.seeds)]


def _results(recipe: Finetune, task: Task, begun: Begun, data: _Data, seeds: list[Seed], file: Path) -> Results:
    rows = []
    for seed in seeds:
        kept = {key: value for key, value in seed.chosen.items() if key != "loss"}
        rows.append({"seed": seed.seed, **kept, "history": seed.history})

    def over(summary: Callable[[list[float]], float]) -> dict[str, dict[str, float]]:
        return {
            split: {name: summary([row["scores"][split][name] for row in rows]) for name in task.metrics}
            for split in task.dev
        }

    found = {
        "version": 1,
        "task": task.name,
        "model": {"kind": begun.model.kind, "parameters": begun.parameters},
        "from": begun.record["path"],
        "config": loader.plain(recipe),
        "examples": {"train": len(data.train.rows)} | {name: len(split.rows) for name, split in data.dev.items()},
        "skipped": data.skipped,
        "seeds": rows,
        "best": max(rows, key=lambda row: row["score"])["seed"],
        "median": over(statistics.median),
        "min": over(min),
        "max": over(max),
    }
    write_atomically(file, (json.dumps(found, indent=1) + "\n").encode())
    return found


def as_json(found: Results) -> str:
    """The results as one JSON document."""
    return json.dumps(found)


def lines(found: Results) -> list[str]:
    """The results for a person: every seed's chosen epoch, and the median with the least and the greatest."""
    said = []
    for row in found["seeds"]:
        scores = ", ".join(f"{_called(split, name, found)} {value:.2f}" for split, name, value in _each(row["scores"]))
        flag = "; every example got one class" if row["collapsed"] else ""
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
