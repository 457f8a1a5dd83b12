"""What pruning is worth: schuBERT beside uniform shrinking and fewer layers at one budget, on a small scale.

    python -m benchmarks learning.pruning --runs=runs/pruning

For every seed a BERT of seven layers is pretrained on the embedded corpus and brought to the size that it has with four
layers in four ways, each with as many steps of fine-tuning. Every part is a run of its own under --runs, which resumes.
Also draws docs/prune_layers.png. A run takes minutes on a core; --jobs runs go at a time.

Rows are short and the vocabulary is small: otherwise a BERT of this width has not learnt to attend after 1,600 steps,
and there would be nothing to prune. Fails if an unpruned model is not 1 nat below the unigram entropy.
"""

import argparse
import shutil
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.lib import results
from benchmarks.lib.program import bertzoo, heldout
from bertzoo.pruning import report as pruning
from bertzoo.pruning.costs import parameters
from bertzoo.pruning.structure import declare
from bertzoo.runs import load_model

LAYERS, LOWER, RATE, BEFORE = 7, 4, 3e-3, 1600  # layers, those that BERT-ℓ keeps; rate; steps of pretraining
ITERATIONS, WEIGH, TUNE = 4, 75, 150  # and steps in each
GAMMA, GAMMA_H = 1e-2, 0.1  # γ, and γ where h is cut alone
BELOW = 1.0  # target: nats below the unigram entropy
MODEL = {"kind": "bert", "vocab_size": 256, "hidden_size": 64, "layers": LAYERS, "heads": 4, "feed_forward_size": 256}
MODEL |= {"max_positions": 32, "dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.05}
SHAPE = {"batch_size": 128, "max_length": 32, "max_predictions": 5}
TOKENIZER = {"vocab_size": MODEL["vocab_size"]}
SHARED = {
    "model": MODEL,
    "objective": {"sentence": "none"},
    "optimizer": {"kind": "adamw", "learning_rate": RATE, "beta2": 0.999, "schedule": {"warmup_share": 0.02}},
    "run": {"log_every": 50, "evaluate_every": 0, "save_every": 200, "keep_best": 0},
}
PRUNED = {  # names in the table, and options of `bertzoo prune`
    "schuBERT-all": [],
    "schuBERT-h": ['--cut.dimensions=["h"]', f"--weigh.gamma={GAMMA_H}"],
    "uniform": ["--cut.choice=uniform"],
}
SHORTER = f"BERT-ℓ, the lower {LOWER} layers"
LONGER = "unpruned, trained as long"


def count_parameters(path: Path) -> int:
    """The parameters of a model with its embedding and pooler."""
    source = load_model.read_model(path)
    structure = declare(source.model, source.head)
    return int(parameters(structure)(structure.sizes))


def train(verb: str, run: Path, *options: str, **tables: Any) -> dict[str, float]:
    """The parameters of a run, which resumes, and its losses on all held-out text; tables: those of its config."""
    config = run.with_name(f"{run.name}.toml")
    config.write_text(tomli_w.dumps({**SHARED, **tables}), encoding="utf-8")
    bertzoo(verb, str(config), *options, f"--run_dir={run}")
    result = heldout(run) | {"parameters": count_parameters(run)}
    print(f"{run.name}: {result['mlm_loss']:.3f} with {result['parameters']:,} parameters", flush=True)
    return result


def unpruned(seed: int, args: argparse.Namespace) -> dict[str, float]:
    """The metrics of a seed's whole model, which must have learnt something."""
    run, data = args.runs / f"{seed}-unpruned", {"source": "embedded:python", "tokenizer": TOKENIZER}
    stages = [{"steps": args.before, **SHAPE}]
    result = train("pretrain", run, seed=seed, data=data, stages=stages)
    below = result["unigram_entropy"] - result["mlm_loss"]
    if below < args.below:
        sys.exit(f"{run} is {below:.3f} nats below the unigram entropy, not {args.below}: it has little to lose")
    return result


def shortened(run: Path, layers: int, directory: Path) -> Path:
    """The lowest layers of a run's model, as a model directory."""
    if not directory.exists():
        source = load_model.read_model(run)
        dropped = tuple(f"encoder/layers_{index}/" for index in range(layers, LAYERS))
        params = {name: array for name, array in source.params.items() if not name.startswith(dropped)}
        directory.mkdir()
        load_model.write_model(replace(source, model=replace(source.model, layers=layers), params=params), directory)
    return directory


def corpus_of(run: Path) -> dict[str, Any]:
    return {"source": str((run / "corpus").resolve()), "tokenizer": TOKENIZER}


def trained_on(seed: int, layers: int, args: argparse.Namespace) -> dict[str, float]:
    """The metrics of a seed's lowest layers, trained for as many more steps as the pruned models are."""
    whole, run = args.runs / f"{seed}-unpruned", args.runs / f"{seed}-{layers}-layers"
    tables = {"model": MODEL | {"layers": layers}, "stages": [{"steps": ITERATIONS * TUNE, **SHAPE}]}
    origin = whole if layers == LAYERS else shortened(whole, layers, args.runs / f"{run.name}-model")
    return train("pretrain", run, f"--from={origin}", seed=seed + 100, data=corpus_of(whole), **tables)


def pruned(seed: int, name: str, args: argparse.Namespace) -> dict[str, float]:
    """The metrics of a seed's model, pruned in one of the ways."""
    whole, run = args.runs / f"{seed}-unpruned", args.runs / f"{seed}-{name}"
    lower = shortened(whole, LOWER, args.runs / f"{seed}-{LOWER}-layers-model")
    return train(
        "prune",
        run,
        *PRUNED[name],
        f"--from={whole}",
        seed=seed + 100,
        data=corpus_of(whole),
        target={"kind": "parameters", "count": count_parameters(lower)},
        cut={"iterations": ITERATIONS},
        weigh={"steps": WEIGH, "learning_rate": 5e-3, "gamma": GAMMA, **SHAPE},
        tuning=[{"steps": TUNE, **SHAPE}],
    )


def row(name: str, seeds: list[dict[str, float]]) -> dict[str, Any]:
    """A model's row: parameters and held-out losses of every seed, and medians."""
    counts = sorted({f"{seed['parameters']:,}" for seed in seeds})
    losses = [round(seed["mlm_loss"], 3) for seed in seeds]
    hidden = statistics.median(seed["mlm_hidden_loss"] for seed in seeds)
    cells = {"model": name, "parameters": " to ".join(dict.fromkeys((counts[0], counts[-1])))}
    cells |= {"MLM loss, median": statistics.median(losses), "each seed": losses}
    return cells | {"of hidden tokens, median": round(hidden, 3)}


def sizes_left(runs: Path, seeds: int) -> list[dict[str, Any]]:
    """By dimension the mean size over seeds that schuBERT-all leaves of every layer, from the lowest."""
    after = [pruning.read_cuts(runs / f"{seed}-schuBERT-all")[-1]["sizes"]["after"] for seed in range(seeds)]
    rows = []
    for letter in ("f", "a", "k", "v"):
        means = [statistics.mean(_size(sizes, layer, letter) for sizes in after) for layer in range(LAYERS)]
        layers = {f"layer {layer + 1}": round(mean, 1) for layer, mean in enumerate(means)}
        rows.append({"dimension": pruning.NAMES[letter], **layers})
    return rows


def _size(sizes: dict[str, int], layer: int, letter: str) -> int:
    start, end = f"encoder/layers_{layer}/", f"/{letter}"
    (size,) = (size for name, size in sizes.items() if name.startswith(start) and name.endswith(end))
    return size


def main() -> None:
    """Train what is not trained yet, write the result and copy the first seed's picture."""
    parser = results.parser("pruning", __doc__, "runs/pruning")
    results.add_numbers(parser, seeds=3, jobs=1, before=BEFORE)
    parser.add_argument("--below", type=float, default=BELOW, help="nats below the unigram entropy (default: 1)")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seeds)
    with ThreadPoolExecutor(args.jobs) as pool:
        models = {"unpruned": list(pool.map(lambda seed: unpruned(seed, args), seeds))}
        for name, layers in {LONGER: LAYERS, SHORTER: LOWER}.items():
            models[name] = list(pool.map(lambda seed, layers=layers: trained_on(seed, layers, args), seeds))
        for name in PRUNED:
            models[name] = list(pool.map(lambda seed, name=name: pruned(seed, name, args), seeds))
    tables = {"models": [row(*model) for model in models.items()], "sizes": sizes_left(args.runs, args.seeds)}
    first = args.runs / "0-schuBERT-all"
    bertzoo("report", str(first))
    shutil.copyfile(first / "layers.png", results.picture(args.out).with_stem("prune_layers"))
    entropy = models["unpruned"][0]["unigram_entropy"]
    context = [f"word frequencies alone reach {entropy:.3f} nats", results.packages("jax")]
    results.write(args.out, context, tables)
