"""What a teacher is worth: the objectives of MobileBERT's Table 9 and the strategies of its Table 8, on a small scale.

    python -m benchmarks learning.knowledge --runs=runs/knowledge --glue=glue

For every seed a teacher is pretrained on the embedded corpus and eight students learn from it, each in a run of its own
under --runs, which resumes. A run takes minutes on a core, all of them over an hour on two; --jobs runs go at a time.
With --glue, which holds SST-2 and STS-B as GLUE lays them out, every model is also fine-tuned on a part of both.

Fails if a model is not 0.3 nats below the unigram entropy, or if a teacher loses less than 0.05 nats without its
attention: MobileBERT sees three tokens at a time without it, and would have little to teach.
"""

import argparse
import dataclasses
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, finetune, heldout
from bertzoo.core import atomic, config
from bertzoo.runs import load_model
from bertzoo.runs.configs import Pretrain, Transfer
from bertzoo.train.state import name_of

STUDENT_RECIPE, TEACHER_RECIPE = (
    str(Path(__file__).with_name(f"knowledge_{model}.toml")) for model in ("student", "teacher")
)
LAYERS, TRANSFER, AFTER = 3, 100, 300  # layers; steps for each of them; steps of the distillation
RATE, BEFORE = 4e-3, 2400  # every learning rate; steps of the teacher
BELOW, ATTENDS = 0.3, 0.05  # targets: nats below the unigram entropy; nats that a teacher's attention is worth
LEARNING = [
    *("--optimizer.kind=adamw", f"--optimizer.learning_rate={RATE}", "--optimizer.beta2=0.999"),
    "--optimizer.schedule.warmup_share=0",
]
SAVING = ["--run.evaluate_every=300", "--run.save_every=300"]  # of teachers
SIZES = {"layers": LAYERS, "hidden_size": 64, "bottleneck_size": 64, "feed_forward_size": 256}
NARROW = {**SIZES, "bottleneck_size": 32, "feed_forward_size": 64}
PLAIN = ["--model.activation=gelu_tanh"]  # without the paper's operational optimisations
OPTIMISED = ["--model.norm=no_norm", "--model.activation=relu"]
ALONE = ["--transfer.kind=nothing", f"--distillation.0.steps={LAYERS * TRANSFER + AFTER}"]
TAUGHT = [f"--distillation.0.steps={AFTER}", f"--transfer.learning_rate={RATE}"]
EACH, WHOLE = [*TAUGHT, f"--transfer.steps={TRANSFER}"], [*TAUGHT, f"--transfer.steps={LAYERS * TRANSFER}"]
TEACHER = ["--teacher.attention_dropout=0.1", "--teacher.initializer_range=0.02"]  # as in the teacher's recipe; unused
NO_TEACHER = ["--knowledge.ground_truth=1.0"]
SHAPE = ["--transfer.batch_size=64", "--transfer.max_length=64", "--transfer.max_predictions=10"]
TOGETHER = [*WHOLE, *SHAPE]
SINGLE = [
    *SHAPE,
    f"--transfer.learning_rate={RATE}",
    f"--transfer.steps={LAYERS * TRANSFER + AFTER}",
    "--distillation=[]",
]
# GLUE tasks: folder and metric; how models are fine-tuned on both.
TASKS = {"sst2": ("SST-2", "accuracy"), "stsb": ("STS-B", "spearman")}
TUNING = ["--seeds=1", "--epochs=2", "--train_rows=2000", "--max_length=64", "--optimizer.learning_rate=1e-3"]
# Students: their names in the tables, and their options.
OBJECTIVES = {
    "bare": [*PLAIN, *ALONE],
    "bare, embedding and heads copied": [*PLAIN, *ALONE, *NO_TEACHER],
    "PD": [*PLAIN, *ALONE],
    "PD + FMT": [*PLAIN, *EACH, "--knowledge.attention=0"],
    "PD + FMT + AT": [*PLAIN, *EACH],
}
STRATEGIES = {
    "AKT": [*OPTIMISED, *SINGLE, "--transfer.kind=auxiliary"],
    "JKT": [*OPTIMISED, *TOGETHER, "--transfer.kind=joint"],
    "PKT": [*OPTIMISED, *EACH],
}
STUDENTS = OBJECTIVES | STRATEGIES
GROUPS = {"objectives": ["teacher", *OBJECTIVES], "strategies": list(STRATEGIES)}


def sized(table: str, sizes: dict[str, int]) -> list[str]:
    """Options of a model's sizes."""
    return [f"--{table}.{name}={size}" for name, size in sizes.items()]


def bare(options: list[str], file: Path) -> list[str]:
    """The command of a student without a teacher, whose config, equal in all else, is written to a file."""
    pairs = [option.removeprefix("--").split("=", 1) for option in options]
    recipe = config.load(Transfer, [STUDENT_RECIPE], [(key, value) for key, value in pairs])
    tables = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(Pretrain)}
    tables["model"] = dataclasses.replace(recipe.model, dropout=0.0, attention_dropout=0.0)  # as under a teacher
    file.write_text(config.dump(Pretrain(**tables)), encoding="utf-8")
    return ["pretrain", str(file)]


def silenced(run: Path) -> float:
    """The held-out MLM loss of a run with the output of its attention set to 0."""
    trained = load_model.load_run(run)
    params = jax.tree.map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "/attention/output/" in name_of(path) else leaf, trained.params
    )
    stage = len(trained.recipe.stages) - 1
    trained = dataclasses.replace(trained, params=params)
    return load_model.heldout_means(trained, trained.run.open_corpus(None), stage)[1]["mlm_loss"]


def figures(run: Path, glue: Path | None) -> dict[str, Any]:
    """A run's figures on the held-out text, and its scores on GLUE tasks."""
    result = heldout(run, f"--below_unigram={BELOW}")
    if "silenced" not in result:
        result["silenced"] = silenced(run)
        atomic.write_json(run / "heldout.json", result)
    result["worth"] = result["silenced"] - result["mlm_loss"]
    for task, (folder, metric) in TASKS.items() if glue else ():
        words = [f"--task={task}", f"--data_dir={glue / folder}", f"--from={run}", *TUNING]
        result[task] = finetune(words, run.parent / f"{run.name}-{task}")["median"]["dev"][metric]
    print(f"{run.name}: {result['mlm_loss']:.3f}, its attention is worth {result['worth']:.3f}", flush=True)
    return result


def teacher(seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of a seed's teacher, which must use its attention."""
    run = args.runs / f"{seed}-teacher"
    words = [*sized("model", SIZES), *LEARNING, *SAVING, f"--stages.0.steps={args.before}", f"--seed={seed}"]
    bertzoo("pretrain", TEACHER_RECIPE, *words, f"--run_dir={run}")
    result = figures(run, args.glue)
    if result["worth"] < ATTENDS:
        sys.exit(f"the attention of {run} is worth {result['worth']:.3f} nats, not {ATTENDS}: it has little to teach")
    return result


def student(seed: int, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of one student of a seed's teacher."""
    run, source = args.runs / f"{seed}-{name.replace(' ', '_').replace(',', '')}", args.runs / f"{seed}-teacher"
    options = [*sized("model", NARROW), *sized("teacher", SIZES), *TEACHER, *LEARNING, *STUDENTS[name]]
    words = ["transfer", STUDENT_RECIPE, *options, f"--teacher={source}"]
    if name == "bare":
        words = bare(options, args.runs / f"{seed}-bare.toml")
    bertzoo(*words, f"--seed={seed}", f"--data.source={source / 'corpus'}", f"--run_dir={run}")
    return figures(run, args.glue)


def row(name: str, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """A model's row: held-out losses of every seed, medians, and the scores of tasks."""

    def median(key: str) -> float:
        return round(statistics.median(seed[key] for seed in seeds), 3)

    cells: dict[str, Any] = {"model": name, "MLM loss, median": median("mlm_loss")}
    cells |= {"each seed": [round(seed["mlm_loss"], 3) for seed in seeds]}
    cells |= {"of hidden tokens, median": median("mlm_hidden_loss"), "attention is worth, median": median("worth")}
    for task, (title, metric) in TASKS.items():
        points = [round(seed[task], 1) for seed in seeds if task in seed]
        cells[f"{title} {metric}, median"] = statistics.median(points) if points else None
        cells[f"{title}, each"] = points or None
    return cells


def main() -> None:
    """Train the missing models and write the result."""
    parser = results.parser("knowledge", __doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/knowledge"), help="where the runs are kept")
    results.add_numbers(parser, seeds=3, jobs=1, before=BEFORE)
    parser.add_argument("--glue", type=Path, help="the folder of SST-2 and STS-B")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seeds)
    with ThreadPoolExecutor(args.jobs) as pool:
        models = {"teacher": list(pool.map(lambda seed: teacher(seed, args), seeds))}
        jobs = {name: [pool.submit(student, seed, name, args) for seed in seeds] for name in STUDENTS}
        models |= {name: [job.result() for job in started] for name, started in jobs.items()}
    tables = {name: [row(model, models[model]) for model in group] for name, group in GROUPS.items()}
    entropy = models["teacher"][0]["unigram_entropy"]
    context = [f"word frequencies alone reach {entropy:.3f} nats", results.packages("jax")]
    results.write(args.out, context, tables)
