"""The tables and the picture of budget.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lib import tables

HIDDEN, AREA = "mlm_hidden_loss", "rtd_auc"  # what the curves show
TASKS = {  # folder of GLUE, metric that is shown
    "cola": ("CoLA", "matthews"),
    "mrpc": ("MRPC", "accuracy"),
    "stsb": ("STS-B", "spearman"),
    "sst2": ("SST-2", "accuracy"),
}
EXTREMES = ("median", "min", "max")
TERA = 1e12
Scores = Mapping[str, Mapping[str, float]]  # "median", "min", "max" -> metric -> points


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """What is shown of a finished run.

    flops: training FLOPs of all steps, flops_short: before rows grow longer; curve: held-out figures by FLOPs; end:
    figures of all held-out text at the end; scores: by task the scores over seeds; facts: its run.json.
    """

    title: str
    parameters: int
    steps: int
    flops: int
    flops_short: int
    curve: Sequence[tuple[int, Mapping[str, Any]]]
    minutes: float
    end: Mapping[str, float]
    scores: Mapping[str, Scores]
    facts: Mapping[str, Any]

    @property
    def short(self) -> Mapping[str, Any] | None:
        """The last held-out figures before rows grow longer; None if they do not."""
        before = [line for flops, line in self.curve if flops <= self.flops_short < self.flops]
        return before[-1] if before else None

    @property
    def is_discriminator(self) -> bool:
        return AREA in self.end

    def figures(self, key: str) -> list[float] | None:
        """A figure of short rows, if there are any, and of all rows at the end."""
        if key not in self.end:
            return None
        return [round(line[key], 3) for line in (self.short, self.end) if line is not None]

    def row(self) -> dict[str, Any]:
        """The run's row of the table."""
        row = {"model": self.title, "parameters": self.parameters, "steps": self.steps}
        row |= {"TFLOPs": round(self.flops / TERA, 2), "MLM loss of hidden tokens": self.figures(HIDDEN)}
        row |= {"RTD, area": self.figures(AREA), "RTD loss": self.figures("rtd_loss")}
        row |= {"minutes": round(self.minutes, 1)}
        for task, (title, metric) in TASKS.items():
            points = [self.scores[task][which][metric] for which in EXTREMES] if task in self.scores else None
            row[f"{title}, {metric}"] = points and tables.spread(points, 1)
        return row


def draw(runs: Sequence[FinishedRun], path: Path) -> None:
    """Masked language models on the left, generators dashed; discriminators on the right; untrained models left out."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    most = max(run.flops for run in runs)
    for index, run in enumerate(run for run in runs if run.flops > most / 100):
        style: dict[str, Any] = {"color": f"C{index}", "linewidth": 1.4}
        for axes, key in ((left, HIDDEN), (right, AREA)):
            points = [(flops / TERA, line[key]) for flops, line in run.curve if key in line]
            if len(points) > 1:
                generator = key == HIDDEN and run.is_discriminator
                label = f"{run.title}'s generator" if generator else run.title
                axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if generator else "-", **style)
                if run.short is not None and key in run.short:
                    axes.plot(run.flops_short / TERA, run.short[key], marker="o", markersize=4, color=style["color"])
    entropy = runs[0].end["unigram_entropy"]
    left.axhline(entropy, color="0.5", linestyle=":", linewidth=1)
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    left.annotate("word frequencies alone", (1, entropy), (-4, 3), **place)
    left.set_ylabel("held-out MLM loss of hidden tokens, nats")
    right.set_ylabel("held-out RTD, area under the ROC curve")
    for axes in (left, right):
        axes.set_xlabel("training TFLOPs")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.savefig(path, dpi=110)
