"""What a teacher is worth: the objectives of MobileBERT's Table 9 and the strategies of its Table 8, on a small scale.

    python benchmarks/knowledge.py --runs=runs/knowledge

For every seed a teacher is pretrained on the embedded corpus and eight students are taught by it, each in a run of its
own under --runs, which is resumed if need be; the table in docs/results.md is then written anew. A run takes minutes on
2 cores, all of them well over an hour.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pages import write_section

from bertzoo import config
from bertzoo.recipe import Pretrain
from bertzoo.transfer import Transfer

LAYERS, LESSON, AFTER = 3, 80, 360  # layers; steps for each of them; steps of the distillation
DEPTHS = [f"--model.layers={LAYERS}", f"--teacher.layers={LAYERS}"]
PLAIN = ["--model.activation=gelu_tanh"]  # without the operational optimisations: LayerNorm and gelu
OPTIMISED = ["--model.norm=no_norm", "--model.activation=relu"]
ALONE = ["--transfer.kind=nothing", f"--distillation.0.steps={LAYERS * LESSON + AFTER}"]
TAUGHT = [f"--distillation.0.steps={AFTER}"]
EACH, WHOLE = [*TAUGHT, f"--transfer.steps={LESSON}"], [*TAUGHT, f"--transfer.steps={LAYERS * LESSON}"]
NO_TEACHER = ["--knowledge.ground_truth=1.0"]
SHAPE = ["--transfer.batch_size=64", "--transfer.max_length=64", "--transfer.max_predictions=10"]
TOGETHER = [*WHOLE, *SHAPE, "--transfer.learning_rate=2e-2"]
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


def figures(run: Path) -> dict[str, float]:
    """The run's figures on the held-out text; fails unless it is 0.3 nats below the unigram entropy."""
    kept = run / "heldout.json"
    if not kept.exists():
        kept.write_text(bertzoo("evaluate", str(run), "--below_unigram=0.3", "--json"))
    return json.loads(kept.read_text())


def trained(seeds: int, runs: Path) -> Iterator[tuple[int, str, dict[str, float]]]:
    """(seed, name, figures) of every teacher and student."""
    for seed in range(seeds):
        teacher = runs / f"{seed}-teacher"
        if not (teacher / "heldout.json").exists():
            bertzoo("pretrain", "demo_teacher", f"--model.layers={LAYERS}", f"--seed={seed}", f"--run_dir={teacher}")
        yield seed, "teacher", figures(teacher)
        for name, options in (OBJECTIVES | STRATEGIES).items():
            run = runs / f"{seed}-{name.replace(' ', '_').replace(',', '')}"
            if not (run / "heldout.json").exists():
                words = ["transfer", "demo_transfer", *DEPTHS, *options, f"--teacher={teacher}"]
                if name == "bare":
                    words = bare(options, runs / "bare.toml")
                bertzoo(*words, f"--seed={seed}", f"--data.source={teacher / 'corpus'}", f"--run_dir={run}")
            yield seed, name, figures(run)


def table(found: dict[str, list[dict[str, float]]], names: list[str]) -> str:
    """Markdown: the held-out losses of every name, each seed and their median."""
    lines = ["| model | MLM loss, median | each seed | of hidden tokens, median |", "|---|---|---|---|"]
    for name in names:
        losses, hidden = ([one[key] for one in found[name]] for key in ("mlm_loss", "mlm_hidden_loss"))
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        lines.append(f"| {name} | {statistics.median(losses):.3f} | {each} | {statistics.median(hidden):.3f} |")
    return "\n".join(lines)


def page(found: dict[str, list[dict[str, float]]]) -> str:
    """The section of docs/results.md."""
    entropy = found["teacher"][0]["unigram_entropy"]
    return f"""## What a teacher is worth

`python benchmarks/knowledge.py`: {len(found["teacher"])} seeds on the embedded corpus, a teacher and students of
{LAYERS} layers (configs/demo_teacher.toml and demo_transfer.toml), {LAYERS * LESSON} steps of transfer and {AFTER} of
distillation, or as many without transfer. Held-out losses in nats; word frequencies alone get to {entropy:.3f}, and
every model is at least 0.3 below.

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
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for seed, name, measured in trained(args.seeds, args.runs):
        found.setdefault(name, []).append(measured)
        print(f"seed {seed}, {name}: {measured['mlm_loss']:.3f}", flush=True)
    write_section(Path(__file__).name, page(found))


if __name__ == "__main__":
    main()
