"""Run a fine-tuning: resolve the task and the model, train one seed after another, summarise them in results.json."""

import logging
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from bertzoo.core import atomic, config
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import Location, on_disk
from bertzoo.finetuning.embedding import STSB, EmbeddingTask
from bertzoo.finetuning.entities import EntityTask
from bertzoo.finetuning.kind import BASELINES, RESULTS
from bertzoo.finetuning.labels import LabelTask
from bertzoo.finetuning.multi_task import MultiTask
from bertzoo.finetuning.question_answering import QuestionTask
from bertzoo.finetuning.seeds import Seed, SeedJob, read_decision
from bertzoo.finetuning.settings import EMBEDDING, JOINT, SEVERAL, Finetune
from bertzoo.finetuning.task_kind import TaskKind, check_options
from bertzoo.finetuning.warm_start import WORDS, load_starting_model
from bertzoo.heads import NoHead, parameter_shapes
from bertzoo.runs import provenance
from bertzoo.runs.provenance import software
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.tasks.custom import question_task
from bertzoo.tasks.decision import describe
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.squad_tasks import SQUAD
from bertzoo.train import sharding
from bertzoo.train.step import keep_programs

_LOG = logging.getLogger(__name__)

NAMES = (*(name for name, task in GLUE.items() if task.train), *SQUAD, "own")  # tasks with a training set
EXAMPLES = "examples_sha256"  # key of run.json
FREE = ("seeds", "log_every", "data_dir")  # keys that may change when a run resumes
Results = dict[str, Any]


def resolve_task(recipe: Finetune) -> TaskKind:
    """Return the task that a config names. Its `recipe` names the files of the task `own`, if they have usual names.

    Raises ConfigError if the task is unknown or an option does not apply to the task.
    """
    name, own = recipe.task, recipe.own
    if not name:
        raise ConfigError(f"--task is missing. Use one of {', '.join(NAMES)}.")
    if name not in NAMES and name not in GLUE:
        raise ConfigError(f"task = {name!r} is unknown. Use one of {', '.join(NAMES)}.")
    if recipe.embeds and name not in (STSB, "own"):
        raise ConfigError(f"head = {recipe.head!r} is trained on task = stsb or own, not on {name}. Use one of them.")
    if name == "own":
        own = own.with_usual_files(recipe.data_dir)
        recipe = replace(recipe, own=own)
        if recipe.embeds and own.kind != "texts":
            raise ConfigError(
                f"head = {recipe.head!r} needs own.kind = 'texts', not {own.kind!r}. Set own.kind, or remove head."
            )
    if recipe.embeds:
        kind = EMBEDDING
    elif name in SQUAD or (name == "own" and own.kind == "span"):
        kind = JOINT if recipe.squad.joint else "span"
    elif name in GLUE:
        kind = GLUE[name].kind
    else:
        kind = SEVERAL if own.heads else own.kind
    check_options(recipe, kind, name)
    if kind == EMBEDDING:
        task = EmbeddingTask(recipe, own if name == "own" else None)
    elif kind in (JOINT, "span"):
        task = QuestionTask(recipe, SQUAD[name] if name in SQUAD else question_task(own))
    elif kind == SEVERAL:
        task = MultiTask.of(recipe)
    elif kind == "entities":
        task = EntityTask(recipe, own.task(recipe.data_dir))
    else:
        task = LabelTask(recipe, GLUE[name] if name in GLUE else own.task(recipe.data_dir))
    task.check()
    return task


def train(recipe: Finetune, run_dir: str, origin: Location | None, teacher: Location | None) -> Results:
    """Train every seed that is not finished, write results.json and return its content.

    origin: path of the model to fine-tune. teacher: path of the teacher. None: the path in run.json.

    Raises the errors of `train.loop.run`.
    """
    on_disk(run_dir, "the run directory", "Use a local or mounted directory, and copy the finished run to the URL.")
    task, run = resolve_task(recipe), RunDirectory(run_dir)
    recipe = task.recipe
    check_teacher(recipe, task, teacher, recorded=run.origin("teacher") is not None)
    # 1. The model to fine-tune, with a head for the task.
    start = load_starting_model(run.model_path("from", origin)[0], recipe, task)
    recipe = start.recipe
    with run.locked():
        check_config(run, recipe)
        for line in start.report:
            _LOG.info(line)
        # 2. The devices as a mesh, and the task's examples as rows, with the teacher's predictions if there is one.
        mesh = sharding.make_mesh(recipe.mesh)
        teacher = run.model_path("teacher", teacher)[0] if recipe.alpha < 1 else None
        job = SeedJob(task, start, mesh, teacher)
        models = {"from": start.record} | ({"teacher": job.teacher} if job.teacher else {})
        recipe.compute.log_format()
        # 3. The run's config and provenance; last, so that wrong input leaves no files behind.
        claim(run, recipe, models, job.digests)
        if not (run.path / BASELINES).is_file() and (simple := task.compare(job.train, job.dev, start.initial[WORDS])):
            atomic.write_json(run.path / BASELINES, simple)
        keep_programs()
        # 4. One experiment (`SeedJob.experiment`), trained from each seed; each keeps the model of its best epoch.
        numbers = range(recipe.seed, recipe.seed + recipe.seeds)
        seeds = [Seed(job, seed, run.path / f"seed-{seed}") for seed in numbers]
        for seed in seeds:
            seed.run(followed=seed is not seeds[-1])
        # 5. The scores of all seeds, and which seed is best.
        results = _summarise(job, seeds, run.path / BASELINES)
        atomic.write_json(run.path / RESULTS, results)
        return results


def check_teacher(recipe: Finetune, task: TaskKind, teacher: Location | None, recorded: bool = False) -> None:
    """Raise ConfigError if alpha and the teacher contradict each other, or the task cannot use a teacher.

    With alpha < 1, a run must have a teacher; with alpha = 1, it must not have one.

    recorded: whether run.json names a teacher, which a resumed run uses.
    """
    if not task.head.distillable and (teacher is not None or recipe.alpha < 1):
        option = f"alpha = {recipe.alpha}" if teacher is None else f"--teacher={teacher}"
        raise ConfigError(
            f"{option} does not apply to {task.name}, whose head {task.head.kind} cannot have a teacher. Remove it."
        )
    if recipe.alpha < 1 and teacher is None and not recorded:
        raise ConfigError(f"alpha = {recipe.alpha} needs a teacher. Name it with --teacher.")
    if recipe.alpha == 1 and (teacher is not None or recorded):
        source = f"--teacher={teacher}" if teacher is not None else "the teacher in run.json"
        raise ConfigError(f"alpha = 1 trains on the labels alone, without {source}. Set alpha below 1.")


def _summarise(job: SeedJob, seeds: list[Seed], baselines: Path) -> Results:
    rows = []
    for seed in seeds:
        chosen = {key: value for key, value in seed.chosen.items() if key != "loss"}
        decided = {} if (decision := read_decision(seed.folder)) is None else {"decision": decision}
        rows.append({"seed": seed.seed, **chosen, **decided, "history": seed.history})

    shapes = parameter_shapes(job.start.model, NoHead(pooler=job.start.head.pooler))
    simple = read_json(baselines, {"scores": {str: dict}}, "Remove the file.") if baselines.is_file() else {}

    def over_seeds(summary: Callable[[list[float]], float]) -> dict[str, dict[str, float]]:
        return {
            split: {name: summary([row["scores"][split][name] for row in rows]) for name in scores}
            for split, scores in rows[0]["scores"].items()
        }

    return {
        "version": 1,
        "task": job.task.name,
        "model": {"kind": job.start.model.kind, "parameters": sum(math.prod(shape) for shape in shapes.values())},
        "from": job.start.record["path"],
        "config": config.plain(job.recipe),
        "examples": job.examples,
        "skipped": job.skipped,
        "seeds": rows,
        "best": max(rows, key=lambda row: row["score"])["seed"],
        "median": over_seeds(statistics.median),
        "min": over_seeds(min),
        "max": over_seeds(max),
        **({"baselines": simple} if simple else {}),
    }


def summary_lines(results: Results) -> Iterator[str]:
    """Yield lines for the console: scores of each seed's chosen epoch, then each score's median and range."""

    def label(split: str, name: str) -> str:
        return name if len(results["median"]) == 1 else f"{split} {name}"

    for row in results["seeds"]:
        scores = (
            f"{label(s, name)} {value:.2f}" for s, named in row["scores"].items() for name, value in named.items()
        )
        flag = "; every example got the same prediction" if row["collapsed"] else ""
        yield f"seed {row['seed']}, epoch {row['epoch']}: {', '.join(scores)}{flag}"
        yield from (f"  {line}" for line in describe(row["decision"])) if "decision" in row else ()
    for split, scores in results["median"].items():
        for name, value in scores.items():
            score, count = f"{label(split, name)} {value:.2f}", len(results["seeds"])
            low, high = results["min"][split][name], results["max"][split][name]
            yield f"1 seed: {score}" if count == 1 else f"median of {count} seeds: {score} ({low:.2f} to {high:.2f})"
    for name, splits in results.get("baselines", {}).get("scores", {}).items():
        scores = (f"{label(s, metric)} {value:.2f}" for s, named in splits.items() for metric, value in named.items())
        yield f"  for comparison, {name}: {', '.join(scores)}"


def check_config(run: RunDirectory, recipe: Finetune) -> None:
    """Raise ConfigError if a resumed run changes a key that is not in FREE, or leaves out a seed that was trained."""
    if not run.config.exists():
        return
    before = config.load(Finetune, [run.config])
    changed = [line for line in config.difference(before, recipe) if line.split(":")[0] not in FREE]
    if _started(run):
        config.reject(run.name, changed)
    last = recipe.seed + recipe.seeds - 1
    if lost := [seed for seed in range(last + 1, before.seed + before.seeds) if (run.path / f"seed-{seed}").is_dir()]:
        raise ConfigError(
            f"{run.name} has trained seed {lost[0]}, which seeds = {recipe.seeds} would drop from the results. Use "
            f"seeds = {lost[-1] + 1 - recipe.seed} or more, or a different --run_dir."
        )


def claim(run: RunDirectory, recipe: Finetune, models: dict[str, dict[str, Any]], digests: Mapping[str, str]) -> None:
    """Write config.toml and run.json; raises UserError if the run began with other parameters or examples.

    models: records of the model to fine-tune ("from") and of the "teacher". digests: hash of the examples by split.
    """
    for name, record in models.items():
        run.check_same_model(name, run.origin(name) if _started(run) else None, record)
    before = run.provenance().get(EXAMPLES, {}) if _started(run) else {}
    if differing := [split for split, digest in digests.items() if before.get(split, digest) != digest]:
        where = f" in {recipe.data_dir}" if recipe.data_dir else ""
        raise UserError(
            f"the examples of {' and '.join(differing)}{where} differ from those that {run.name} started with. "
            "Restore the files or use a different --run_dir."
        )
    run.path.mkdir(parents=True, exist_ok=True)
    run.write_config(recipe)
    devices = sorted({device.device_kind for device in jax.devices()})
    provenance.write_run_json(run.path, {**software(), "devices": devices, EXAMPLES: dict(digests), **models})


def _started(run: RunDirectory) -> bool:
    return any(run.path.glob("seed-*"))
