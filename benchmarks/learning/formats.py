"""Whether a model learns as well in bfloat16 as in float32: curves of the demo and of a BERT, with several seeds.

    python -m benchmarks learning.formats --text classic_books.txt.xz simplewiki.txt --tflops=4

The script pretrains two models in both formats, once for every seed: the demo's SqueezeBERT, and the BERT of
configs/learning with a budget of --tflops training TFLOPs. Runs stay under --runs, and the same command resumes them.
The script fails if the median held-out losses of a model's formats differ by more than the range of its float32 losses.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning.budget import corpus
from benchmarks.learning.budget_arms import Arm
from benchmarks.lib import results, tables
from benchmarks.lib.program import bertzoo, heldout

FORMATS = ("float32", "bfloat16")
LOSS = "mlm_hidden_loss"
BERT = Arm("bert", "BERT", "bert")
MODELS = ("demo", "BERT")


def train(words: Sequence[str], run: Path, seed: int, dtype: str) -> Path:
    """A finished run in a format; `bertzoo` resumes it, and rejects one of other settings."""
    bertzoo("pretrain", *words, f"--seed={seed}", f"--compute.dtype={dtype}", f"--run_dir={run}")
    return run


def curve(run: Path) -> list[tuple[int, float]]:
    """Steps and held-out losses over hidden tokens, in nats."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(line["step"], line[LOSS]) for line in lines if line.get("split") == "heldout"]


def draw(curves: Mapping[str, Mapping[str, Sequence[Sequence[tuple[int, float]]]]], out: Path) -> None:
    """Draw the curves of every model, one style a format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(curves), 3), layout="constrained")
    for axes, (model, formats) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        for style, (dtype, seeds) in zip(("b-", "r:"), formats.items(), strict=True):
            for index, points in enumerate(seeds):
                axes.plot(*zip(*points, strict=True), style, label=None if index else dtype)
        axes.set_title(model)
        axes.set_xlabel("step")
        axes.set_ylabel("held-out MLM loss, nats")
        axes.legend(frameon=False)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Make the runs that are missing; write the result and a picture of the curves."""
    parser = results.parser("formats", __doc__)
    parser.add_argument("--text", nargs="*", type=Path, default=[], help="texts of the BERT's corpus")
    parser.add_argument("--runs", type=Path, default=Path("runs/formats"), help="(default: %(default)s)")
    results.add_numbers(parser, seeds=3, tflops=4)
    parser.add_argument("--models", default=",".join(MODELS), help="(default: %(default)s)")
    args = parser.parse_args()
    if unknown := set(args.models.split(",")) - set(MODELS):
        parser.error(f"--models: {', '.join(sorted(unknown))} is unknown; choose from {', '.join(MODELS)}")
    args.runs.mkdir(parents=True, exist_ok=True)
    models = {"demo": ["demo"]}
    if "BERT" in args.models.split(","):
        data = corpus(args.text, BERT.configs, args.runs)
        models["BERT"] = [*BERT.configs, *BERT.steps(args.tflops), f"--data.source={data}", "--run.evaluate_every=50"]
    rows, curves = [], {}
    for model in args.models.split(","):
        words = models[model]
        losses: dict[str, list[float]] = {}
        curves[model] = {}
        for dtype in FORMATS:
            names = [args.runs / f"{model}-{dtype}-{seed}" for seed in range(args.seeds)]
            runs = [train(words, run, seed, dtype) for seed, run in enumerate(names)]
            losses[dtype] = [heldout(run)[LOSS] for run in runs]
            curves[model][dtype] = [curve(run) for run in runs]
        rows.append(row(model, losses))
    draw(curves, results.picture(args.out))
    texts = [f"BERT on {', '.join(path.name for path in args.text) or 'embedded:python'}"] * ("BERT" in curves)
    context = [*texts, results.packages("jax"), f"commit {results.commit()}"]
    results.write(args.out, context, {"losses": rows})


def row(model: str, losses: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A model's held-out losses in both formats."""
    exact, rounded = (tables.spread(losses[dtype], 3) for dtype in FORMATS)
    met = abs(rounded["median"] - exact["median"]) <= exact["greatest"] - exact["least"]
    return {"model": model, "float32, nats": exact, "bfloat16, nats": rounded, "met": met}


if __name__ == "__main__":
    main()
