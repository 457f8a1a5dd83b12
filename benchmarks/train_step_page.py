"""The section of docs/performance.md that train_step.py writes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import lesson
import machine
from sides import Setting
from train_step_peer import DROPOUT, LESSON

FASTER = 1.2  # times as fast as theirs, that is aimed at
BUSY = {"bert_base": 0.45}  # of a GPU's data sheet, that is aimed at


@dataclass(frozen=True)
class Row:
    """A model: rows, tokens and masked ones of a batch; of both sides seconds of a step, the peak in MB and the last
    loss; how many times theirs takes as long, by the clock and by the CPU; the least and the greatest of the rounds, by
    the clock; GFLOPs of a row of either.
    """

    model: str
    shape: tuple[int, int, int]
    ours: tuple[float, float, float]
    theirs: tuple[float, float, float]
    wall: float
    cpu: float
    spread: tuple[float, float]
    gflops: tuple[float, float]


def met(row: Row, peak: float, gpu: bool) -> bool:
    """Whether a row is as fast as is aimed at; `peak`: operations a second that are all there is to use."""
    return row.wall >= FASTER and not (gpu and used(row, peak)[0] < BUSY.get(row.model, 0))


def used(row: Row, peak: float) -> list[float]:
    """The share of the peak that each side uses."""
    sides = zip((row.ours, row.theirs), row.gflops, strict=True)
    return [row.shape[0] / seconds * gflops * 1e9 / peak for (seconds, _, _), gflops in sides]


def peak_of(name: str, fastest: tuple[float, float]) -> float:
    """What utilisation is of: the data sheet's of a GPU so named, else the faster of the large products."""
    return promised(name) or max(fastest)


def promised(name: str) -> float | None:
    """What the data sheet of a GPU so named has, where it is known."""
    from bertzoo.train import metrics  # imports JAX, which the other side's process must not

    return metrics.peak_flops(name)


def table(rows: Sequence[Row], peak: float, gpu: bool) -> str:
    """Markdown; `peak`: operations a second that are all there is to use."""
    pairs = ["rows/s, ours", "theirs", "GFLOPs a row, ours", "theirs", "utilisation, ours", "theirs"]
    head = ["model", "batch", "times as fast", *pairs, "peak MB, ours", "theirs", "met"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        count, length, _ = row.shape
        speeds = [count / seconds for seconds, _, _ in (row.ours, row.theirs)]
        fast = f"{row.wall:.2f} ({row.spread[0]:.2f} to {row.spread[1]:.2f})"
        cells = (
            f"{count}x{length}", fast, *(f"{speed:,.2f}" for speed in speeds),
            *(f"{each:.1f}" for each in row.gflops), *(f"{share:.2f}" for share in used(row, peak)),
            *(f"{mb:,.0f}" for _, mb, _ in (row.ours, row.theirs)), "yes" if met(row, peak, gpu) else "NO",
        )  # fmt: skip
        lines.append(f"| {row.model} | {' | '.join(cells)} |")
    return "\n".join(lines)


def versions() -> list[str]:
    """Of what both sides run, and the commit of ours."""
    packages = ("jax", "jaxlib", "torch", "transformers")
    return [*(f"{each} {version(each)}" for each in packages), f"commit {machine.commit()}"]


def page(
    rows: Sequence[Row], setting: Setting, name: str, fastest: tuple[float, float], options: str, under: Sequence[str]
) -> str:
    """Markdown; of what computes its name and the operations a second of large products on it, in XLA and PyTorch;
    `options`: of the command; `under`: the `versions` that it began with.
    """
    sheet, peak = promised(name), peak_of(name, fastest)
    xla, torch = (f"{speed / 1e9:,.0f}" for speed in fastest)
    reached = f"{max(fastest) / 1e9:,.0f} GFLOP/s, which a large product reaches here: {xla} in XLA, {torch} in PyTorch"
    over = f"{sheet / 1e9:,.0f} GFLOP/s of its data sheet ({reached})" if sheet else reached
    aim = f"At least {FASTER} times theirs is aimed at"
    if setting.gpu:
        where, more, memory = name, " and torch.compile", "The peak is of the GPU's memory"
        aim += ", and of BERT-base a utilisation of 0.45"
    else:
        where, more = f"{machine.processor()}, {os.cpu_count()} cores, {setting.threads} threads", ""
        memory = "The peak is of the whole process, what compiles or starts it included"
    masked = " or ".join(sorted({f"{row.shape[2]} of {row.shape[1]}" for row in rows}))
    return f"""## A training step on a {"GPU" if setting.gpu else "CPU"}

`python benchmarks/train_step.py {options}`: whole steps, every token real and {masked} of each row masked,
{setting.dtype}, dropout {DROPOUT}, AdamW, beside Hugging Face's models in PyTorch with their own choice of attention
(scaled-dot-product where they have it, which SqueezeBERT and ConvBERT have not) and fused AdamW{more}; medians of
rounds in turns, of the times as fast that of the rounds' ratios, with the least and the greatest. Theirs
compute logits at every position, ours at the masked ones, so that their steps have more
operations. ConvBERT is under the masked language model, which theirs has a class for; `electra_small` is generator,
sampling and discriminator. `{LESSON}` is a step of transfer layer by layer (docs/transfer.md), at layer
{lesson.LAYER} of {lesson.LAYERS}, without dropout; ours has all layers of teacher and student
in memory, theirs the {lesson.LAYER} that are run.
{", ".join(under)}; {where}.

Utilisation is rows a second times a row's operations (three times the matrix products of the forward pass; of the
transfer what it computes) over the {over}. {memory}. {aim}.

{table(rows, peak, setting.gpu)}"""
