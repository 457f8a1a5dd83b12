"""The table and the picture of learning.py."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import machine
from pages import RESULTS, write_section

from bertzoo.finetuning.results import published

HIDDEN, APART = "mlm_hidden_loss", "rtd_auc"  # what the curves are of
SHOWN = {
    "cola": ("CoLA", "matthews"),
    "mrpc": ("MRPC", "accuracy"),
    "stsb": ("STS-B", "spearman"),
    "sst2": ("SST-2", "accuracy"),
}
TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the runs were asked: names of the files of text, the corpus's manifest, options of the fine-tuning and more
    of a task, and run.json of each; runs at a time; minutes, jobs and cores of all of it, where they are known; of the
    papers' models the minutes of each.
    """

    texts: Sequence[str]
    manifest: Mapping[str, Any]
    tuned: Sequence[str]
    of_task: Mapping[str, Sequence[str]]
    tuned_at: Sequence[Mapping[str, Any]]
    jobs: int
    took: Mapping[str, float] | None
    paper: float | None


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A finished run: parameters, steps and training FLOPs, those before rows are longer, by FLOPs what held-out rows
    said on the way, the minutes of its pretraining, the figures of all held-out text at the end, by task the scores of
    its seeds, and run.json.
    """

    name: str
    title: str
    parameters: int
    steps: int
    flops: int
    longer: int
    curve: Sequence[tuple[int, Mapping[str, Any]]]
    minutes: float
    end: Mapping[str, float]
    scores: Mapping[str, Mapping[str, Mapping[str, float]]]
    facts: Mapping[str, Any]

    @property
    def short(self) -> Mapping[str, Any] | None:
        """What held-out rows said last before they grew longer; None where they did not."""
        before = [line for flops, line in self.curve if flops <= self.longer < self.flops]
        return before[-1] if before else None

    @property
    def replaced(self) -> bool:
        return APART in self.end


def draw(found: Sequence[Figures], path: Path) -> None:
    """The masked language models on the left, generators broken; discriminators on the right. What is not trained is
    not drawn.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    most = max(each.flops for each in found)
    for index, each in enumerate(each for each in found if each.flops > most / 100):
        style: dict[str, Any] = {"color": f"C{index}", "linewidth": 1.4}
        for axes, key in ((left, HIDDEN), (right, APART)):
            points = [(flops / TERA, line[key]) for flops, line in each.curve if key in line]
            if len(points) > 1:
                generator = key == HIDDEN and each.replaced
                label = f"{each.title}'s generator" if generator else each.title
                axes.plot(*zip(*points, strict=True), label=label, linestyle="--" if generator else "-", **style)
                if each.short is not None and key in each.short:
                    axes.plot(each.longer / TERA, each.short[key], marker="o", markersize=4, color=style["color"])
    entropy = found[0].end["unigram_entropy"]
    left.axhline(entropy, color="0.5", linestyle=":", linewidth=1)
    left.annotate(
        "word frequencies alone", (1, entropy), (-4, 3), ("axes fraction", "data"), "offset points", ha="right"
    )
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


def _both(each: Figures, key: str) -> str:
    """A figure of short rows, and at the end."""
    return f"{each.end[key]:.3f}" if each.short is None else f"{each.short[key]:.3f} / {each.end[key]:.3f}"


def _score(scores: Mapping[str, Mapping[str, float]], metric: str) -> str:
    median, least, most = (scores[which][metric] for which in ("median", "min", "max"))
    return f"{median:.1f} ({least:.1f} to {most:.1f})"


def table(found: Sequence[Figures]) -> str:
    """Markdown: a line for each run."""
    tasks = [task for task in SHOWN if any(task in each.scores for each in found)]
    head = ["model", "parameters", "steps", "TFLOPs", "MLM loss of hidden tokens", "RTD, area", "RTD loss", "minutes"]
    head += [f"{SHOWN[task][0]}, {SHOWN[task][1]}" for task in tasks]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for each in found:
        cells = [each.title, f"{each.parameters:,}", f"{each.steps:,}", f"{each.flops / TERA:,.2f}"]
        cells.append(f"{_both(each, HIDDEN)}{' (generator)' if each.replaced else ''}")
        cells += [_both(each, key) if each.replaced else "-" for key in (APART, "rtd_loss")]
        cells.append(f"{each.minutes:.1f}")
        cells += [_score(each.scores[task], SHOWN[task][1]) if task in each.scores else "-" for task in tasks]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def average(each: Figures, which: str = "median") -> float:
    """The mean of the tasks' metrics, in points: of their medians, or of the least or the greatest of the seeds."""
    return statistics.mean(each.scores[task][which][metric] for task, (_, metric) in SHOWN.items())


def printed() -> dict[str, float]:
    """GLUE's averages in ConvBERT's Table 1, of its rows that are models as they were released."""
    rows = published.rows("ConvBERT", ["1"])
    return {row.model: float(row.values["glue_avg"].value) for row in rows if row.variant in ("", "+BNK, +SDConv")}


def order(found: Sequence[Figures]) -> str:
    """Whether the runs' averages come in the order of those that the paper prints, in a sentence; where the averages of
    two seeds' extremes overlap, the order says little.
    """
    known = printed()
    ours, theirs = (sorted(found, key=key, reverse=True) for key in (average, lambda each: known[each.title]))
    said = ", ".join(f"{each.title} {average(each):.1f} ({spread(each)})" for each in ours)
    told = ", ".join(f"{each.title} {known[each.title]:.1f}" for each in theirs)
    same = "the same order" if ours == theirs else "ANOTHER order"
    close = [
        f"{one.title} and {other.title}"
        for one, other in pairwise(ours)
        if average(one, "min") <= average(other, "max")
    ]
    doubt = f" The seeds of {', of '.join(close)} overlap." if close else ""
    return f"Averages of the four: {said}. ConvBERT's Table 1, of all GLUE: {told}; {same}.{doubt}"


def spread(each: Figures) -> str:
    """The averages of the seeds' least and greatest scores."""
    return f"{average(each, 'min'):.1f} to {average(each, 'max'):.1f}"


SMALL = """## What a model learns of one budget

Every model of `configs/learning` (4 layers and 64 units, the same text, rows, masks and optimiser; ELECTRA and
ConvBERT under replaced token detection, the others under the masked language model) is trained with the same FLOPs,
those of its generator and of its teacher's forward pass among them; the teacher's own training is not in its student's.
Rows have 32 tokens, in the last steps 128: a dot in the picture marks the change. The taught model's curve begins when
its layers have been transferred, which has no such loss. The one that is not pretrained has a learning rate of 0. The
teacher is not fine-tuned."""
PAPER = """## BERT-small, ELECTRA-small and ConvBERT-small on one device

The shipped configs, for as many of the papers' steps as fit into equal minutes."""


def page(found: Sequence[Figures], told: Told, picture: str, end: str = "") -> str:
    """The section of docs/results.md."""
    first = found[0]
    given = [] if told.paper is None else [f"--paper --minutes={told.paper:g}"]
    given += [f"--text {' '.join(told.texts)}"] * bool(told.texts) + ["--glue=glue"] * bool(first.scores)
    beside = f", {told.jobs} runs at a time" if told.jobs > 1 else ""
    commits = ", ".join(sorted({machine.revision(each.facts) for each in found}))
    after = ", ".join(sorted({machine.revision(each) for each in told.tuned_at}))
    commits += f", of the fine-tuning {after}" if after else ""
    devices = sorted({device for each in found for device in each.facts["devices"]})
    where = f"{', '.join(devices)} under jax {first.facts['jax']}, {machine.processor()}"
    tuned = "".join(
        f"\nbertzoo finetune finetune --task={task} {' '.join((*told.tuned, *told.of_task.get(task, ())))} ..."
        for task in first.scores
    )
    tokens = told.manifest["splits"]["train"]["tokens"]
    text = ", ".join(told.texts) or "the embedded corpus"
    whole = f"all held-out rows of {first.end['max_length']:.0f} tokens at the end"
    lengths = f": 1,024 rows before these grow longer / {whole}" if first.short else f" on {whole}"
    took = told.took
    time = (
        f" All of it, with the text's tokens, took {took['minutes']:.0f} minutes, {took['jobs']} runs at a time on"
        f" {took['cores']} cores."
        if took
        else ""
    )
    return f"""{SMALL if told.paper is None else PAPER}

```bash
{" ".join(["python benchmarks/learning.py", *given])}{tuned}
```

The text: {text}; {tokens:,} tokens, hash {told.manifest["hash"][:12]}. Commit {commits}; {where}.{time}
Held-out losses in nats{lengths};
word frequencies alone get to {first.end["unigram_entropy"]:.3f}. Minutes are those of the pretraining{beside}.
Scores are those of the development sets, the median of the seeds' best epochs with the least and the greatest.

{table(found)}

{end}![held-out losses by training FLOPs]({picture})"""


def write(found: Sequence[Figures], told: Told) -> None:
    """The section and its picture."""
    small = told.paper is None
    picture = RESULTS.with_name("learning.png" if small else "learning_paper.png")
    end = "" if small or not found[0].scores else f"{order(found)}\n\n"
    write_section("learning.py" if small else "learning.py --paper", page(found, told, picture.name, end))
    draw(found, picture)
