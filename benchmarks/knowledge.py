"""What a teacher is worth: the objectives of MobileBERT's Table 9 and the strategies of its Table 8, on a small scale.

    python benchmarks/knowledge.py --runs=runs/knowledge --glue=glue

For every seed a teacher is pretrained on the embedded corpus and eight students are taught by it, each in a run of its
own under --runs, which is resumed if need be; the table in docs/results.md is then written anew. A run takes minutes on
2 cores, all of them over an hour; --jobs seeds are done at a time. With --glue, which holds SST-2 and STS-B as GLUE
lays them out, every model is also fine-tuned on a part of both.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pages import write_section

from bertzoo import config
from bertzoo.recipe import Pretrain
from bertzoo.transfer import Transfer

LAYERS, LESSON, AFTER = 3, 40, 160  # layers; steps for each of them; steps of the distillation
DEPTHS = [f"--model.layers={LAYERS}", f"--teacher.layers={LAYERS}"]
PLAIN = ["--model.activation=gelu_tanh"]  # without the operational optimisations: LayerNorm and gelu
OPTIMISED = ["--model.norm=no_norm", "--model.activation=relu"]
ALONE = ["--transfer.kind=nothing", f"--distillation.0.steps={LAYERS * LESSON + AFTER}"]
TAUGHT = [f"--distillation.0.steps={AFTER}"]
EACH, WHOLE = [*TAUGHT, f"--transfer.steps={LESSON}"], [*TAUGHT, f"--transfer.steps={LAYERS * LESSON}"]
NO_TEACHER = ["--knowledge.ground_truth=1.0"]
SHAPE = ["--transfer.batch_size=64", "--transfer.max_length=64", "--transfer.max_predictions=10"]
TOGETHER = [*WHOLE, *SHAPE, "--transfer.learning_rate=2e-2"]
# GLUE tasks: folder, and the metric that is shown; how a model is fine-tuned on either.
TASKS = {"sst2": ("SST-2", "accuracy"), "stsb": ("STS-B", "spearman")}
TUNING = ["--seeds=1", "--epochs=3", "--train_rows=4000", "--max_length=64", "--optimizer.learning_rate=1e-3"]
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


def bertzoo(*words: str) -> str:
    """Run the program and return what it prints; its messages go on."""
    command = [sys.executable, "-m", "bertzoo", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def bare(options: list[str], file: Path) -> list[str]:
    """The words of a run of the student alone, whose config, the same in all else, is written to a file."""
    pairs = [option.removeprefix("--").split("=", 1) for option in [*DEPTHS, *options]]
    recipe = config.load(Transfer, ["demo_transfer"], [(key, value) for key, value in pairs])
    tables = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(Pretrain)}
    tables["model"] = dataclasses.replace(recipe.model, dropout=0.0, attention_dropout=0.0)  # as under a teacher
    file.write_text(config.dump(Pretrain(**tables)), encoding="utf-8")
    return ["pretrain", str(file)]


def figures(run: Path, glue: Path | None) -> dict[str, float]:
    """The run's figures on the held-out text, and the scores of GLUE tasks; fails where it is less than 0.3 nats below
    the unigram entropy.
    """
    kept = run / "heldout.json"
    if not kept.exists():
        kept.write_text(bertzoo("evaluate", str(run), "--below_unigram=0.3", "--json"))
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


def trained(seed: int, runs: Path, glue: Path | None) -> dict[str, dict[str, float]]:
    """The figures of a seed's teacher and of its students, by name."""
    teacher = runs / f"{seed}-teacher"
    if not (teacher / "heldout.json").exists():
        bertzoo("pretrain", "demo_teacher", f"--model.layers={LAYERS}", f"--seed={seed}", f"--run_dir={teacher}")
    found = {"teacher": figures(teacher, glue)}
    for name, options in (OBJECTIVES | STRATEGIES).items():
        run = runs / f"{seed}-{name.replace(' ', '_').replace(',', '')}"
        if not (run / "heldout.json").exists():
            words = ["transfer", "demo_transfer", *DEPTHS, *options, f"--teacher={teacher}"]
            if name == "bare":
                words = bare(options, runs / f"{seed}-bare.toml")
            bertzoo(*words, f"--seed={seed}", f"--data.source={teacher / 'corpus'}", f"--run_dir={run}")
        found[name] = figures(run, glue)
        print(f"seed {seed}, {name}: {found[name]['mlm_loss']:.3f}", flush=True)
    return found


def table(found: dict[str, list[dict[str, float]]], names: list[str]) -> str:
    """Markdown: the held-out losses of every name, each seed and their median, and scores where there are any."""
    scored = [task for task in TASKS if task in found[names[0]][0]]
    head = ["model", "MLM loss, median", "each seed", "of hidden tokens, median"]
    head += [f"{TASKS[task][0]} {TASKS[task][1]}, median (each)" for task in scored]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in names:
        losses, hidden = ([one[key] for one in found[name]] for key in ("mlm_loss", "mlm_hidden_loss"))
        cells = [name, f"{statistics.median(losses):.3f}", ", ".join(f"{loss:.3f}" for loss in losses)]
        cells.append(f"{statistics.median(hidden):.3f}")
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
{LAYERS} layers (configs/demo_teacher.toml and demo_transfer.toml), {LAYERS * LESSON} steps of transfer and {AFTER} of
distillation, or as many without transfer.{scores} Held-out losses in nats; word frequencies alone get to
{entropy:.3f}, and every model is at least 0.3 below.

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
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--glue", type=Path, help="the folder of SST-2 and STS-B")
    args = parser.parse_args()
    with ThreadPoolExecutor(args.jobs) as pool:
        each = list(pool.map(lambda seed: trained(seed, args.runs, args.glue), range(args.seeds)))
    found = {name: [one[name] for one in each] for name in each[0]}
    write_section(Path(__file__).name, page(found))


if __name__ == "__main__":
    main()
