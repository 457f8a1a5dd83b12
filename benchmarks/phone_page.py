"""The section of docs/results.md that phone.py writes, and the targets that it holds."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from phone_costs import GIGABYTES, MINUTES
from phone_scores import LOST, PRECISIONS, average, lost

from bertzoo.finetuning.results import published

LENGTH = 128
FIVE = [32, 64, 128, 256, 384]
# By config: its name, what of the peer's time it may take, and what is aimed at.
MODELS = {
    "bert_base": ("BERT-base", 0.95, None),
    "squeezebert": ("SqueezeBERT", 0.90, 0.82),
    "mobilebert": ("MobileBERT", 0.97, None),
    "convbert_base": ("ConvBERT-base", 0.95, 0.90),
}
SIZE_ONE, SIZE_FIVE, SIGNATURES, SENTENCES, SAME = 0.28, 0.30, 1.05, 0.45, 1e-4
RELEASED = [("model.norm", "no_norm"), ("model.activation", "relu")]
CORNERS = {
    ("layer_norm", "gelu_tanh"): "LayerNorm & gelu",
    ("layer_norm", "relu"): "LayerNorm & relu",
    ("no_norm", "gelu_tanh"): "NoNorm & gelu",
    ("no_norm", "relu"): "NoNorm & relu",
}


@dataclass
class Found:
    """What was measured. rounds: by file the seconds of its runs, and of sentences; sizes: bytes by file; read: the
    length that each sentence was read at; scores, costs: what phone_scores.py found of fine-tuned models, and
    phone_costs.py of MobileBERT's conversions.
    """

    names: Sequence[str]
    rounds: Sequence[Mapping[str, Any]]
    sizes: Mapping[str, int]
    differences: Mapping[str, float]
    read: Sequence[int]
    each: int
    versions: Mapping[str, str]
    scores: Sequence[Mapping[str, Any]] = ()
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    processor: str = ""
    missed: list[str] = field(default_factory=list)

    def ratios(self, ours: str, theirs: str) -> list[float]:
        """Of every round the ratio of the medians, in ascending order."""
        return sorted(
            statistics.median(row["fixed"][ours]) / statistics.median(row["fixed"][theirs]) for row in self.rounds
        )

    def milliseconds(self, key: str) -> float:
        """The median of all runs."""
        return 1e3 * statistics.median(second for row in self.rounds for second in row["fixed"][key])

    def held(self, what: str, value: float, limit: float) -> str:
        """Whether a value is at most its limit; kept where it is not."""
        if value <= limit:
            return "yes"
        self.missed.append(f"{what} is {value:.3g} and may be {limit:g}")
        return "NO"


def page(found: Found) -> tuple[str, list[str]]:
    """Markdown, and which targets were missed."""
    names = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    five = ", ".join(map(str, FIVE))
    parts = [
        f"""## On the phone's runtime

`python benchmarks/phone.py`: classifiers with random weights, one row of {LENGTH} tokens, one thread, LiteRT with
XNNPACK, {len(found.rounds)} rounds of {found.each} runs each in turns. A ratio is the median of the rounds' ratios,
with their quartiles. {names}; {found.processor}.

Our float32 files against those that litert-torch makes of the same Hugging Face model and weights:""",
        against(found),
        f"int8 against float32, which gains less on a processor without VNNI; five lengths are {five}, as signatures:",
        quantised(found),
    ]
    if found.read:
        counts = ", ".join(f"{count} of {length}" for length, count in sorted(Counter(found.read).items()))
        parts += [
            f"""The {len(found.read)} sentences of SST-2's development set, each read at the shortest of the five
lengths that holds it ({counts}), against {LENGTH} tokens for all:""",
            read(found),
        ]
    if found.scores:
        parts += [
            f"What quantisation costs fine-tuned models, in points of development sets; int8-dynamic may lose {LOST}:",
            scored(found),
        ]
    if found.costs:
        parts += [
            f"`bertzoo convert` of MobileBERT, its proof included; {MINUTES} minutes and {GIGABYTES} GB are allowed:",
            converted(found),
        ]
    if "mobilebert" in found.names and "bert_base" in found.names:
        parts += [
            "MobileBERT's operational optimisations, as its Table 7, and all against our BERT-base:",
            papers(found),
        ]
    return "\n\n".join(parts), found.missed


def against(found: Found) -> str:
    """The table of what was promised."""
    rows = [("model", "litert-torch, ms", "ours, ms", "ratio", "at most", "aim", "met", "logits differ by")]
    for name in found.names:
        shown, limit, aim = MODELS[name]
        ratios = found.ratios(f"{name} one fp32", f"{name} peer")
        met = {
            found.held(f"{shown} against litert-torch", statistics.median(ratios), limit),
            found.held(f"{shown}'s difference in logits", found.differences[name], SAME),
        }
        times = [f"{found.milliseconds(f'{name} {kind}'):.1f}" for kind in ("peer", "one fp32")]
        aimed = "" if aim is None else f"{aim:.2f}"
        rows.append((shown, *times, _ratio(ratios), f"{limit:.2f}", aimed, _all(met), f"{found.differences[name]:.1e}"))
    return _table(rows)


def quantised(found: Found) -> str:
    """Sizes and times."""
    head = ("model", "float32, MB", "int8, MB", "ratio", "five: float32", "five: int8")
    rows = [(*head, "int8-dynamic's time of float32's", "int8-static's", "met")]
    for name in found.names:
        shown = MODELS[name][0]
        one, small, five, smalls = (
            found.sizes[f"{name} {kind} {precision}"]
            for kind in ("one", "five")
            for precision in ("fp32", "int8-dynamic")
        )
        ratios = found.ratios(f"{name} one int8-dynamic", f"{name} one fp32")
        met = {
            found.held(f"{shown}'s int8 file of float32's", small / one, SIZE_ONE),
            found.held(f"{shown}'s int8 file of float32's, five lengths", smalls / five, SIZE_FIVE),
            found.held(f"{shown}'s file of five lengths of that of one", five / one, SIGNATURES),
            found.held(f"{shown}'s time at int8 of float32's", statistics.median(ratios), 1.0),
        }
        cells = [f"{one / 1e6:.1f}", f"{small / 1e6:.1f}", f"{small / one:.3f}", f"{five / one:.3f} of one"]
        static = found.ratios(f"{name} one int8-static", f"{name} one fp32")
        rows.append((shown, *cells, f"{smalls / five:.3f}", _ratio(ratios), _ratio(static), _all(met)))
    wanted = f"At most {SIZE_ONE}, {SIGNATURES}, {SIZE_FIVE} and, of int8-dynamic, 1.00 were wanted, in this order."
    return f"{_table(rows)}\n\n{wanted}"


def read(found: Found) -> str:
    """Sentences against the one length."""
    rows = [("model", "mean of sentences, ms", f"at {LENGTH}, ms", "ratio", "at most", "met")]
    for name in found.names:
        shown, key = MODELS[name][0], f"{name} five fp32"
        taken = [row["sentences"][key] for row in found.rounds]
        fixed = [statistics.median(row["fixed"][f"{name} one fp32"]) for row in found.rounds]
        ratios = sorted(statistics.fmean(each) / one for each, one in zip(taken, fixed, strict=True))
        mean = 1e3 * statistics.fmean(second for each in taken for second in each)
        met = found.held(f"{shown}'s sentences", statistics.median(ratios), SENTENCES)
        times = f"{mean:.1f}", f"{found.milliseconds(f'{name} one fp32'):.1f}"
        rows.append((shown, *times, _ratio(ratios), f"{SENTENCES:.2f}", met))
    return _table(rows)


def scored(found: Found) -> str:
    """Fine-tuned models and their files on their tasks."""
    rows: list[Sequence[str]] = [("model", "task", "examples", "metrics", "points", *PRECISIONS, "met")]
    for each in found.scores:
        met = found.held(f"{each['task']}: what int8-dynamic loses", lost(each, "int8-dynamic"), LOST)
        points = (f"{average(each, which):.2f}" for which in ("model", *PRECISIONS))
        rows.append((each["kind"], each["task"], f"{each['examples']:,}", ", ".join(each["metrics"]), *points, met))
    return _table(rows)


def converted(found: Found) -> str:
    """Time and memory of every format."""
    rows = [("format", "seconds", "peak memory, GB", "met")]
    for name, each in found.costs.items():
        met = {
            found.held(f"MobileBERT to {name}, in minutes,", each["seconds"] / 60, MINUTES),
            found.held(f"MobileBERT to {name}, in GB,", each["gigabytes"], GIGABYTES),
        }
        rows.append((name, f"{each['seconds']:.0f}", f"{each['gigabytes']:.1f}", _all(met)))
    return _table(rows)


def papers(found: Found) -> str:
    """MobileBERT's corners and SqueezeBERT, as shares of BERT-base's time, beside what the papers' tables give."""
    base = "bert_base one fp32"
    rows = [("model", "ms", "of our BERT-base", "the paper's", "where")]
    printed = {row.variant: float(row.values["latency_ms"].value) for row in published.rows("MobileBERT", ["7"])}
    theirs = _latency("MobileBERT", "4", "BERT-base")
    for (norm, activation), shown in CORNERS.items():
        released = [("model.norm", norm), ("model.activation", activation)] == RELEASED
        key = "mobilebert one fp32" if released else f"corner {norm} {activation}"
        cells = f"{found.milliseconds(key):.1f}", _ratio(found.ratios(key, base)), f"{printed[shown] / theirs:.2f}"
        rows.append((f"MobileBERT, {shown}", *cells, "Pixel 4, 4 threads, TFLite"))
    for name in ("mobilebert", "squeezebert"):
        if name in found.names:
            shown, key = MODELS[name][0], f"{name} one fp32"
            share = _latency("SqueezeBERT", "2", shown) / _latency("SqueezeBERT", "2", "BERT-base")
            cells = f"{found.milliseconds(key):.1f}", _ratio(found.ratios(key, base)), f"{share:.2f}"
            rows.append((shown, *cells, "Pixel 3, PyTorch, SqueezeBERT's Table 2"))
    return _table(rows)


def _latency(paper: str, table: str, model: str) -> float:
    """The first that the table prints of a model."""
    rows = [row for row in published.rows(paper, [table]) if row.model == model and "latency_ms" in row.values]
    return float(rows[0].values["latency_ms"].value)


def _all(met: set[str]) -> str:
    return "yes" if met == {"yes"} else "NO"


def _ratio(ratios: Sequence[float]) -> str:
    """The median and the quartiles of ratios in ascending order."""
    quarter = len(ratios) // 4
    return f"{statistics.median(ratios):.3f} ({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f})"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])
