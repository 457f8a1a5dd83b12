"""Write the report of a run: its curves as PNG files, and the page."""

from collections.abc import Sequence
from pathlib import Path

from bertzoo.runs.report.page import SHARES, RunRecord, keys, metric_names, page, read_run, series, summary, title

_UNITS = {
    "mlm_loss": "nats a masked token",
    "mlm_hidden_loss": "nats a hidden token",
    "rtd_loss": "nats a token",
    "sop_loss": "nats a pair",
    "nsp_loss": "nats a pair",
}
TRAIN, HELDOUT = "#8fb3d9", "#c4452d"


def write_report(directory: Path) -> tuple[list[Path], str]:
    """Write loss.png, accuracy.png and report.md into a run's directory; return their paths and the metrics as text."""
    run = read_run(directory)
    return write_page(run, draw_curves(run))


def write_page(run: RunRecord, pictures: Sequence[Path], more: Sequence[str] = ()) -> tuple[list[Path], str]:
    """Write report.md, ending in the parts `more`; return the paths of all files and the metrics as text."""
    file = run.directory / "report.md"
    file.write_text(page(run, more), encoding="utf-8")
    torn = "\nThe last line of metrics.jsonl is incomplete and was skipped." if run.history.torn else ""
    return [*pictures, file], summary(run.history) + torn


def draw_curves(run: RunRecord) -> list[Path]:
    """Draw the run's losses, and its accuracies and ROC AUC if logged.

    Writes `loss.png` and `accuracy.png` into the run directory; returns their paths.
    """
    written = []
    for name, kinds in (("loss", ("loss",)), ("accuracy", ("accuracy", "auc"))):
        if chosen := [key for kind in kinds for key in keys(run.history, kind)]:
            written.append(_figure(run, chosen, run.directory / f"{name}.png"))
    return written


def _figure(run: RunRecord, chosen: Sequence[str], path: Path) -> Path:
    # pyplot would choose a backend and keep the figure in a global.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 2.8 * len(chosen)), layout="constrained")
    panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
    figure.suptitle(run.directory.resolve().name)
    for axes, key in zip(panels, chosen, strict=True):
        _panel(axes, run, key)
    panels[0].legend(frameon=False, loc="best")
    panels[-1].set_xlabel("step")
    figure.savefig(path, dpi=120)
    return path


def _panel(axes, run: RunRecord, key: str) -> None:
    scale = 100 if key.endswith(SHARES) else 1
    for lines, label, style in (
        (run.history.train, "train", {"color": TRAIN, "linewidth": 1.2}),
        (run.history.heldout, "held-out", {"color": HELDOUT, "linewidth": 1.2, "marker": "o", "markersize": 4}),
    ):
        steps, values = series(lines, key)
        if steps:
            axes.plot(steps, [scale * value for value in values], label=label, **style)
    for i, step in enumerate(run.boundaries()):
        axes.axvline(step, color="0.4", linewidth=0.9, label=None if i else "next stage")
    for i, step in enumerate(dict.fromkeys(e["step"] for e in run.history.events if e["event"] == "resumed")):
        axes.axvline(step, color="0.4", linewidth=0.9, linestyle=":", label=None if i else "resumed")
    unit = "%" if scale == 100 else _UNITS.get(key, "nats") if key.endswith("loss") else ""
    name = title(key, metric_names(run.history))
    axes.set_ylabel(
        f"{name}\n({unit})" if unit else name
    )  # two lines, because long names are wider than a panel is high
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
