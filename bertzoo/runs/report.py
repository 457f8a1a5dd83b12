"""Read a run's metrics, draw its curves as PNG files, write its report page; list runs with their states.

docs/formats.md describes the run directory and `metrics.jsonl`. Losses are in nats, accuracies between 0 and 1.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bertzoo.core import atomic, config, tables
from bertzoo.core.documents import fitting, parse_json, parse_toml
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.core.kinds import CONFIG, KINDS, METRICS, Kind, kind_of, kind_of_run
from bertzoo.core.paths import run_directory
from bertzoo.core.remote import remote_errors
from bertzoo.runs import provenance
from bertzoo.train.progress import SPENT, duration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Line = Mapping[str, Any]
_LINE = {"step": int, "stage?": int, "split?": str, "event?": str, "changes?": [str]}
_CONFIG = {"model?": dict, "stages?": [{"steps": int}]}
SHARES = ("accuracy", "precision", "recall")  # endings of metrics shown in per cent
QUALITY = ("loss", *SHARES, "auc")  # endings of metrics that measure a model's quality
HIDDEN = "_hidden_loss"  # ending of the loss over the hidden tokens alone
TRAIN, HELDOUT = "#8fb3d9", "#c4452d"


@dataclass(frozen=True, kw_only=True)
class History:
    """A run's `metrics.jsonl`: all events, and the newest training and held-out line of each step, in order."""

    train: list[Line]
    heldout: list[Line]
    events: list[Line] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run directory: its history, its resolved config and its run.json.

    since: the step at which the newest training run of a run with several began; earlier metrics may belong to a
    larger model.
    """

    directory: Path
    since: int = -1
    history: History
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]

    def boundaries(self) -> list[int]:
        """Return the steps at which the run passed from one training stage to the next."""
        ends = accumulate(stage["steps"] for stage in self.stages()[:-1])
        return [end for end in ends if end <= self.history.train[-1]["step"]]

    def stages(self) -> list[Mapping[str, Any]]:
        """Return the training stages in the config or, if it lists none (as for a transfer), those that have begun."""
        if "stages" in self.config:
            return self.config["stages"]
        begun = {event["stage"]: event for event in self.history.events if event["event"] == "stage"}
        return [{k: v for k, v in begun[i].items() if k not in ("event", "step", "stage")} for i in sorted(begun)]


def read_run(directory: str | Path) -> RunRecord:
    """Read a run's directory; raises UserError if it is not one or has no metrics yet.

    The histories of several training runs are joined: steps and stages count from the start of the first one.
    """
    directory = run_directory(directory)
    runs = kind.training_runs(directory) if (kind := kind_of_run(directory)) else []
    for name in (CONFIG, METRICS):
        if not (directory / name).is_file() and (name == CONFIG or runs in ([], [directory])):
            raise UserError(
                f"{directory} is not the directory of a run: it has no {name}. Name a run that one of the commands "
                f"{', '.join(KINDS)} wrote."
            )
    train, heldout, events, steps, stages, since = [], [], [], 0, 0, -1
    for run in runs:
        if not (run / METRICS).is_file():
            continue  # the run has no step yet
        history, later, since = _read_history(run / METRICS), partial(_later, steps, stages), steps
        train += map(later, history.train)
        heldout += map(later, history.heldout)
        if run == directory:
            events, since = history.events, -1
            break
        for stage in config.read_toml(run / CONFIG, _CONFIG).get("stages", ()):
            events.append({"event": "stage", "step": steps, "stage": stages, "name": run.name, **stage})
            steps, stages = steps + stage["steps"], stages + 1
        events += [later(event) for event in history.events if event["event"] != "stage"]
    if not train:
        raise UserError(f"{directory} has no training step yet. Run the same command for longer.")
    return RunRecord(
        directory=directory,
        history=History(train=train, heldout=heldout, events=events),
        config=config.read_toml(directory / CONFIG, _CONFIG),
        provenance=provenance.read_run_json(directory, str(directory)),
        since=since,
    )


def _later(steps: int, stages: int, line: Line) -> Line:
    return {**line, "step": line["step"] + steps, "stage": line.get("stage", 0) + stages}


def read_history(path: Path) -> History:
    """Read `metrics.jsonl`: the last line of every step, unless a later "resumed" event of an earlier step cancels it.

    Raises UserError if a line is damaged, or if no training step has been logged.
    """
    history = _read_history(path)
    if not history.train:
        raise UserError(f"{path} has no training step yet. Run the training for longer.")
    return history


def _read_history(path: Path) -> History:
    try:
        lines = read_lines(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}, {error}. Remove the line to see the rest.") from error
    splits: dict[str, dict[int, Line]] = {"train": {}, "heldout": {}}
    events = [line for line in lines if "event" in line]
    for line in lines:
        if "event" not in line:
            splits[line["split"]][line["step"]] = line
        elif line["event"] == "resumed":
            splits = {name: {s: old[s] for s in old if s <= line["step"]} for name, old in splits.items()}
    train, heldout = ([of_step[step] for step in sorted(of_step)] for of_step in splits.values())
    return History(train=train, heldout=heldout, events=events)


def read_lines(data: bytes) -> list[Line]:
    """Return the lines of a `metrics.jsonl`, without a last one that is incomplete, as while it is written.

    Raises ValueError, with the line's number, if another line is damaged.
    """
    lines, texts = [], data.splitlines()
    for number, text in enumerate(texts, start=1):
        try:
            line = parse_json(text, _LINE)
            if "event" not in line:
                fitting({key: value for key, value in line.items() if key != "split"}, {str: float | None})
                fitting(line, {"split": Literal["train", "heldout"]})
            elif line["event"] == "stage":
                fitting(line, {"stage": int, "steps": int})
        except ValueError as error:
            if number == len(texts) and not data.endswith(b"\n"):
                break
            raise ValueError(f"line {number} is not a line of metrics: {error}") from error
        lines.append(line)
    return lines


def series(lines: Iterable[Line], key: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of `key` from the lines where the value is finite."""
    finite = [line for line in lines if line.get(key) is not None and isfinite(line[key])]
    return [line["step"] for line in finite], [line[key] for line in finite]


def metric_names(history: History) -> list[str]:
    """Return all keys of the train and held-out lines, each once: metrics and others, such as `step`."""
    return list(dict.fromkeys(key for line in [*history.train, *history.heldout] for key in line))


def keys(history: History, ending: str) -> list[str]:
    """Return the metrics whose names end in `ending`: the total, such as `loss`, then the terms, such as `mlm_loss`.

    Leaves out the total if there is only one term.
    """
    names = [key for key in metric_names(history) if key.endswith(ending)]
    terms = [key for key in names if key != ending]
    single = sum(not key.endswith(HIDDEN) for key in terms) == 1
    return terms if single else [key for key in names if key == ending] + terms


def title(key: str, among: Iterable[str] = ()) -> str:
    """Return the heading of a metric: `mlm_loss` is "MLM loss", or "generator MLM loss" if `among` has `rtd_loss`."""
    if key.endswith(HIDDEN):
        return f"{title(key.removesuffix(HIDDEN) + '_loss', among)} of hidden tokens"
    term, _, kind = key.rpartition("_")
    whose = "generator " if term == "mlm" and "rtd_loss" in among else ""
    label = term if term == "penalty" else term.upper()
    return f"{whose}{label} {'AUC' if kind == 'auc' else kind}".strip()


def best(lines: Iterable[Line], key: str) -> tuple[int, float] | None:
    """Return (step, value) of the best line: the lowest loss or the highest other metric; None without values."""
    pairs = zip(*series(lines, key), strict=True)
    return (min if key.endswith("loss") else max)(pairs, key=lambda pair: pair[1], default=None)


def page(run: RunRecord, more: Sequence[str] = ()) -> str:
    """Return the report of a run as Markdown: config, provenance, metrics, events, speed, pictures, `more` sections."""
    rows, step = metric_rows(run), run.history.train[-1]["step"]
    results = tables.markdown([*rows[0]], [[*row.values()] for row in rows])
    sections = [f"# {run.directory.resolve().name}", _setup(run)]
    sections += [f"## Results after step {step} (losses in nats)\n\n{results}", _events(run.history), _speed(run)]
    if shares := time_shares(run):
        sections.append("## Time\n\n```text\n" + "\n".join(shares) + "\n```")
    sections += ["![loss](loss.png)", *["![accuracy](accuracy.png)"] * bool(keys(run.history, "accuracy"))]
    return "\n\n".join(section for section in [*sections, *more] if section) + "\n"


def _setup(run: RunRecord) -> str:
    record = "\n".join(
        f"- {key.replace('_', ' ')}: {_plain(value)}"
        for key, value in run.provenance.items()
        if key != provenance.TOKENIZER
    )
    model = ", ".join(f"{key} {_plain(v)}" for key, v in run.config.get("model", {}).items() if not isinstance(v, dict))
    stages = run.stages()
    columns = list(dict.fromkeys(key for stage in stages for key, v in stage.items() if not isinstance(v, dict | list)))
    rows = [[str(i), *(_plain(stage.get(key, "")) for key in columns)] for i, stage in enumerate(stages)]
    table = tables.markdown(["stage", *columns], rows) if stages else ""
    lines = [f"Model: {model}." if model else "", record, f"## Stages\n\n{table}" if table else ""]
    return "\n\n".join(line for line in lines if line)


def metric_rows(run: RunRecord) -> list[dict[str, str]]:
    """Return the newest and the best value of every loss, accuracy and AUC, by column."""
    rows, history = [], run.history
    columns = "", "train, last", "held-out, last", "held-out, best of the last stage"
    last = history.heldout[-1].get("stage") if history.heldout else None  # rows of another length have other losses
    comparable = [line for line in history.heldout if line["step"] > run.since and line.get("stage") == last]
    for key in [key for kind in QUALITY for key in keys(history, kind)]:
        top = best(comparable, key)
        cells = [_last(lines, key) for lines in (history.train, history.heldout)]
        cells = [title(key, metric_names(history)), *cells, f"{show(key, top[1])} at step {top[0]}" if top else ""]
        rows.append(dict(zip(columns, cells, strict=True)))
    return rows


def _last(lines: list[Line], key: str) -> str:
    steps, values = series(lines, key)
    if not values:
        return ""
    # An earlier stage may have had a metric that the last one lacks.
    return show(key, values[-1]) + ("" if key in lines[-1] else f" at step {steps[-1]}")


def _events(history: History) -> str:
    lines = [
        f"- {event['event'].replace('_', ' ')} at step {event['step']}"
        + (f": {', '.join(event['changes'])}" if "changes" in event else "")
        for event in history.events
        if event["event"] not in ("compiling", "compiled")
    ]
    return "\n".join(["## Events", "", *lines]) if lines else ""


def _speed(run: RunRecord) -> str:
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
    return "## Speed (median of the logged intervals)\n\n" + tables.markdown(["stage", *columns.values()], rows)


def spent_seconds(run: RunRecord) -> dict[str, float]:
    """Return the wall time from the run's start to its last training record, in seconds by activity.

    `restarts` are the seconds from the last logged step of a stopped process to the first one of the next process: lost
    steps, absence, start-up and restoring. Empty for a run of several training runs, and for metrics without times.
    """
    keys = ("started", "elapsed_seconds", *(f"{name}_seconds" for name in SPENT))
    timed = [line for line in run.history.train if None not in map(line.get, keys)]
    lines = {line["started"]: line for line in timed}
    if run.since >= 0 or not lines:
        return {}
    spent: dict[str, float] = dict.fromkeys(("steps", *SPENT, "restarts"), 0.0)
    end = None
    for start, line in sorted(lines.items()):
        times = {name: line[f"{name}_seconds"] for name in SPENT}
        spent["steps"] += line["elapsed_seconds"] - sum(times.values())
        if end is not None:
            spent["restarts"] += max(0.0, start - end) + times.pop("restoring")
        for name, seconds in times.items():
            spent[name] += seconds
        end = start + line["elapsed_seconds"]
    return spent


def time_shares(run: RunRecord) -> list[str]:
    """Return a line with share, time and bar for everything that took time, the training steps (the goodput) first."""
    spent = spent_seconds(run)
    total = sum(spent.values())
    rows = [
        (name, f"{seconds / total:.1%}", duration(seconds), "#" * round(40 * seconds / total))
        for name, seconds in spent.items()
        if seconds / total >= 0.0005 or name == "steps"
    ]
    return tables.aligned(rows) if rows else []


def show(key: str, value: float) -> str:
    """Format the value of a metric with its unit."""
    if key.endswith((*SHARES, "mfu")):
        return f"{100 * value:.1f} %"
    if key == "memory_bytes":
        return f"{value / 2**30:.2f} GiB"
    if key == "flops_per_second":
        return f"{value / 1e9:,.1f} G"
    return f"{value:,.1f}" if key.endswith("per_second") else f"{value:.4f}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_report(directory: Path) -> tuple[list[Path], str]:
    """Write loss.png, accuracy.png and report.md into a run's directory; return their paths and the metrics as text."""
    run = read_run(directory)
    return write_page(run, draw_curves(run))


def write_page(run: RunRecord, pictures: Sequence[Path], more: Sequence[str] = ()) -> tuple[list[Path], str]:
    """Write report.md, ending in the sections `more`; return the paths of all files and the metrics as text."""
    file = run.directory / "report.md"
    file.write_text(page(run, more), encoding="utf-8")
    return [*pictures, file], "\n".join([summary(run.history), *time_shares(run)])


def draw_curves(run: RunRecord) -> list[Path]:
    """Draw the run's losses into loss.png, and logged accuracies and ROC AUC into accuracy.png; return their paths."""
    written = []
    for name, kinds in (("loss", ("loss",)), ("accuracy", ("accuracy", "auc"))):
        if not (chosen := [key for kind in kinds for key in keys(run.history, kind)]):
            continue
        figure = new_figure(8, 1.2 + 2.8 * len(chosen))
        panels = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
        figure.suptitle(run.directory.resolve().name)
        for axes, key in zip(panels, chosen, strict=True):
            _panel(axes, run, key)
        panels[0].legend(frameon=False, loc="best")
        panels[-1].set_xlabel("step")
        written.append(run.directory / f"{name}.png")
        figure.savefig(written[-1], dpi=120)
    return written


def new_figure(width: float, height: float, layout: Any = "constrained", **options: Any) -> "Figure":
    """Return an empty figure of this size in inches; raises UserError if matplotlib is not installed."""
    with needs_extra("a picture", "plots"):
        from matplotlib.figure import Figure  # pyplot would choose a backend and keep the figure in a global

    return Figure(figsize=(width, height), layout=layout, **options)


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
    unit = "%" if scale == 100 else "nats" if key.endswith("loss") else ""
    name = title(key, metric_names(run.history))
    axes.set_ylabel(f"{name}\n({unit})" if unit else name)  # long names are wider than a panel is high
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def summary(history: History, rows: int = 8) -> str:
    """Return a line for each of at most `rows` held-out metrics, spread over the run; without any, of training."""
    split, lines = ("held-out", history.heldout) if history.heldout else ("training", history.train)
    chosen = [key for kind in ("loss", "accuracy", "auc") for key in keys(history, kind)]
    last = min(rows, len(lines)) - 1
    shown = []
    for line in [lines[round(i * (len(lines) - 1) / max(1, last))] for i in range(last + 1)]:
        values = (f"{title(key, line)} {show(key, line[key])}" for key in chosen if line.get(key) is not None)
        shown.append(f"{split}, step {line['step']}: {', '.join(values)}")
    return "\n".join(shown)


QUIET = 600  # seconds after which a run in a bucket counts as interrupted
State = Literal["running", "finished", "stopped", "failed", "interrupted", "damaged"]
_ENDS: dict[str, State] = {"finished": "finished", "stopped": "stopped", "non_finite": "failed"}
_STEPS = {"stages?": [{"steps": int}]}


class ListedRun(NamedTuple):
    """A run. name: its path below the listed folder. step: the newest one; of several seeds, the newest seed's.

    steps: of the whole run, if its config has them. loss: in nats. seen: time of the newest file, in Unix seconds.
    """

    name: str
    kind: str
    state: State
    step: int | None
    steps: int | None
    loss: float | None
    seen: float

    def alert(self, quiet: float) -> str | None:
        """Return why the run needs a person, or None: its state, or "stalled" after `quiet` seconds."""
        if self.state in ("failed", "interrupted", "damaged"):
            return self.state
        return "stalled" if self.state == "running" and time.time() - self.seen > quiet else None


def list_runs(folder: str) -> list[ListedRun]:
    """Return the runs below a folder or URL, the last modified one at the end; raises UserError without the folder."""
    import fsspec

    with remote_errors(folder):
        system, root = fsspec.url_to_fs(folder)
        system.invalidate_cache()
        if not system.isdir(root):
            raise UserError(f"{folder} is not a folder. Name a folder or bucket that holds runs.")
        names = {run: run[len(root) :].strip("/") or run.rpartition("/")[2] for run in _runs(system, root, depth=4)}
        return sorted((_read(system, run, name) for run, name in names.items()), key=lambda run: run.seen)


def _runs(system: Any, folder: str, depth: int) -> Iterator[str]:
    """Yield the paths of the runs below a folder; does not look for runs inside of runs."""
    inside = {entry["name"]: entry["type"] for entry in system.ls(folder, detail=True)}
    if inside.get(f"{folder}/{CONFIG}") == "file":
        yield folder
    elif depth:
        for name in sorted(name for name, kind in inside.items() if kind == "directory"):
            yield from _runs(system, name, depth - 1)


def _read(system: Any, run: str, name: str) -> ListedRun:
    """Read a run; one whose config or log is damaged has the state "damaged", and does not hide the others."""
    logs = [path for stars in ("", "*/", "*/*/") for path in system.glob(f"{run}/{stars}{METRICS}")]
    times = {path: system.modified(path).timestamp() for path in logs}
    seen = max([system.modified(f"{run}/{CONFIG}").timestamp(), *times.values()])
    try:
        table = fitting(parse_toml(system.cat_file(f"{run}/{CONFIG}")), _STEPS)
        kind = kind_of(table)
        lines = read_lines(system.cat_file(max(logs, key=times.__getitem__))) if logs else []
    except (UserError, ValueError, OSError):
        return ListedRun(name, "", "damaged", None, None, None, seen)
    ends = [line for line in lines if line.get("event") in _ENDS or line.get("event") == "resumed"]
    losses = [line for line in lines if line.get("loss") is not None and isfinite(line["loss"])]
    heldout = [line for line in losses if line.get("split") == "heldout"]
    steps = sum(stage["steps"] for stage in table.get("stages", ()))
    return ListedRun(
        name=name,
        kind=kind.name,
        state=_state(Path(run) if "file" in system.protocol else None, kind, ends, seen),
        step=lines[-1]["step"] if lines else None,
        steps=steps or None,
        loss=(heldout or losses)[-1]["loss"] if losses else None,
        seen=seen,
    )


def _state(run: Path | None, kind: Kind, ends: list[Line], seen: float) -> State:
    """Return a run's state. run: None in a bucket."""
    end = _ENDS.get(ends[-1]["event"]) if ends else None
    if kind.model is not None and end in (None, "finished"):  # one of several training runs may have finished
        end = "finished" if run is not None and kind.is_finished(run) else None
    if run is None:
        running = end is None and time.time() - seen < QUIET
    else:
        running = end != "finished" and atomic.is_held(run / atomic.NAME)
    return "running" if running else end or "interrupted"
