"""Draw docs/pictures: the papers' blocks, the transfer's stages, pruned widths and the pipeline, as SVG.

    python -m benchmarks pictures

Every size comes from a shipped config or from docs/data, so that a changed config changes its picture. A picture is as
wide as a phone's page, has a page of its own colour, and follows the reader's light or dark theme.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from benchmarks.learning.pruning import SIZES
from benchmarks.lib.results import DATA
from bertzoo.core import config
from bertzoo.models import ConvBert, MobileBert, SchuBert, SqueezeBert
from bertzoo.models.parts import per_layer
from bertzoo.runs.configs import Pretrain, Transfer

OUT = DATA.parent / "pictures"
WIDTH, LINE, SMALL = 360, 15, 11  # units, which are pixels on a phone; the size of the least text
COLOURS = {  # by class, in the light and in the dark theme; "ink" is text and lines, "edge" the outlines
    "page": ("#ffffff", "#14181f"),
    "ink": ("#1f2328", "#e8ebef"),
    "edge": ("#6e7781", "#8b949e"),
    "dense": ("#cfe3ff", "#234a7d"),
    "heads": ("#ffe0b8", "#74501c"),
    "window": ("#cdeed3", "#235a34"),
    "norm": ("#e7e9ec", "#333a44"),
    "bar": ("#4f86d9", "#5d93e3"),
}
ACTIVATIONS = {"gelu_tanh": "gelu"}
NORMS = {"no_norm": "NoNorm", "layer_norm": "LayerNorm"}


def _style() -> str:
    def rules(theme: int) -> str:
        fills = "".join(f".{name}{{fill:{colours[theme]}}}" for name, colours in COLOURS.items())
        line, outline = (COLOURS[name][theme] for name in ("ink", "edge"))
        return f"{fills}.line{{fill:none;stroke:{line}}}.empty{{fill:none}}.outline{{stroke:{outline}}}"

    fonts = "text{font-family:system-ui,sans-serif}.code{font-family:ui-monospace,monospace}"
    return f"<style>{fonts}{rules(0)}@media(prefers-color-scheme:dark){{{rules(1)}}}</style>"


class Canvas:
    """A picture under construction; x and y are in units from the top left."""

    def __init__(self, title: str):
        self.title, self.parts, self.bottom = title, [], 0
        self.text(WIDTH / 2, 22, title, size=13, weight="bold")

    def text(self, x: float, y: float, text: str, *, size=SMALL, anchor="middle", weight="normal", name="ink") -> None:
        """Write a line of text with its baseline at y."""
        self.bottom = max(self.bottom, y + 6)
        self.parts.append(
            f'<text class="{name}" x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(text)}</text>'
        )

    def rectangle(self, name: str, x: float, y: float, width: float, height: float, radius: float = 0) -> None:
        """Fill a rectangle with the colour of a class."""
        self.bottom = max(self.bottom, y + height + 6)
        shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
        self.parts.append(f'<rect class="{name} outline" {shape}/>')

    def box(self, name: str, x: float, y: float, width: float, *lines: str, groups: int = 0) -> float:
        """Draw a box of centred lines, cut into groups at its foot, and return the y of its lower edge."""
        foot = 9 * bool(groups)
        height = LINE * len(lines) + 8 + foot
        self.rectangle(name, x, y, width, height, 4)
        for index, line in enumerate(lines):
            name = "code ink" if line.startswith("bertzoo ") else "ink"
            self.text(x + width / 2, y + LINE * (index + 1), line, name=name)
        for group in range(groups):
            cell = (width - 12) / groups
            self.rectangle("page", x + 6 + group * cell + 1, y + height - foot - 2, cell - 2, foot - 2, 2)
        return y + height

    def path(self, *points: tuple[float, float], arrow: bool = True, dashed: bool = False) -> None:
        """Draw a line through points, with an arrow head at its end."""
        where = " ".join(f"{x:g},{y:g}" for x, y in points)
        more = ' marker-end="url(#head)"' if arrow else ""
        more += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<polyline class="line" points="{where}"{more}/>')

    def down(self, x: float, y: float, length: float = 14) -> float:
        """Draw an arrow downwards and return the y of its end."""
        self.path((x, y), (x, y + length))
        return y + length

    def svg(self) -> str:
        """Return the file's text."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="ink" d="M0 0L8 4L0 8z"/></marker>'
        )
        size = f'viewBox="0 0 {WIDTH} {self.bottom:g}" width="{1.5 * WIDTH:g}" height="{1.5 * self.bottom:g}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(self.title)}">',
                f"<title>{escape(self.title)}</title>{_style()}<defs>{head}</defs>",
                f'<rect class="page" width="{WIDTH}" height="{self.bottom:g}" rx="6"/>',
                *self.parts,
                "</svg>\n",
            ]
        )

    def fan(self, x: float, text: str, left: float, right: float) -> float:
        """Draw an input at x that spreads from left to right, and return the y where its branches begin."""
        self.text(x, 42, text)
        self.path((x, 48), (x, 64), arrow=False)
        self.path((left, 64), (right, 64), arrow=False)
        return 64

    def bars(self, y: float, title: str, values: Sequence[float], full: float) -> float:
        """Draw a bar for each layer inside the outline of the size before pruning; return the y below."""
        self.text(20, y + 10, title, anchor="start", weight="bold")
        top, height, cell = y + 18, 58, 320 / len(values)
        for index, value in enumerate(values):
            left, part = 21 + index * cell, height * value / full
            self.rectangle("empty", left, top, cell - 2, height)
            self.rectangle("bar", left, top + height - part, cell - 2, part)
            if index in (0, len(values) - 1):
                self.text(left + cell / 2 - 1, top + height + 13, str(index + 1))
        self.text(WIDTH / 2, top + height + 13, "layer")
        return top + height + 22


class Column:
    """Boxes of one width on a canvas, each below the last, with arrows between."""

    def __init__(self, canvas: Canvas, x: float, width: float, y: float):
        self.canvas, self.x, self.width, self.y = canvas, x, width, y
        self.middle = x + width / 2

    def box(self, name: str, *lines: str, groups: int = 0, copies: int = 1, arrows: Sequence[float] = ()) -> float:
        """Add arrows at some x, and a box with the edges of its copies behind it; return the y of its middle."""
        for x in arrows or [self.middle]:
            top = self.canvas.down(x, self.y)
        shift, height = 3 * (copies - 1), LINE * len(lines) + 8 + 9 * bool(groups)
        for step in range(shift, 0, -3):
            self.canvas.rectangle(name, self.x + step, top + step, self.width - shift, height, 4)
        self.y = self.canvas.box(name, self.x, top, self.width - shift, *lines, groups=groups) + shift
        return (top + self.y) / 2

    def residual(self, x: float, start: float, end: float) -> None:
        """Lead the state at height `start` past the boxes, along x, into the box at height `end`."""
        edge = self.x if x < self.x else self.x + self.width
        self.canvas.path((self.middle, start), (x, start), (x, end), (edge, end))


def span(values: Sequence[float]) -> str:
    """Return the one value, or the least and the greatest."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


def count(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural if need be."""
    return f"{number} {noun}" + "s" * (number != 1)


def squeezebert(model: SqueezeBert) -> str:
    """Draw SqueezeBERT's layer: every map but one is a grouped convolution (Iandola et al. 2020, §3)."""
    width, inner = model.hidden_size, span(per_layer(model.feed_forward_size, model.layers))
    canvas = Canvas(f"SqueezeBERT, one of {model.layers} layers")
    y = canvas.fan(192, f"{width} channels for each token", 82, 302)
    groups = {"query": model.query_groups, "key": model.key_groups, "value": model.value_groups}
    for x, (name, number) in zip((36, 146, 256), groups.items(), strict=True):
        part = Column(canvas, x, 92, y)
        part.box("dense", name, f"{width} → {width}", count(number, "group"), groups=number)
    column = Column(canvas, 36, 312, part.y)
    column.box("heads", f"attention, {model.heads} heads of {width // model.heads}", arrows=(82, 192, 302))
    number = model.attention_output_groups
    column.box("dense", f"FFN1, after the attention: {width} → {width}", count(number, "group"), groups=number)
    column.residual(18, y - 8, column.box("norm", "add, LayerNorm"))
    start = column.y + 6
    for name, number in (
        (f"FFN2: {width} → {inner}, {model.activation}", model.intermediate_groups),
        (f"FFN3: {inner} → {width}", model.output_groups),
    ):
        column.box("dense", name, count(number, "group"), groups=number)
    column.residual(18, start, column.box("norm", "add, LayerNorm"))
    y = canvas.down(192, column.y)
    number, whole = model.query_groups, width * width
    canvas.text(WIDTH / 2, y + 28, f"A map in {count(number, 'group')}", weight="bold")
    for group in range(number):
        cell = Column(canvas, 23 + group * 314 / number, 314 / number - 6, y + 36)
        for name in ("norm", "dense"):
            cell.box(name, str(width // number))
    canvas.text(WIDTH / 2, cell.y + 20, f"{whole // number:,} weights; a dense map has {whole:,}")
    return canvas.svg()


def _bottleneck_layer(
    canvas: Canvas, model: MobileBert, x: float, outer: float, title: str, copies: int
) -> tuple[float, float]:
    """Draw a bottleneck layer with room for `copies` feed-forwards; return the y of its attention and its output."""
    stream, inner, norm = model.hidden_size, model.bottleneck_size or model.hidden_size, NORMS[model.norm]
    feed_forward = span(per_layer(model.feed_forward_size, model.layers))
    column = Column(canvas, x, 138, 84)
    canvas.text(column.middle, 44, title, weight="bold")
    canvas.text(column.middle, 60, f"{model.layers} layers")
    canvas.text(column.middle, 79, f"stream: {stream}")
    column.box("norm", "bottleneck,", f"{stream} → {inner},", norm)
    sources = {
        "stream": ("query, key, value", f"read the stream, {stream}", ""),
        "bottleneck": ("query, key, value", f"read the bottleneck, {inner}", ""),
        "shared": ("query, key: one more", f"bottleneck, {stream} → {inner}", f"value: the stream, {stream}"),
    }
    column.box("dense", *sources[model.attention_input])
    attention = column.box("heads", "attention,", f"{count(model.heads, 'head')} of {inner // model.heads}")
    column.box("norm", "add the bottleneck,", norm)
    column.box(
        "dense",
        count(model.feed_forwards, "feed-forward") + ":",
        f"{inner} → {feed_forward} → {inner}",
        f"{ACTIVATIONS.get(model.activation, model.activation)}, add, {norm}",
        copies=model.feed_forwards,
    )
    gap = 3 * (copies - model.feed_forwards)
    canvas.path((column.middle, column.y), (column.middle, column.y + gap), arrow=False)
    column.y += gap
    column.box("dense", f"{inner} → {stream}")
    column.residual(outer, 89, column.box("norm", "add the stream,", norm))
    canvas.text(column.middle, canvas.down(column.middle, column.y, 20) + 12, f"stream: {stream}")
    return attention, column.y + 28


def mobilebert(teacher: MobileBert, student: MobileBert) -> str:
    """Draw a layer of IB-BERT beside one of MobileBERT, and what the transfer compares (Sun et al. 2020, Figure 1)."""
    canvas = Canvas("IB-BERT teaches MobileBERT")
    copies = max(teacher.feed_forwards, student.feed_forwards)
    left = _bottleneck_layer(canvas, teacher, 22, 9, "teacher: IB-BERT", copies)
    right = _bottleneck_layer(canvas, student, 200, 351, "student: MobileBERT", copies)
    for (start, end), y_start, y_end in zip(((160, 200), (128, 232)), left, right, strict=True):
        canvas.path((start, y_start), (end, y_end), dashed=True)
    y = canvas.bottom
    for line in ("Dashed: the student learns the teacher's", "attention maps and the states between layers"):
        y += 16
        canvas.text(WIDTH / 2, y, line)
    return canvas.svg()


def convbert(model: ConvBert) -> str:
    """Draw ConvBERT's layer: attention and span-based dynamic convolution side by side (Jiang et al. 2020, §3)."""
    width, window = model.hidden_size, model.kernel_size
    heads, size = max(1, model.heads // model.head_ratio), width // model.heads
    canvas, centres = Canvas(f"ConvBERT, one of {model.layers} layers"), [57 + 66.5 * index for index in range(5)]
    key, value, query, span_key, convolved = centres
    y = canvas.fan(query, f"{width} channels for each token", key, convolved)
    names = {"key": "", "value": "", "query": "", "span key": f"window {window}", "input": "convolved"}
    for index, (name, note) in enumerate(names.items()):
        part = Column(canvas, centres[index] - 32, 64, y)
        part.box("window" if index > 2 else "dense", name, f"{width}→{heads * size}", note)
    canvas.path((query, part.y), (query, part.y + 7), (value + 18, part.y + 7), (value + 18, part.y + 14))
    canvas.path((query, part.y + 7), (query + 14, part.y + 7), (query + 14, part.y + 14))
    left, right = Column(canvas, 25, 130, part.y), Column(canvas, span_key - 58, 116, part.y)
    left.box("heads", "self-attention,", f"{count(heads, 'head')} of {size}", arrows=(key, value))
    right.box(
        "window", "query × span key", f"{heads * size} → {heads} × {window}", "softmax: kernels", arrows=[span_key]
    )
    canvas.path((convolved, part.y), (convolved, right.y + 1), arrow=False)
    right = Column(canvas, 173, 182, right.y)
    text = f"convolution, {count(heads, 'head')} of {size},", f"its own {window} weights a token"
    right.box("window", *text, arrows=(span_key - 18, convolved))
    canvas.path((left.middle, left.y), (left.middle, right.y + 1), arrow=False)
    column = Column(canvas, 25, 330, right.y)
    column.box("heads", f"{2 * heads} heads of {size} → {width}", arrows=(left.middle, right.middle))
    column.residual(12, y - 8, column.box("norm", "add, LayerNorm"))
    start, inner = column.y + 6, span(per_layer(model.feed_forward_size, model.layers))
    text = f"feed-forward {width} → {inner} → {width}, {model.activation}"
    column.box("dense", text, count(model.feed_forward_groups, "group"))
    column.residual(12, start, column.box("norm", "add, LayerNorm"))
    y = canvas.down(column.middle, column.y) + 22
    canvas.text(WIDTH / 2, y, f"The span: a token's weights come from {window} tokens")
    for token in range(-(window // 2) - 2, window // 2 + 3):
        kind = "norm" if abs(token) > window // 2 else "window" if token else "heads"
        canvas.rectangle(kind, 171 + token * 300 / (window + 4), y + 10, 300 / (window + 4) - 4, 16, 2)
    return canvas.svg()


def schubert(model: SchuBert) -> str:
    """Draw schuBERT's layer with the dimensions that pruning shrinks (Khetan and Karnin 2020, §3)."""
    full, canvas = SchuBert(), Canvas(f"schuBERT, {model.layers} layers of their own sizes")
    sizes = {
        "f, feed-forward units": (model.feed_forward_sizes, full.feed_forward_sizes[0]),
        "a, heads": (model.heads, full.heads[0]),
        "k, size of a head's keys": (model.key_sizes, full.key_sizes[0]),
        "v, size of a head's values": (model.value_sizes, full.value_sizes[0]),
    }
    f, a, k, v = (span(values) for values, _ in sizes.values())
    y = canvas.fan(192, f"h = {model.hidden_size} channels for each token, {full.hidden_size} before", 108, 276)
    for x, lines in ((36, ("query, key: h → a · k", f"k = {k}")), (204, ("value: h → a · v", f"v = {v}"))):
        part = Column(canvas, x, 144, y)
        part.box("dense", *lines)
    column = Column(canvas, 36, 312, part.y)
    column.box("heads", f"attention, a = {a} heads; output a · v → h", arrows=(108, 276))
    column.residual(18, y - 8, column.box("norm", "add, LayerNorm"))
    start = column.y + 6
    column.box("dense", f"feed-forward h → f → h, f = {f}")
    column.residual(18, start, column.box("norm", "add, LayerNorm"))
    y = canvas.down(192, column.y) + 12
    for title, (values, before) in sizes.items():
        if len(set(values)) > 1:
            y = canvas.bars(y, f"{title}: {span(values)} of {before}", values, before)
    return canvas.svg()


def transfer_stages(recipe: Transfer) -> str:
    """Draw what each stage of a progressive transfer trains, from its config (Sun et al. 2020, §3.5)."""
    groups, layers, canvas = recipe.layer_groups, recipe.model.layers, Canvas("The stages of a transfer")
    rate, last_rate, lower_rate = (
        recipe.transfer.learning_rate,
        recipe.optimizer.learning_rate,
        recipe.transfer.lower_rate,
    )
    cell, top, left = 196 / len(groups), 66, 52
    bottom, middle = top + layers * cell, left + 98
    canvas.text(middle, 44, f"{len(groups)} × {recipe.transfer.steps:,} steps,")
    canvas.text(middle, 59, "layer by layer")
    canvas.text(304, 44, f"{sum(stage.steps for stage in recipe.distillation):,} steps,")
    canvas.text(304, 59, "distillation")
    canvas.rectangle("empty", left, top, 196, bottom - top)
    for stage, trained in enumerate(groups):
        y, x = bottom - trained[-1] * cell, left + stage * cell
        canvas.rectangle("bar", x, y, cell, len(trained) * cell)
        canvas.rectangle("dense", x, y + len(trained) * cell, cell, (trained[0] - 1) * cell)
    canvas.rectangle("bar", 262, top, 84, bottom - top)
    canvas.text(left - 6, bottom - 1, "layer 1", anchor="end")
    canvas.text(left - 6, top + 9, str(layers), anchor="end")
    for x, text in ((left + cell / 2, "1"), (middle, "stage"), (left + 196 - cell / 2, str(len(groups)))):
        canvas.text(x, bottom + 14, text)
    legend = {
        "bar": f"trained at a rate of {rate:g}, in the distillation {last_rate:g}",
        "dense": f"trained before, now at {rate * lower_rate:g}",
        "empty": "not computed yet",
    }
    for index, (kind, text) in enumerate(legend.items()):
        canvas.rectangle(kind, 20, bottom + 30 + 18 * index, 11, 11)
        canvas.text(38, bottom + 40 + 18 * index, text, anchor="start")
    return canvas.svg()


def pruned_widths(rows: Sequence[dict]) -> str:
    """Draw the sizes that pruning left of each layer, from the rows of a result table, beside those before."""
    before = {"feed-forward size": SIZES["feed_forward_size"], "heads": SIZES["heads"]}
    canvas, y = Canvas("What pruning left of each layer"), 36
    for row in rows:
        name, *values = row.values()
        full = before.get(name, SIZES["hidden_size"] // SIZES["heads"])
        y = canvas.bars(y, f"{name}: {span(values)} of {full}", values, full)
    return canvas.svg()


def pipeline() -> str:
    """Draw the way from text to a file for phones, with the commands."""
    canvas = Canvas("From text to the phone")
    column = Column(canvas, 16, 328, canvas.box("norm", 16, 34, 328, "your text: files, JSON lines, Parquet, gs://, …"))
    column.box("dense", "tokenise it once", "bertzoo tokenize")
    column.box("heads", "pretrain", "bertzoo pretrain")
    ways = [Column(canvas, x, 154, column.y) for x in (16, 190)]
    ways[0].box("window", "teach a student", "bertzoo transfer")
    ways[1].box("window", "or prune to a budget", "bertzoo prune")
    canvas.path((180, column.y), (180, ways[0].y + 1), arrow=False)
    column.y = ways[0].y
    column.box("heads", "fine-tune", "bertzoo finetune", arrows=(93, 180, 267))
    column.box("dense", "a file for phones, checked against the model", "bertzoo convert")
    return canvas.svg()


def pictures() -> dict[str, Callable[[], str]]:
    """Return by file name what draws the picture, from the shipped configs and results."""

    def model(name: str):
        return config.load(Pretrain, [name]).model

    sizes = json.loads((DATA / "pruning.json").read_text(encoding="utf-8"))["tables"]["sizes"]
    return {
        "squeezebert": lambda: squeezebert(model("squeezebert")),
        "mobilebert": lambda: mobilebert(model("ib_bert_large"), model("mobilebert")),
        "convbert": lambda: convbert(model("convbert_base")),
        "schubert": lambda: schubert(model("schubert_88m")),
        "transfer_stages": lambda: transfer_stages(config.load(Transfer, ["mobilebert_transfer"])),
        "pruned_widths": lambda: pruned_widths(sizes),
        "pipeline": pipeline,
    }


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    OUT.mkdir(exist_ok=True)
    for name, draw in pictures().items():
        (OUT / f"{name}.svg").write_text(draw(), encoding="utf-8")
