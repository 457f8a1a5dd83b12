"""What pruning is worth: schuBERT against uniform shrinking and fewer layers at one budget, on a small scale.

    python benchmarks/prune.py --runs=runs/pruning

For every seed a BERT of seven layers is pretrained on the embedded corpus, and brought to the size that it has with
four of them in four ways, with as many steps of fine-tuning each; every part is a run of its own under --runs, which
is resumed if need be. The section of docs/results.md and docs/prune_layers.png are then written anew. A run takes
minutes on a core; --jobs runs are done at a time.

Rows are short and pieces of words few, as a BERT of this width else had learnt no attention after 1,600 steps, and
there would be nothing of it to prune. Fails where an unpruned model is not 1 nat below the unigram entropy.
"""

import argparse
import json
import shutil
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import tomli_w
from pages import write_section
from program import bertzoo

from bertzoo.pruning.costs import parameters
from bertzoo.pruning.structure import declare
from bertzoo.runs import any_model
from bertzoo.runs.report import pruning

LAYERS, LEFT, RATE, BEFORE = 7, 4, 3e-3, 1600  # layers, those that BERT-ℓ keeps; the rate; steps of pretraining
ITERATIONS, WEIGH, TUNE = 4, 75, 150  # and steps in each
GAMMA, ALONE = 1e-2, 0.1  # γ, and that for h alone
BELOW = 1.0  # nats below the unigram entropy
MODEL = {
    "kind": "bert",
    "vocab_size": 256,
    "hidden_size": 64,
    "layers": LAYERS,
    "heads": 4,
    "feed_forward_size": 256,
    "max_positions": 32,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "initializer_range": 0.05,
}
SHAPE = {"batch_size": 128, "max_length": 32, "max_predictions": 5}
TOKENIZER = {"vocab_size": MODEL["vocab_size"]}
SHARED = {
    "model": MODEL,
    "objective": {"sentence": "none"},
    "optimizer": {"kind": "adamw", "learning_rate": RATE, "beta2": 0.999, "schedule": {"warmup_share": 0.02}},
    "run": {"log_every": 50, "evaluate_every": 0, "save_every": 200, "keep_best": 0},
}
PRUNED = {  # the table's rows, and the options of `bertzoo prune`
    "schuBERT-all": [],
    "schuBERT-h": ['--cut.dimensions=["h"]', f"--weigh.gamma={ALONE}"],
    "uniform": ["--cut.choice=uniform"],
}
KEPT = f"BERT-ℓ, the lower {LEFT} layers"
ON = "unpruned, trained as long"
PICTURE = Path(__file__).parent.parent / "docs" / "prune_layers.png"


def written(path: Path, **tables) -> Path:
    """A config."""
    path.write_text(tomli_w.dumps({**SHARED, **tables}), encoding="utf-8")
    return path


def count(path: Path) -> int:
    """The parameters of a model with its embedding and pooler."""
    found = any_model.read_model(path)
    structure = declare(found.model, found.head)
    return int(parameters(structure)(structure.sizes))


def figures(run: Path) -> dict[str, float]:
    """Parameters, and the losses on all of the held-out text."""
    kept = run / "heldout.json"
    if not kept.exists():
        found = json.loads(bertzoo("evaluate", str(run), "--json"))
        kept.write_text(json.dumps(found | {"parameters": count(run)}))
    return json.loads(kept.read_text())


def unpruned(seed: int, runs: Path) -> dict[str, float]:
    """The figures of a seed's model, which must have learnt something."""
    run, data = runs / f"{seed}-unpruned", {"source": "embedded:python", "tokenizer": TOKENIZER}
    if not (run / "heldout.json").exists():
        file = written(runs / f"{seed}-unpruned.toml", seed=seed, data=data, stages=[{"steps": BEFORE, **SHAPE}])
        bertzoo("pretrain", str(file), f"--run_dir={run}")
    found = figures(run)
    below = found["unigram_entropy"] - found["mlm_loss"]
    print(f"seed {seed}, unpruned: {found['mlm_loss']:.3f}, {below:.3f} below the entropy", flush=True)
    if below < BELOW:
        sys.exit(f"{run} is {below:.3f} nats below the unigram entropy, not {BELOW}: it has little to lose")
    return found


def shortened(run: Path, layers: int, made: Path) -> Path:
    """The lowest layers of a run's model, as a model directory."""
    if not made.exists():
        found, gone = any_model.read_model(run), [f"encoder/layers_{n}/" for n in range(layers, LAYERS)]
        params = {name: array for name, array in found.params.items() if not name.startswith(tuple(gone))}
        made.mkdir()
        any_model.write_model(replace(found, model=replace(found.model, layers=layers), params=params), made)
    return made


def trained_on(seed: int, name: str, layers: int, runs: Path) -> dict[str, float]:
    """The figures of a seed's model with so many of its layers, trained on for the steps that the pruned ones have."""
    whole = runs / f"{seed}-unpruned"
    run = runs / f"{seed}-{layers}-layers"
    if not (run / "heldout.json").exists():
        tables = {"model": MODEL | {"layers": layers}, "stages": [{"steps": ITERATIONS * TUNE, **SHAPE}]}
        file = written(runs / f"{run.name}.toml", seed=seed + 100, data=_data(whole), **tables)
        origin = whole if layers == LAYERS else shortened(whole, layers, runs / f"{run.name}-model")
        bertzoo("pretrain", str(file), f"--from={origin}", f"--run_dir={run}")
    return _told(seed, name, run)


def pruned(seed: int, name: str, runs: Path) -> dict[str, float]:
    """The figures of a seed's model pruned in one of the ways."""
    whole = runs / f"{seed}-unpruned"
    run = runs / f"{seed}-{name}"
    if not (run / "heldout.json").exists():
        target = count(shortened(whole, LEFT, runs / f"{seed}-{LEFT}-layers-model"))
        file = written(
            runs / f"{run.name}.toml",
            seed=seed + 100,
            data=_data(whole),
            target={"kind": "parameters", "count": target},
            cut={"iterations": ITERATIONS},
            weigh={"steps": WEIGH, "learning_rate": 5e-3, "gamma": GAMMA, **SHAPE},
            tuning=[{"steps": TUNE, **SHAPE}],
        )
        bertzoo("prune", str(file), *PRUNED[name], f"--from={whole}", f"--run_dir={run}")
    return _told(seed, name, run)


def _data(whole: Path) -> dict:
    return {"source": str((whole / "corpus").resolve()), "tokenizer": TOKENIZER}


def _told(seed: int, name: str, run: Path) -> dict[str, float]:
    found = figures(run)
    print(f"seed {seed}, {name}: {found['mlm_loss']:.3f} with {found['parameters']:,}", flush=True)
    return found


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: parameters and held-out losses of every row, each seed's and their median."""
    lines = [
        "| model | parameters | MLM loss, median | each seed | of hidden tokens, median |",
        "|---|---|---|---|---|",
    ]
    for name, each in found.items():
        losses, hidden = ([one[key] for one in each] for key in ("mlm_loss", "mlm_hidden_loss"))
        counts = sorted({f"{one['parameters']:,}" for one in each})
        shown = counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        middle = f"{statistics.median(losses):.3f} | {', '.join(f'{loss:.3f}' for loss in losses)}"
        lines.append(f"| {name} | {shown} | {middle} | {statistics.median(hidden):.3f} |")
    return "\n".join(lines)


def slant(runs: Path, seeds: int) -> str:
    """Of every dimension of the layers the sizes that are left, the mean over seeds, from the lowest layer on."""
    lines = []
    for letter in pruning.OF_LAYERS:
        columns = []
        for seed in range(seeds):
            sizes = pruning.read_cuts(runs / f"{seed}-schuBERT-all")[-1]["sizes"]["after"]
            columns.append([_one(sizes, f"encoder/layers_{layer}/", f"/{letter}") for layer in range(LAYERS)])
        means = [statistics.mean(layer) for layer in zip(*columns, strict=True)]
        lines.append(f"- {pruning.NAMES[letter]}: {', '.join(f'{mean:.1f}' for mean in means)}")
    return "\n".join(lines)


def _one(sizes: dict[str, int], start: str, end: str) -> int:
    (found,) = (size for name, size in sizes.items() if name.startswith(start) and name.endswith(end))
    return found


def page(found: dict[str, list[dict[str, float]]], runs: Path) -> str:
    """The section of docs/results.md."""
    seeds, entropy = len(found["unpruned"]), found["unpruned"][0]["unigram_entropy"]
    batch = f"{SHAPE['batch_size']} rows of {SHAPE['max_length']} tokens"
    return f"""## What pruning is worth

`python benchmarks/prune.py`: {seeds} seeds on the embedded corpus, BERT of {LAYERS} layers,
{MODEL["hidden_size"]} units and {MODEL["vocab_size"]} pieces after {BEFORE:,} steps (AdamW at {RATE},
{batch}), brought to at most the parameters that its lower {LEFT} layers have.
Pruned in {ITERATIONS} iterations of {WEIGH} steps for the vectors and {TUNE} of fine-tuning; {ITERATIONS * TUNE} steps
of fine-tuning for what is not pruned, so that the vectors' {ITERATIONS * WEIGH} steps come on top.
γ is {GAMMA}, and {ALONE} where h is cut alone, whose vectors hardly move under less, which is refused.
Held-out losses in nats; word frequencies alone get to {entropy:.3f}.

{table(found)}

What schuBERT-all leaves of the layers, from the lowest, mean of the seeds; the first seed's is drawn:

{slant(runs, seeds)}

![layers](prune_layers.png)"""


def main() -> None:
    """Train what is not trained yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/pruning"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        seeds = range(args.seeds)
        found = {"unpruned": list(pool.map(lambda seed: unpruned(seed, args.runs), seeds))}
        kept = {ON: LAYERS, KEPT: LEFT}
        for name, layers in kept.items():
            work = [pool.submit(trained_on, seed, name, layers, args.runs) for seed in seeds]
            found[name] = [one.result() for one in work]
        for name in PRUNED:
            found[name] = list(pool.map(lambda seed, name=name: pruned(seed, name, args.runs), seeds))
    write_section(Path(__file__).name, page(found, args.runs))
    drawn = args.runs / "0-schuBERT-all"
    bertzoo("report", str(drawn))
    shutil.copyfile(drawn / "layers.png", PICTURE)


if __name__ == "__main__":
    main()
