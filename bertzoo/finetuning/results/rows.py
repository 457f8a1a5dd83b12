"""Runs and printed values as the rows of one table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bertzoo.core.errors import UserError
from bertzoo.finetuning.results import published
from bertzoo.finetuning.results.layouts import Column, Layout
from bertzoo.finetuning.results.runs import Run, Scores
from bertzoo.finetuning.results.submitted import Submitted
from bertzoo.tasks import averages

MEASURED, SUBMITTED, QUOTED = "measured here", "by the leaderboard", "quoted"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number in points as it is shown; of several seeds it is the median, with the lowest and the highest."""

    value: float
    text: str
    low: float | None = None
    high: float | None = None
    seeds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """cells: by the name of the column, those that there are. source: a place, or a table of a paper."""

    model: str
    origin: str
    source: str
    parameters: str
    cells: Mapping[str, Cell]
    average: Cell | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """A layout with its rows; notes: what there is to say of those measured here."""

    layout: Layout
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=list)


def table(layout: Layout, runs: Iterable[Run], submitted: Iterable[Submitted] = ()) -> Table:
    """The rows that the paper prints, one for every group of runs that came from one model and lie in one place, and
    one for everything submitted.

    Of several runs of a task in a group the one with the best score stands there. Runs of other tasks are left out.
    """
    groups: dict[tuple[Path, str, str], dict[str, list[Run]]] = {}
    for run in runs:
        if stands_in(layout, run):
            tasks = groups.setdefault((run.place.resolve(), run.kind, run.origin), {})
            tasks.setdefault(run.task, []).append(run)
    rows, notes = [_quoted(layout, row) for row in published.rows(layout.paper, layout.tables, layout.sections)], []
    for tasks in groups.values():
        best = {task: max(several, key=lambda run: run.score) for task, several in tasks.items()}
        row, said = _measured(layout, best)
        notes += said + [note for task in tasks for note in _notes(best[task], len(tasks[task]))]
        rows.append(row)
    for one in submitted:
        row, said = _submitted(layout, one)
        notes += said
        rows.append(row)
    return Table(layout=layout, rows=rows, notes=notes)


def stands_in(layout: Layout, one: Run | Submitted) -> bool:
    """Whether the layout has a column for a score of a run, or of what was submitted."""
    if isinstance(one, Submitted):
        return any(_points(column, one) for column in layout.columns)
    return any(_cell(column, one) for column in layout.columns)


def _quoted(layout: Layout, row: published.Row) -> Row:
    def cell(metric: str) -> Cell | None:
        printed = row.values.get(metric)
        return printed and Cell(value=float(printed.value), text=printed.value)

    found = {column.name: cell(column.metric) for column in layout.columns}
    parameters = row.values.get("params_m")
    return Row(
        model=", ".join(part for part in (row.model, row.variant) if part),
        origin=QUOTED,
        source=f"{row.paper}, Table {row.table}, {row.section}",
        parameters=parameters.value if parameters else "",
        cells={name: each for name, each in found.items() if each},
        average=cell(layout.average),
    )


def _measured(layout: Layout, best: Mapping[str, Run]) -> tuple[Row, list[str]]:
    """A row of runs by task, and why it has no average where the others have one."""
    first = next(iter(best.values()))
    where = f"{first.place}, from {first.origin}"
    found = {column.name: _cell(column, best[column.task]) for column in layout.columns if column.task in best}
    cells = {name: cell for name, cell in found.items() if cell}
    scores = {task: run.median for task, run in best.items()}
    average, notes = _average(layout, scores, cells, f"{first.kind} ({where})")
    row = Row(
        model=first.kind,
        origin=MEASURED,
        source=where,
        parameters=f"{first.parameters / 1e6:.1f}",
        cells=cells,
        average=average,
    )
    return row, notes


def _submitted(layout: Layout, one: Submitted) -> tuple[Row, list[str]]:
    """A row of what the leaderboard says, and why it has no average where the others have one."""
    cells = {column.name: cell for column in layout.columns if (cell := _points(column, one))}
    average, notes = _average(layout, one.scores, cells, f"{one.model} ({one.path})")
    row = Row(model=one.model, origin=SUBMITTED, source=str(one.path), parameters="", cells=cells, average=average)
    return row, notes


def _points(column: Column, one: Submitted) -> Cell | None:
    value = _mean(column, one.scores.get(column.task, {}))
    return None if value is None else Cell(value=value, text=f"{value:.1f}")


def _average(
    layout: Layout, scores: Mapping[str, Scores], cells: Mapping[str, Cell], called: str
) -> tuple[Cell | None, list[str]]:
    """The average of scores by task, where the paper has one, and what there is to say of it."""
    if not layout.average:
        return None, []
    try:
        value = averages.average(layout.convention, _by_name(layout, scores))
    except UserError:
        missing = [column.name for column in layout.columns if column.name not in cells and column.task != "wnli"]
        return None, [f"{called} has no average: {', '.join(missing)} missing"]
    notes = []
    if "wnli/accuracy" in sum(averages.AVERAGES[layout.convention], ()) and "wnli" not in scores:
        notes.append(f"{called}: WNLI counts as {averages.WNLI}, the majority's accuracy")
    return Cell(value=value, text=f"{value:.1f}"), notes


def _cell(column: Column, run: Run) -> Cell | None:
    """What of a run stands in a column; None where it has no such scores."""
    if run.task != column.task or (value := _mean(column, run.median)) is None:
        return None
    each = [_mean(column, scores) for scores in run.seeds]
    found = [score for score in each if score is not None]
    low, high, text = min(found), max(found), f"{value:.1f}"
    if len(found) > 1:
        text += f" ({low:.1f}–{high:.1f})"
    return Cell(value=value, text=text, low=low, high=high, seeds=len(found))


def _mean(column: Column, scores: Scores) -> float | None:
    split = scores.get(column.split, {})
    if not all(name in split for name in column.scores):
        return None
    return fmean(split[name] for name in column.scores)


def _by_name(layout: Layout, found: Mapping[str, Scores]) -> dict[str, float]:
    """Scores by the names that averages go by."""
    part = layout.columns[-1].split.split("_")[0]
    return {
        f"{task}{split.removeprefix(part)}/{name}": value
        for task, splits in found.items()
        for split, scores in splits.items()
        if split.split("_")[0] == part
        for name, value in scores.items()
    }


def _notes(run: Run, alternatives: int) -> list[str]:
    """What a number of this run does not say by itself."""
    notes = []
    if alternatives > 1:
        notes.append(f"{run.task}: {run.path}, the best of {alternatives} runs by its score")
    if run.collapsed:
        notes.append(
            f"{run.task}: {run.collapsed} of {len(run.seeds)} seeds say the same of every example ({run.path})"
        )
    if run.task == "squad2" and "f1" in run.median.get("dev", {}):
        notes.append(
            f"squad2: with the thresholds that are best on the development set; with that of the run F1 is "
            f"{run.median['dev']['f1']:.1f} ({run.path})"
        )
    if rows := run.config.get("train_rows"):
        notes.append(f"{run.task}: trained on {rows:,} examples alone ({run.path})")
    return notes
