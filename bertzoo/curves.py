"""The curves of a run as PNG files."""

from collections.abc import Sequence
from pathlib import Path

from bertzoo.report import Run, keys, series, title

_UNITS = {"loss": "nats", "mlm_loss": "nats a masked token", "sop_loss": "nats a pair", "nsp_loss": "nats a pair"}
TRAIN, HELDOUT = "#8fb3d9", "#c4452d"


def draw(run: Run) -> list[Path]:
    """Write `loss.png` and, if accuracies were logged, `accuracy.png` into the run directory; returns their paths."""
    written = []
    for ending in ("loss", "accuracy"):
        if chosen := keys(run.history, ending):
            written.append(_figure(run, chosen, run.directory / f"{ending}.png"))
    return written


def _figure(run: Run, chosen: Sequence[str], path: Path) -> Path:
    # Without pyplot: no backend is chosen, nothing is shown, and no figure is kept by a global.
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


def _panel(axes, run: Run, key: str) -> None:
    scale = 100 if key.endswith("accuracy") else 1
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
    axes.set_ylabel(f"{title(key)} ({_UNITS.get(key, 'nats') if scale == 1 else '%'})")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
