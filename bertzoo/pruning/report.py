"""Write the report of a pruning run, with a table of its cuts and a picture of the sizes across the layers."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertzoo.core import tables
from bertzoo.core.documents import read_json
from bertzoo.pruning import layout
from bertzoo.runs import report

Cut = Mapping[str, Any]
NAMES = {letter: layout.LETTERS[letter] for letter in ("f", "a", "k", "v", "h", "e")}  # in the order of the report
_CUT = {
    "iteration": int,
    "unit": str,
    "budget": float,
    "cost": {"before": float, "after": float},
    "sizes": {"before": {str: int}, "after": {str: int}},
}


def write_report(directory: Path) -> tuple[list[Path], str]:
    """Write loss.png, accuracy.png, layers.png and report.md; return their paths and the metrics as text."""
    run, cuts = report.read_run(directory), read_cuts(directory)
    pictures = report.draw_curves(run)
    if not cuts:
        return report.write_page(run, pictures)
    pictures.append(draw_layers(cuts, directory / "layers.png"))
    return report.write_page(run, pictures, [table(cuts), "![layers](layers.png)"])


def read_cuts(run: Path) -> list[Cut]:
    """Return the record of each iteration's cut (`run.cut_record`), in order; raises UserError if one is damaged."""
    return [read_json(path, _CUT, "Restore a copy or remove the file.") for path in layout.cut_files(run)]


def table(cuts: Sequence[Cut]) -> str:
    """Return a Markdown table of the cost and the sizes (heads, feed-forward, …) that remain after every iteration."""
    letters = [letter for letter in NAMES if any(_sizes(cut["sizes"]["after"], letter) for cut in cuts)]
    amount = partial(layout.format_amount, whole=cuts[0]["cost"]["before"])
    head = ["after iteration", cuts[0]["unit"], *(NAMES[letter] for letter in letters)]
    rows = [["0", cuts[0]["cost"]["before"], cuts[0]["sizes"]["before"]]]
    rows += [[str(cut["iteration"]), cut["cost"]["after"], cut["sizes"]["after"]] for cut in cuts]
    text = tables.markdown(
        head,
        (
            [number, amount(cost), *(layout.format_sizes(sizes, letter) for letter in letters)]
            for number, cost, sizes in rows
        ),
    )
    return f"## Sizes after every iteration (budget: {amount(cuts[-1]['budget'])} {cuts[0]['unit']})\n\n{text}"


def draw_layers(cuts: Sequence[Cut], path: Path) -> Path:
    """Draw the sizes after every cut, by layer (Khetan and Karnin 2020, Fig. 3 to 6); return `path`. Sizes outside the
    layers are drawn by iteration.
    """
    states = [cuts[0]["sizes"]["before"], *(cut["sizes"]["after"] for cut in cuts)]
    letters = [letter for letter in NAMES if _sizes(states[0], letter)]
    figure = report.new_figure(8, 1.2 + 2.2 * len(letters))
    from matplotlib.ticker import MaxNLocator

    figure.suptitle(path.parent.resolve().name)
    for axes, letter in zip(figure.subplots(len(letters), 1, squeeze=False)[:, 0], letters, strict=True):
        sizes = [_sizes(state, letter) for state in states]
        if letter not in ("h", "e"):  # of the layers
            last, style = len(sizes) - 1, {"marker": "o", "markersize": 4, "clip_on": False}
            for number, state in enumerate(sizes):
                label = {0: "unpruned", last: "pruned"}.get(number)
                color = report.HELDOUT if number == last else "0.55"
                width = 1.6 if label else 0.8
                axes.plot(list(state), list(state.values()), label=label, color=color, linewidth=width, **style)
            axes.set_xlabel("layer")
        else:
            axes.plot(range(len(sizes)), [state[0] for state in sizes], marker="o", clip_on=False, color=report.HELDOUT)
            axes.set_xlabel("iteration")
        axes.set_ylabel(NAMES[letter])
        axes.set_ylim(bottom=0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, loc="best")
    figure.savefig(path, dpi=120)
    return path


def _sizes(sizes: Mapping[str, int], letter: str) -> dict[float, int]:
    """Return the size of dimension `letter` (a key of NAMES) in each layer, as {number of the layer: size}.

    Layers count from 1; 0 stands for a size outside the layers. If layer n has several feed-forward networks, network i
    has the key n + i/10.
    """
    by_layer: dict[float, int] = {}
    for name, size in sizes.items():
        if name.rpartition("/")[2] != letter:
            continue
        layer = re.search(r"layers_(\d+)", name)
        inside = re.search(r"feed_forward_(\d+)", name)
        by_layer[(int(layer[1]) + 1 if layer else 0) + (int(inside[1]) / 10 if inside else 0)] = size
    return dict(sorted(by_layer.items()))
