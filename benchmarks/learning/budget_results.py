"""The tables and the pictures of budget.py."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning.budget_arms import BASELINE, TERA
from benchmarks.lib import tables
from bertzoo.tasks import glue

HIDDEN, AREA = "mlm_hidden_loss", "rtd_auc"  # what the curves show
TASKS = {  # folder of GLUE, metric that is shown
    "cola": ("CoLA", "matthews"),
    "mrpc": ("MRPC", "accuracy"),
    "stsb": ("STS-B", "spearman"),
    "sst2": ("SST-2", "accuracy"),
}
EXTREMES = ("median", "min", "max")
Scores = Mapping[str, Mapping[str, float]]  # "median", "min", "max" -> metric -> points


def chance(task: str, folder: Path) -> float:
    """The score of always predicting the largest class of a development set; 0 where the metric is a correlation."""
    if TASKS[task][1] != "accuracy":
        return 0.0
    labels = Counter(example.label for example in glue.GLUE[task].read("dev", folder).examples)
    return 100 * max(labels.values()) / labels.total()


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What is shown of a finished run.

    steps: those of `planned` that ran; flops: their training FLOPs; curve: held-out metrics by FLOPs; end: metrics of
    all held-out text at the end; scores: by task the scores over seeds; files: by task the card of the int8 file of the
    best seed; facts: its run.json.
    """

    name: str
    title: str
    parameters: int
    steps: int
    planned: int
    flops: int
    curve: Sequence[tuple[int, Mapping[str, Any]]]
    minutes: float
    end: Mapping[str, float]
    scores: Mapping[str, Scores]
    files: Mapping[str, Mapping[str, Any]]
    facts: Mapping[str, Any]

    @property
    def is_discriminator(self) -> bool:
        return AREA in self.end

    def metric(self, key: str) -> float | None:
        """A held-out metric at the end, rounded; None if the model has none."""
        return round(self.end[key], 3) if key in self.end else None

    def score_cells(self) -> dict[str, Any]:
        """Median, least and greatest score of every task, and the mean of the medians."""
        cells: dict[str, Any] = {}
        for task, (title, metric) in TASKS.items():
            points = [self.scores[task][which][metric] for which in EXTREMES] if task in self.scores else None
            cells[f"{title}, {metric}"] = points and tables.spread(points, 1)
        medians = [self.scores[task]["median"][metric] for task, (_, metric) in TASKS.items() if task in self.scores]
        return cells | {"mean": round(statistics.fmean(medians), 1) if medians else None}

    def int8_mean(self, which: str) -> float | None:
        """Mean score of the best seeds, as int8 files ("file") or as models ("model"); None if a file is missing."""
        if self.files.keys() != TASKS.keys():
            return None
        return statistics.fmean(self.files[task]["scores"][which][metric] for task, (_, metric) in TASKS.items())

    def above(self, baseline: "FinishedRun", chances: Mapping[str, float]) -> list[str]:
        """Tasks on which every seed is above chance and above every seed of the same model without pretraining."""
        return [
            title
            for task, (title, metric) in TASKS.items()
            if self.scores[task]["min"][metric] > max(chances[task], baseline.scores[task]["max"][metric])
        ]


def model_rows(
    runs: Sequence[FinishedRun],
    untrained: Sequence[FinishedRun],
    milliseconds: Mapping[str, float],
    chances: Mapping[str, float],
) -> list[dict[str, Any]]:
    """The rows of the table of all models; milliseconds: by the name of the SST-2 file; chances: by task."""
    baselines = {run.name: run for run in untrained}
    rows = []
    for run in (*runs, *untrained):
        lost, mean = run.int8_mean("model"), run.int8_mean("file")
        row = {"model": run.title, "parameters": run.parameters, "TFLOPs": round(run.flops / TERA, 1)}
        row |= {"MLM loss": run.metric(HIDDEN), "RTD, area": run.metric(AREA)} | run.score_cells()
        row |= {"int8, mean": mean and round(mean, 1), "lost by int8": mean and lost and round(lost - mean, 2)}
        rejected = [TASKS[task][0] for task in TASKS.keys() - run.files.keys()] if run.files else []
        row |= {"int8 rejected": ", ".join(sorted(rejected)) or None}
        row |= {"int8, MB": round(run.files["sst2"]["bytes"] / 1e6, 2) if run.files else None}
        ms = milliseconds.get(f"{run.name}-sst2.tflite")
        row |= {"ms": ms and round(ms, 3)}
        above = run.above(baselines[BASELINE[run.name]], chances) if run.name in BASELINE else None
        rows.append(row | {"clearly learnt": above if above is None else ", ".join(above) or "none"})
    return rows


def choice_row(run: FinishedRun) -> dict[str, Any]:
    """A row of the table of the choices of training."""
    title, metric = TASKS["sst2"]
    points = [run.scores["sst2"][which][metric] for which in EXTREMES]
    row = {"BERT with": run.title, "steps": run.steps, "TFLOPs": round(run.flops / TERA, 1)}
    row |= {"MLM loss, 15 % masked": run.metric(HIDDEN), "MLM accuracy": round(run.end["mlm_accuracy"], 3)}
    return row | {f"{title}, {metric}": tables.spread(points, 1)}


def _bare(axes: Any, horizontal: str, vertical: str) -> None:
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_curves(runs: Sequence[FinishedRun], path: Path) -> None:
    """Masked language models on the left, generators dashed; discriminators on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for index, run in enumerate(runs):
        style: dict[str, Any] = {"color": f"C{index}", "linewidth": 1.4}
        for axes, key in ((left, HIDDEN), (right, AREA)):
            points = [(flops / TERA, line[key]) for flops, line in run.curve if key in line]
            if len(points) > 1:
                generator = key == HIDDEN and run.is_discriminator
                label = f"{run.title}'s generator" if generator else run.title
                axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if generator else "-", **style)
    entropy = runs[0].end["unigram_entropy"]
    left.axhline(entropy, color="0.5", linestyle=":", linewidth=1)
    offset = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    left.annotate("word frequencies alone", (1, entropy), (-4, 3), **offset)
    _bare(left, "training TFLOPs", "held-out MLM loss of hidden tokens, nats")
    _bare(right, "training TFLOPs", "held-out RTD, area under the ROC curve")
    for axes in (left, right):
        axes.set_xlim(left=0)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.savefig(path, dpi=110)


def draw_tradeoff(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Mean score of the int8 files against their milliseconds; the area of a dot is the file's size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    shown = [row for row in rows if row["int8, mean"] is not None]
    for index, row in enumerate(shown):
        drawn = [(other["ms"], other["int8, mean"]) for other in shown if other is not row]
        axes.scatter(row["ms"], row["int8, mean"], s=60 * row["int8, MB"], color=f"C{index}", alpha=0.8)
        label = f"{row['model']}, {row['int8, MB']:.1f} MB"
        below = any(abs(row["ms"] - ms) < 0.05 and 0 <= score - row["int8, mean"] < 0.4 for ms, score in drawn)
        offset = (7, -12 if below else 5)
        axes.annotate(label, (row["ms"], row["int8, mean"]), offset, textcoords="offset points", fontsize=9)
    axes.margins(0.25, 0.2)
    _bare(axes, "milliseconds for a sentence of 64 tokens, int8, one thread", "mean score on four GLUE tasks")
    figure.savefig(path, dpi=110)
