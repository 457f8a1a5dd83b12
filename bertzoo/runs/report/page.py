"""What became of a run: its metrics read back, drawn as curves, and told on a short page.

The run directory and `metrics.jsonl` are as docs/formats.md describes them. Losses are in nats, accuracies shares.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from bertzoo.core import config, markdown
from bertzoo.core.errors import UserError
from bertzoo.core.paths import run_directory
from bertzoo.runs import provenance, prune_layout
from bertzoo.runs.report import pruning

Line = Mapping[str, Any]
SHARES = ("accuracy", "precision", "recall")  # the endings of metrics that are shown in per cent
KINDS = ("loss", *SHARES, "auc")  # of all that says how well a model does
HIDDEN = "_hidden_loss"  # the ending of a term's loss over a part of what it is counted over
# Of which there may be nothing: the metric is then not in the line.
NOTHING = {
    "mlm_hidden_loss": "nothing was hidden",
    "rtd_precision": "nothing was called replaced",
    "rtd_recall": "nothing was replaced",
    "rtd_auc": "nothing was replaced",
}


@dataclass(frozen=True, kw_only=True)
class History:
    """A run's `metrics.jsonl`: the lines that count, in the order of steps, and the events in the order of time."""

    train: list[Line]
    heldout: list[Line]
    events: list[Line] = field(default_factory=list)
    torn: bool = False  # the last line was cut off, as by a crash, and is left out


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory: its history, its resolved config and the facts of `run.json`.

    since: the step before which figures are of another model, and none is the best.
    """

    directory: Path
    since: int = -1
    history: History
    config: Mapping[str, Any]
    facts: Mapping[str, Any]

    def boundaries(self) -> list[int]:
        """The steps at which a stage gave way to the next."""
        ends = accumulate(stage["steps"] for stage in self.stages()[:-1])
        return [end for end in ends if end <= self.history.train[-1]["step"]]

    def stages(self) -> list[Mapping[str, Any]]:
        """What is known of each stage: the config's or, where that says how they are made, those that have begun."""
        if "stages" in self.config:
            return self.config["stages"]
        begun = {event["stage"]: event for event in self.history.events if event["event"] == "stage"}
        return [{k: v for k, v in begun[i].items() if k not in ("event", "step", "stage")} for i in sorted(begun)]


def open_run(directory: str | Path) -> Run:
    """Read a run directory; raises UserError when it is none or has no metrics yet."""
    directory = run_directory(directory)
    if parts := prune_layout.parts(directory):
        return _chain(directory, parts)
    for name in ("config.toml", "metrics.jsonl"):
        if not (directory / name).is_file():
            raise UserError(f"{directory} is not the directory of a run: it has no {name}")
    return Run(
        directory=directory,
        history=read_history(directory / "metrics.jsonl"),
        config=config.read(directory / "config.toml"),
        facts=provenance.read_run_json(directory, str(directory)),
    )


def _chain(directory: Path, parts: list[Path]) -> Run:
    """A pruning run: the histories of its parts one after another, each of their stages one of the whole."""
    train, heldout, events, torn, done, number = [], [], [], False, 0, 0
    begun = [0]  # at which step each part
    for part in parts:
        if not (part / "metrics.jsonl").is_file():
            continue  # it has just begun
        begun.append(done)
        found, table = _read(part / "metrics.jsonl"), config.read(part / "config.toml")
        later = partial(_later, done, number)
        train += map(later, found.train)
        heldout += map(later, found.heldout)
        for stage in table.get("stages") or table["distillation"]:
            events.append({"event": "stage", "step": done, "stage": number, "name": part.name, **stage})
            done, number = done + stage["steps"], number + 1
        events += [later(event) for event in found.events if event["event"] != "stage"]
        torn = found.torn
    if not train:
        raise UserError(f"{directory} has no training step yet; run the pruning for longer")
    history = History(train=train, heldout=heldout, events=events, torn=torn)
    table, said = config.read(directory / "config.toml"), provenance.read_run_json(directory, str(directory))
    return Run(directory=directory, history=history, config=table, facts=said, since=begun[-1])


def _later(steps: int, stages: int, line: Line) -> Line:
    return {**line, "step": line["step"] + steps, "stage": line.get("stage", 0) + stages}


def read_history(path: Path) -> History:
    """Read `metrics.jsonl`; the last line of a step counts, and a resume undoes the steps after its own.

    Raises UserError naming the line that is no JSON object, or when no step has been logged."""
    found = _read(path)
    if not found.train:
        raise UserError(f"{path} has no training step yet; run the pretraining for longer")
    return found


def _read(path: Path) -> History:
    text = path.read_text(encoding="utf-8", errors="replace")
    texts = text.splitlines()
    splits: dict[str, dict[int, Line]] = {"train": {}, "heldout": {}}
    events: list[Line] = []
    torn = False
    for number, raw in enumerate(texts, start=1):
        try:
            line = json.loads(raw)
            step, kind = line["step"], line["event"] if "event" in line else splits[line["split"]]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(texts) and not text.endswith("\n"):
                torn = True
                continue
            raise UserError(f"{path}, line {number} is not a line of metrics; remove it to see the rest") from error
        if isinstance(kind, dict):
            kind[step] = line
            continue
        events.append(line)
        if kind == "resumed":
            splits = {name: {s: kept for s, kept in lines.items() if s <= step} for name, lines in splits.items()}
    train, heldout = ([lines[step] for step in sorted(lines)] for lines in splits.values())
    return History(train=train, heldout=heldout, events=events, torn=torn)


def series(lines: Iterable[Line], key: str) -> tuple[list[int], list[float]]:
    """The steps and values of `key` in the lines that have a finite one."""
    having = [line for line in lines if line.get(key) is not None and isfinite(line[key])]
    return [line["step"] for line in having], [line[key] for line in having]


def names(history: History) -> list[str]:
    """All that any line has."""
    return list(dict.fromkeys(key for line in [*history.train, *history.heldout] for key in line))


def keys(history: History, ending: str) -> list[str]:
    """The metrics whose names end in `ending`; the whole before its terms, and not at all when it is but one term."""
    found = [key for key in names(history) if key.endswith(ending)]
    rest = [key for key in found if key != ending]
    one = sum(not key.endswith(HIDDEN) for key in rest) == 1
    return rest if one else [key for key in found if key == ending] + rest


def title(key: str, among: Iterable[str] = ()) -> str:
    """`mlm_loss` as a person writes it: MLM loss, or generator MLM loss where the metrics `among` which it stands are
    those of replaced token detection.
    """
    if key.endswith(HIDDEN):
        return f"{title(key.removesuffix(HIDDEN) + '_loss', among)} of hidden tokens"
    term, _, kind = key.rpartition("_")
    whose = "generator " if term == "mlm" and "rtd_loss" in among else ""
    called = term if term == "penalty" else term.upper()
    return f"{whose}{called} {'AUC' if kind == 'auc' else kind}".strip()


def nothing(key: str, line: Line) -> str | None:
    """In words, why a line of metrics has no `key` though it has its term's loss; None where nothing is missing."""
    return NOTHING.get(key) if key not in line and f"{key.split('_')[0]}_loss" in line else None


def best(lines: Iterable[Line], key: str) -> tuple[int, float] | None:
    """The step and value of the lowest loss or the highest of another metric, or None."""
    pairs = zip(*series(lines, key), strict=True)
    return (min if key.endswith("loss") else max)(pairs, key=lambda pair: pair[1], default=None)


def page(run: Run) -> str:
    """The Markdown page: what was run, what came out, what happened, how fast."""
    parts = [f"# {run.directory.resolve().name}", _what(run), _figures(run), _events(run.history), _speed(run)]
    parts += (
        ["![loss](loss.png)", "![accuracy](accuracy.png)"] if keys(run.history, "accuracy") else ["![loss](loss.png)"]
    )
    if found := pruning.read(run.directory):
        parts += [pruning.table(found), "![layers](layers.png)"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _what(run: Run) -> str:
    told = ", ".join(f"{key} {_plain(value)}" for key, value in run.facts.items() if key != provenance.TOKENIZER)
    model = ", ".join(f"{key} {_plain(v)}" for key, v in run.config.get("model", {}).items() if not isinstance(v, dict))
    stages = run.stages()
    columns = list(dict.fromkeys(key for stage in stages for key, v in stage.items() if not isinstance(v, dict | list)))
    rows = [[str(i), *(_plain(stage.get(key, "")) for key in columns)] for i, stage in enumerate(stages)]
    table = markdown.table(["stage", *columns], rows) if stages else ""
    lines = [f"Model: {model}." if model else "", f"Run: {told}." if told else "", table]
    return "\n\n".join(line for line in lines if line)


def _figures(run: Run) -> str:
    rows, history = [], run.history
    for key in [key for kind in KINDS for key in keys(history, kind)]:
        top = best([line for line in history.heldout if line["step"] > run.since], key)
        cells = [_last(lines, key) for lines in (history.train, history.heldout)]
        rows.append([title(key, names(history)), *cells, f"{show(key, top[1])} at step {top[0]}" if top else ""])
    head = f"After step {history.train[-1]['step']} (losses in nats):"
    return head + "\n\n" + markdown.table(["", "train, last", "held-out, last", "held-out, best"], rows)


def _last(lines: list[Line], key: str) -> str:
    if lines and (words := nothing(key, lines[-1])):
        return words
    steps, values = series(lines, key)
    if not values:
        return ""
    # A stage before may have had what the last one has not.
    return show(key, values[-1]) + ("" if key in lines[-1] else f" at step {steps[-1]}")


def _events(history: History) -> str:
    lines = [f"- {event['event'].replace('_', ' ')} at step {event['step']}" for event in history.events]
    if history.torn:
        lines.append("- the last line of metrics.jsonl was cut off and is left out")
    return "\n".join(lines)


def _speed(run: Run) -> str:
    """Medians over the logged intervals, which a compilation or another process disturbs less than means."""
    columns = {
        "examples_per_second": "examples/s",
        "tokens_per_second": "tokens/s",
        "flops_per_second": "model FLOP/s",
        "mfu": "MFU",
        "memory_bytes": "memory",
    }
    columns = {key: name for key, name in columns.items() if series(run.history.train, key)[0]}
    if not columns:
        return ""
    rows = []
    for stage in sorted({line.get("stage", 0) for line in run.history.train}):
        lines = [line for line in run.history.train if line.get("stage", 0) == stage]
        values = {key: series(lines, key)[1] for key in columns}
        rows.append([str(stage), *(show(key, median(v)) if v else "" for key, v in values.items())])
    return "Speed, the median of the logged intervals:\n\n" + markdown.table(["stage", *columns.values()], rows)


def show(key: str, value: float) -> str:
    """`value` of the metric `key` with its unit and the digits that matter."""
    if key.endswith((*SHARES, "mfu")):
        return f"{100 * value:.1f} %"
    if key == "memory_bytes":
        return f"{value / 2**30:.2f} GiB"
    if key == "flops_per_second":
        return f"{value / 1e9:,.1f} G"
    return f"{value:,.1f}" if key.endswith("per_second") else f"{value:.4f}"


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def sketch(history: History, width: int = 78, height: int = 16) -> str:
    """The loss as a plot of characters, and its held-out values below it."""
    import plotext

    key = keys(history, "loss")[0]
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    steps, losses = series(history.train, key)
    figure.draw(figure.signal(steps, losses, marker="braille").lines().label("train"))
    if heldout := series(history.heldout, key)[0]:
        figure.draw(figure.signal(*series(history.heldout, key), marker="o").label("held-out"))
    figure.legend(x=1, y=1, ha="right", va="upper", relative=True)
    ends = steps[:1] + steps[-1:]
    marks = sorted({round(ends[0] + (ends[-1] - ends[0]) * part / 4) for part in range(5)}) if ends else []
    figure.ruler("x").ticks(marks, [f"{mark:,}" for mark in marks])  # plotext's own are floats, 1.1e3
    figure.plot_size(width, height)
    figure.title(f"{title(key, names(history))} (nats)")
    figure.label("step")
    plot = plotext.uncolorize(str(figure.build()))
    return plot.rstrip() + ("\n" + _heldout_lines(history) if heldout else "")


def _heldout_lines(history: History, rows: int = 8) -> str:
    """At most `rows` held-out lines, evenly spread, the last among them."""
    chosen = [key for kind in ("loss", "accuracy", "auc") for key in keys(history, kind)]
    lines = history.heldout
    picked = [
        lines[round(i * (len(lines) - 1) / max(1, min(rows, len(lines)) - 1))] for i in range(min(rows, len(lines)))
    ]
    parts = [
        ", ".join(f"{title(key, line)} {show(key, line[key])}" for key in chosen if line.get(key) is not None)
        for line in picked
    ]
    return "\n".join(f"held-out, step {line['step']}: {part}" for line, part in zip(picked, parts, strict=True))
