"""Which paper's idea pays at equal time: five students of MiniLM's vectors that take 3, 6 and 12 ms for a row.

    python -m benchmarks learning.students minilm --texts=texts --sts=glue/STS-B --runs=runs/students

Each family's shape has 4, 6 or 8 layers and the width that fills the milliseconds: one row of 128 tokens in LiteRT's
float32 file, one thread. All learn the same texts, with a rate that falls as the width grows, and differ in the seed.
Spearman is that of STS-B's development set, of the model and of its int8 file. The widths, files and scores stay under
--runs, and all resumes. Also draws docs/students.png. Needs the extras litert, parity.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib import results, tables
from benchmarks.lib.program import evaluate, finetune, litert_file, read_or_measure
from bertzoo.benchmarking.latency import milliseconds
from bertzoo.benchmarking.options import BenchmarkSettings
from bertzoo.core import config
from bertzoo.models import Model

CONFIGS = Path(__file__).parents[2] / "configs"
LAYERS = {3: 4, 6: 6, 12: 8}  # milliseconds of a row -> layers
LENGTH, INT8 = 128, "int8-dynamic"
_Size = tuple[str, int, int]  # family, budget in milliseconds, width
STEP = 8  # between the widths
PROBES = (128, 256, 512)  # widths that are timed first
OVER = 1.03  # times the budget that a student may take, as times vary
RATE, RATE_WIDTH = 1e-3, 192  # learning rate at a width


def _even(width: int, layers: int) -> dict[str, Any]:
    return {"hidden_size": width, "layers": layers, "heads": 4 if width < 256 else 8, "feed_forward_size": 4 * width}


def _uneven(width: int, layers: int) -> dict[str, Any]:
    """The proportions of configs/embed_schubert.toml: few heads, wide feed-forwards."""
    heads, inner = max(1, width // 40), 16 * round(4.8 * width / 16)
    sizes = {"heads": heads, "key_sizes": 32, "value_sizes": 32, "feed_forward_sizes": inner}
    return {"hidden_size": width, **{name: [size] * layers for name, size in sizes.items()}}


def _narrow(width: int, layers: int) -> dict[str, Any]:
    """The proportions of configs/embed_mobilebert.toml."""
    inner = 4 * round(3 * width / 32)
    sizes = {"hidden_size": width, "embedding_size": min(128, width), "bottleneck_size": inner}
    return {**sizes, "layers": layers, "feed_forward_size": 4 * inner}


# Fields that replace those of configs/embed_FAMILY.toml, from a width and a number of layers.
FAMILIES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "bert": _even,
    "squeezebert": _even,
    "mobilebert": _narrow,
    "convbert": _even,
    "schubert": _uneven,
}


@dataclass(frozen=True)
class _Table:
    model: Model


def build(family: str, width: int, layers: int) -> Model:
    """The model of a family's config with a width and a number of layers."""
    table = config.read_toml(CONFIGS / f"embed_{family}.toml")["model"]
    return config.from_dict(_Table, {"model": table | FAMILIES[family](width, layers)}).model


def fitting(budget: float, widths: Sequence[int], times: Iterable[float]) -> int:
    """The largest width, a multiple of STEP, within `budget` by a power law through the nearest two of `times`."""
    x, y = np.log(widths), np.log([*times])
    k = int(np.clip(np.searchsorted(y, np.log(budget)), 1, len(widths) - 1))
    slope = (x[k] - x[k - 1]) / (y[k] - y[k - 1])
    width = float(np.exp(x[k] + slope * (np.log(budget) - y[k])))
    return max(STEP, STEP * int(width / STEP))


def choose() -> dict[str, dict[str, Any]]:
    """The widest student of each family within each budget, and its times, by `FAMILY-BUDGET`.

    Milliseconds are ratios to one reference model, times its milliseconds when the probes were timed, so a machine that
    slows down later changes no choice.
    """
    students = [(family, budget) for family in FAMILIES for budget in LAYERS]
    first = build("bert", PROBES[0], min(LAYERS.values()))

    def shares(sizes: Sequence[_Size], precision: str) -> tuple[float, dict[_Size, float]]:
        models = [build(family, width, LAYERS[budget]) for family, budget, width in sizes]
        times, _ = milliseconds([first, *models], BenchmarkSettings(lengths=(LENGTH,), precisions=(precision,)))
        return times[0], {size: ms / times[0] for size, ms in zip(sizes, times[1:], strict=True)}

    unit, measured = shares([(*one, width) for one in students for width in PROBES], "fp32")
    measured = {size: unit * share for size, share in measured.items()}
    tried = [(*one, fitting(one[1], PROBES, [measured[*one, width] for width in PROBES])) for one in students]
    while tried := [size for size in tried if size not in measured]:
        measured |= {size: unit * share for size, share in shares(tried, "fp32")[1].items()}
        tried = [(*one, widest(one[1], _times(measured, *one))[1]) for one in students]
    chosen = [(*one, widest(one[1], _times(measured, *one))[0]) for one in students]
    unit8, rounded = shares(chosen, INT8)
    return {
        f"{family}-{budget}": {
            "family": family,
            "budget": budget,
            "width": width,
            "ms": measured[family, budget, width],
            "int8": unit8 * rounded[family, budget, width],
        }
        for family, budget, width in chosen
    }


def _times(measured: Mapping[_Size, float], family: str, budget: int) -> dict[int, float]:
    return {size[2]: ms for size, ms in measured.items() if size[:2] == (family, budget)}


def widest(budget: float, times: Mapping[int, float]) -> tuple[int, int]:
    """The widest of the measured widths within `budget`, and the width to measure next, which may be measured.

    times: milliseconds by width. The next width is STEP wider if it would fit in proportion to the width.
    """
    fit = [width for width, ms in times.items() if ms <= OVER * budget]
    if not fit:
        return min(times), max(STEP, min(times) - STEP)
    width = max(fit)
    wider = width + STEP
    return width, wider if times[width] * wider / width <= OVER * budget else width


def train(name: str, size: Mapping[str, Any], args: argparse.Namespace) -> Path:
    """A student's run of all seeds."""
    fields = FAMILIES[size["family"]](size["width"], LAYERS[size["budget"]])
    words = [f"--model.{name}={json.dumps(value)}" for name, value in fields.items()]
    words += [f"--data_dir={args.texts}", f"--from={args.model}", f"--teacher={args.model}", f"--epochs={args.epochs}"]
    words += [f"--embedding.sts_dir={args.sts}", f"--seeds={args.seeds}", f"--train_rows={args.train_rows}"]
    rate = RATE * min(1.0, RATE_WIDTH / size["width"])
    run = args.runs / name
    finetune([*words, f"--optimizer.learning_rate={rate:.2e}"], run, f"embed_{size['family']}")
    return run


def row(run: Path, size: Mapping[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """A student's cells: spreads over the seeds of the last epochs' scores and of the files' scores."""
    last, files = [], []
    for seed in range(args.seeds):
        folder, file = run / f"seed-{seed}", run.with_name(f"{run.name}-{seed}.tflite")
        last.append(json.loads((folder / "scores.json").read_text(encoding="utf-8"))[-1]["scores"])
        litert_file(folder / "model", file, f"--precision={INT8}", "--lengths=32,64")
        files.append(evaluate(file, "--task=stsb", f"--data_dir={args.sts}")["score"])
    model = json.loads((run / "results.json").read_text(encoding="utf-8"))["model"]
    return {
        "student": size["family"],
        "ms at most": size["budget"],
        "ms": round(size["ms"], 2),
        "int8, ms": round(size["int8"], 2),
        "layers": LAYERS[size["budget"]],
        "width": size["width"],
        "parameters, M": round(model["parameters"] / 1e6, 1),
        "Spearman": tables.spread([one["stsb"]["spearman"] for one in last], 1),
        "Spearman, int8": tables.spread(files, 1),
        "cosine with the teacher": tables.spread([one["dev"]["teacher_cosine"] / 100 for one in last], 3),
    }


def draw(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Draw Spearman over milliseconds with the seeds' spread, for float32 and for int8."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, title, time, score in zip(
        panels, ("float32", "int8"), ("ms", "int8, ms"), ("Spearman", "Spearman, int8"), strict=True
    ):
        for family in FAMILIES:
            mine = [one for one in rows if one["student"] == family]
            middle, least, most = ([one[score][part] for one in mine] for part in ("median", "least", "greatest"))
            error = [np.subtract(middle, least), np.subtract(most, middle)]
            axes.errorbar([one[time] for one in mine], middle, error, marker="o", capsize=3, label=family)
        axes.set(title=title, xlabel=f"ms for a row of {LENGTH} tokens, one thread", xscale="log")
        axes.set_xticks([*LAYERS], labels=[*map(str, LAYERS)])
        axes.tick_params(axis="x", which="minor", labelbottom=False)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("Spearman on STS-B's development set")
    panels[1].legend(frameon=False)
    figure.savefig(out, dpi=150)


def ranks(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each other family, points above BERT at each budget, and whether the seeds' spreads overlap."""
    bert = {one["ms at most"]: one for one in rows if one["student"] == "bert"}
    gains = []
    for family in dict.fromkeys(one["student"] for one in rows if one["student"] != "bert"):
        cells: dict[str, Any] = {"student": family}
        for one in (each for each in rows if each["student"] == family):
            for form in ("Spearman", "Spearman, int8"):
                mine, other = one[form], bert[one["ms at most"]][form]
                apart = mine["least"] > other["greatest"] or mine["greatest"] < other["least"]
                gain = mine["median"] - other["median"]
                title = f"{one['ms at most']} ms{form.removeprefix('Spearman')}"
                cells[title] = f"{gain:+.1f}{'' if apart else ' (overlap)'}"
        gains.append(cells)
    return gains


def main() -> None:
    """Choose the widths, train what is missing, and write the result."""
    parser = results.parser("students", __doc__, "runs/students")
    parser.add_argument("model", type=Path, help="all-MiniLM-L6-v2, a directory of sentence-transformers")
    parser.add_argument("--texts", type=Path, required=True, help="a folder by launch/embedding_texts.py")
    parser.add_argument("--sts", type=Path, required=True, help="GLUE's folder of STS-B")
    results.add_numbers(parser, seeds=3, epochs=2, train_rows=20_480)
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    sizes = read_or_measure(args.runs / "sizes.json", choose)
    rows = [row(train(name, size, args), size, args) for name, size in sizes.items()]
    draw(rows, results.picture(args.out))
    texts = len((args.texts / "train.jsonl").read_text(encoding="utf-8").splitlines())
    amounts = f"{args.train_rows or texts:,} texts, {args.epochs} epochs, {args.seeds} seeds"
    context = [amounts, results.packages("jax"), f"commit {results.commit()}"]
    results.write(args.out, context, {"models": rows, "above": ranks(rows)})
