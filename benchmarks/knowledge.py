"""What a teacher is worth: the objectives of MobileBERT's Table 9 and the strategies of its Table 8, on a small scale.

    python benchmarks/knowledge.py --runs=runs/knowledge --glue=glue

For every seed a teacher is pretrained on the embedded corpus and eight students are taught by it, each in a run of its
own under --runs, which is resumed if need be, and refused where it has other settings; the table in docs/results.md is
then written anew. A run takes minutes on a core, all of them over an hour on two; --jobs runs are done at a time. With
--glue, which holds SST-2 and STS-B as GLUE lays them out, every model is also fine-tuned on a part of both.

Fails where a model has not left the unigram entropy by 0.3 nats, or where a teacher loses less than 0.05 nats when its
attention is silenced: MobileBERT sees three tokens at a time without it, and would have little to teach.
"""

import argparse
import dataclasses
import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
from pages import write_section
from program import bertzoo

from bertzoo.core import config
from bertzoo.runs import load_run
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.runs.transfer_config import Transfer
from bertzoo.train.state import name_of

LAYERS, LESSON, AFTER = 3, 100, 300  # layers; steps for each of them; steps of the distillation
RATE, BEFORE = 4e-3, 2400  # of all; steps of the teacher
LEFT, ATTENDS = 0.3, 0.05  # nats below the unigram entropy; nats that a teacher's attention is worth
LEARNING = [
    *("--optimizer.kind=adamw", f"--optimizer.learning_rate={RATE}", "--optimizer.beta2=0.999"),
    "--optimizer.schedule.warmup_share=0",
]
KEEPING = ["--run.evaluate_every=300", "--run.save_every=300"]  # of the teachers
SIZES = {"layers": LAYERS, "hidden_size": 64, "bottleneck_size": 64, "feed_forward_size": 256}
NARROW = {**SIZES, "bottleneck_size": 32, "feed_forward_size": 64}
PLAIN = ["--model.activation=gelu_tanh"]  # without the operational optimisations: LayerNorm and gelu
OPTIMISED = ["--model.norm=no_norm", "--model.activation=relu"]
ALONE = ["--transfer.kind=nothing", f"--distillation.0.steps={LAYERS * LESSON + AFTER}"]
TAUGHT = [f"--distillation.0.steps={AFTER}", f"--transfer.learning_rate={RATE}"]
EACH, WHOLE = [*TAUGHT, f"--transfer.steps={LESSON}"], [*TAUGHT, f"--transfer.steps={LAYERS * LESSON}"]
OF_TEACHER = ["--teacher.attention_dropout=0.1", "--teacher.initializer_range=0.02"]  # which nothing computes with
NO_TEACHER = ["--knowledge.ground_truth=1.0"]
SHAPE = ["--transfer.batch_size=64", "--transfer.max_length=64", "--transfer.max_predictions=10"]
TOGETHER = [*WHOLE, *SHAPE]
# GLUE tasks: folder, and the metric that is shown; how a model is fine-tuned on either.
TASKS = {"sst2": ("SST-2", "accuracy"), "stsb": ("STS-B", "spearman")}
TUNING = ["--seeds=1", "--epochs=2", "--train_rows=2000", "--max_length=64", "--optimizer.learning_rate=1e-3"]
# The table's rows: what a student is called, and its options.
OBJECTIVES = {
    "bare": [*PLAIN, *ALONE],
    "bare, embedding and heads copied": [*PLAIN, *ALONE, *NO_TEACHER],
    "PD": [*PLAIN, *ALONE],
    "PD + FMT": [*PLAIN, *EACH, "--knowledge.attention=0"],
    "PD + FMT + AT": [*PLAIN, *EACH],
}
STRATEGIES = {
    "AKT": [*OPTIMISED, *TOGETHER, "--transfer.kind=auxiliary"],
    "JKT": [*OPTIMISED, *TOGETHER, "--transfer.kind=joint"],
    "PKT": [*OPTIMISED, *EACH],
}
STUDENTS = OBJECTIVES | STRATEGIES


def sized(table: str, sizes: dict[str, int]) -> list[str]:
    """The options of a model's sizes."""
    return [f"--{table}.{name}={size}" for name, size in sizes.items()]


def bare(options: list[str], file: Path) -> list[str]:
    """The words of a run of the student alone, whose config, the same in all else, is written to a file."""
    pairs = [option.removeprefix("--").split("=", 1) for option in options]
    recipe = config.load(Transfer, ["demo_transfer"], [(key, value) for key, value in pairs])
    tables = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(Pretrain)}
    tables["model"] = dataclasses.replace(recipe.model, dropout=0.0, attention_dropout=0.0)  # as under a teacher
    file.write_text(config.dump(Pretrain(**tables)), encoding="utf-8")
    return ["pretrain", str(file)]


def silenced(run: Path) -> float:
    """The held-out MLM loss of a run whose attention gives nothing."""
    trained = load_run.load_run(run)
    params = jax.tree.map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if "/attention/output/" in name_of(path) else leaf, trained.params
    )
    stage = len(trained.recipe.stages) - 1
    trained = dataclasses.replace(trained, params=params)
    return load_run.heldout_means(trained, trained.run.open_corpus(None), stage)[1]["mlm_loss"]


def figures(run: Path, glue: Path | None) -> dict[str, float]:
    """The run's figures on the held-out text, and the scores of GLUE tasks; fails where it is less than 0.3 nats below
    the unigram entropy.
    """
    kept = run / "heldout.json"
    if not kept.exists():
        found = json.loads(bertzoo("evaluate", str(run), f"--below_unigram={LEFT}", "--json"))
        kept.write_text(json.dumps(found | {"silenced": silenced(run)}))
    found = json.loads(kept.read_text())
    if glue is None:
        return found
    for task, (folder, metric) in TASKS.items():
        tuned = run.parent / f"{run.name}-{task}"
        if not (tuned / "results.json").exists():
            words = [f"--task={task}", f"--data_dir={glue / folder}", f"--from={run}", f"--run_dir={tuned}", *TUNING]
            bertzoo("finetune", "finetune", *words)
        found[task] = json.loads((tuned / "results.json").read_text())["median"]["dev"][metric]
    return found


def teacher(seed: int, runs: Path, glue: Path | None) -> dict[str, float]:
    """The figures of a seed's teacher, which must attend."""
    run = runs / f"{seed}-teacher"
    words = [*sized("model", SIZES), *LEARNING, *KEEPING, f"--stages.0.steps={BEFORE}", f"--seed={seed}"]
    bertzoo("pretrain", "demo_teacher", *words, f"--run_dir={run}")
    found = figures(run, glue)
    worth = found["silenced"] - found["mlm_loss"]
    print(f"seed {seed}, teacher: {found['mlm_loss']:.3f}, its attention is worth {worth:.3f}", flush=True)
    if worth < ATTENDS:
        sys.exit(f"the attention of {run} is worth {worth:.3f} nats, not {ATTENDS}: it has little to teach")
    return found


def student(seed: int, name: str, options: list[str], runs: Path, glue: Path | None) -> dict[str, float]:
    """The figures of one student of a seed's teacher."""
    run, of = runs / f"{seed}-{name.replace(' ', '_').replace(',', '')}", runs / f"{seed}-teacher"
    options = [*sized("model", NARROW), *sized("teacher", SIZES), *OF_TEACHER, *LEARNING, *options]
    words = ["transfer", "demo_transfer", *options, f"--teacher={of}"]
    if name == "bare":
        words = bare(options, runs / f"{seed}-bare.toml")
    bertzoo(*words, f"--seed={seed}", f"--data.source={of / 'corpus'}", f"--run_dir={run}")
    found = figures(run, glue)
    print(f"seed {seed}, {name}: {found['mlm_loss']:.3f}", flush=True)
    return found


def table(found: dict[str, list[dict[str, float]]], names: list[str]) -> str:
    """Markdown: the held-out losses of every name, each seed and their median, and scores where there are any.

    Attention is worth what the loss rises by when it is silenced.
    """
    scored = [task for task in TASKS if task in found[names[0]][0]]
    head = ["model", "MLM loss, median", "each seed", "of hidden tokens, median", "attention is worth, median"]
    head += [f"{TASKS[task][0]} {TASKS[task][1]}, median (each)" for task in scored]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in names:
        losses, hidden = ([one[key] for one in found[name]] for key in ("mlm_loss", "mlm_hidden_loss"))
        cells = [name, f"{statistics.median(losses):.3f}", ", ".join(f"{loss:.3f}" for loss in losses)]
        worth = [one["silenced"] - one["mlm_loss"] for one in found[name]]
        cells += [f"{statistics.median(hidden):.3f}", f"{statistics.median(worth):.3f}"]
        for task in scored:
            points = [one[task] for one in found[name]]
            cells.append(f"{statistics.median(points):.1f} ({', '.join(f'{one:.1f}' for one in points)})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(found: dict[str, list[dict[str, float]]]) -> str:
    """The section of docs/results.md."""
    entropy, scores = found["teacher"][0]["unigram_entropy"], ""
    if all(task in found["teacher"][0] for task in TASKS):
        scores = f" Fine-tuned, one seed each: `bertzoo finetune finetune {' '.join(TUNING)}`."
    return f"""## What a teacher is worth

`python benchmarks/knowledge.py`: {len(found["teacher"])} seeds on the embedded corpus, a teacher and students of
{LAYERS} layers and {SIZES["hidden_size"]} units (configs/demo_teacher.toml and demo_transfer.toml, AdamW at {RATE}). A
teacher has {BEFORE:,} steps, a student {LAYERS * LESSON} of transfer and {AFTER} of distillation, or as many without
transfer.{scores} Held-out losses in nats; word frequencies alone get to {entropy:.3f}, and every model is at least
{LEFT} below. What attention is worth is what a loss rises by when its output is set to 0: MobileBERT's embedding sees
three tokens at a time, so that a model can learn much without it.

The objectives, on the student without operational optimisations (as the paper's Table 9; PD is pre-training
distillation, FMT the transfer of feature maps, AT of attention):

{table(found, ["teacher", *OBJECTIVES])}

The strategies, on the student with them (as its Table 8; auxiliary, joint and progressive transfer):

{table(found, list(STRATEGIES))}"""


def main() -> None:
    """Train what is not trained yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/knowledge"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--glue", type=Path, help="the folder of SST-2 and STS-B")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.jobs) as pool:
        teachers = list(pool.map(lambda seed: teacher(seed, args.runs, args.glue), range(args.seeds)))
        asked = [(seed, name, options) for seed in range(args.seeds) for name, options in STUDENTS.items()]
        made = list(pool.map(lambda one: student(*one, args.runs, args.glue), asked))
    found = {name: [one for (_, of, _), one in zip(asked, made, strict=True) if of == name] for name in STUDENTS}
    found["teacher"] = teachers
    write_section(Path(__file__).name, page(found))


if __name__ == "__main__":
    main()
