"""Build a table in a paper's layout, with rows of the paper, of runs and of leaderboard submissions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bertzoo.core.errors import UserError
from bertzoo.finetuning.results import published
from bertzoo.finetuning.results.layouts import Column, PaperTable
from bertzoo.finetuning.results.runs import FinishedRun, Scores
from bertzoo.finetuning.results.submitted import Submitted
from bertzoo.tasks import averages

OWN = "own"  # the task of the user's own files
MEASURED, SUBMITTED, QUOTED = "measured here", "by the leaderboard", "quoted"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number in points, and its text. For a run, the median over `seeds` seeds, with the lowest and highest value."""

    value: float
    text: str
    low: float | None = None
    high: float | None = None
    seeds: int | None = None


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """A model's row.

    origin: MEASURED, SUBMITTED or QUOTED.
    source: a path, or a table of a paper.
    parameters: number of parameters, in millions.
    cells: by column name.
    """

    model: str
    origin: str
    source: str
    parameters: str
    cells: Mapping[str, Cell]
    average: Cell | None = None


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A layout with its rows; notes: remarks on the rows of runs and submissions."""

    layout: PaperTable
    rows: Sequence[ResultRow]
    notes: Sequence[str] = field(default_factory=list)


def own_layout(runs: Iterable[FinishedRun]) -> PaperTable:
    """Return a layout for runs on the user's own files: a column per split and metric, no quoted rows."""
    medians = [run.median for run in runs if run.task == OWN]
    names = dict.fromkeys((split, metric) for scores in medians for split, named in scores.items() for metric in named)
    columns = [
        Column(name=f"{split} {metric}", metric="", task=OWN, split=split, scores=(metric,)) for split, metric in names
    ]
    return PaperTable(title="Tasks of your own files", paper="", tables=(), columns=tuple(columns))


def build_table(layout: PaperTable, runs: Iterable[FinishedRun], submitted: Iterable[Submitted] = ()) -> ResultTable:
    """Return a table: the paper's rows, a row for each group of runs, and a row for each submission.

    A group is the runs of one model in one directory. For each task, the group's row shows the run with the best score.
    Each run on the user's own files is a group of its own. Runs of tasks without a column are left out.
    """
    groups: dict[tuple[Path, str, str], dict[str, list[FinishedRun]]] = {}
    for run in runs:
        if has_column(layout, run):
            tasks = groups.setdefault((_place(run).resolve(), run.kind, run.origin), {})
            tasks.setdefault(run.task, []).append(run)
    printed = published.paper_rows(layout.paper, layout.tables, layout.sections)
    rows, notes = [_quoted(layout, row) for row in printed], []
    for tasks in groups.values():
        best = {task: max(several, key=lambda run: run.score) for task, several in tasks.items()}
        row, caveats = _measured(layout, best)
        rows.append(row)
        notes += caveats + [note for task in tasks for note in _notes(best[task], len(tasks[task]))]
    for submission in submitted:
        cells = _cells(layout, {task: submission for task in submission.scores})
        average, caveats = _average(layout, submission.scores, cells, f"{submission.model} ({submission.path})")
        source = str(submission.path)
        rows.append(
            ResultRow(
                model=submission.model, origin=SUBMITTED, source=source, parameters="", cells=cells, average=average
            )
        )
        notes += caveats
    return ResultTable(layout=layout, rows=rows, notes=notes)


def has_column(layout: PaperTable, source: FinishedRun | Submitted) -> bool:
    """Return whether the layout has a column for a score of a run or a submission."""
    return any(_cell(column, source) for column in layout.columns)


def _quoted(layout: PaperTable, row: published.PaperRow) -> ResultRow:
    def cell(metric: str) -> Cell | None:
        printed = row.values.get(metric)
        return printed and Cell(value=float(printed.value), text=printed.value)

    cells = {column.name: cell(column.metric) for column in layout.columns}
    parameters = row.values.get("params_m")
    return ResultRow(
        model=", ".join(part for part in (row.model, row.variant) if part),
        origin=QUOTED,
        source=f"{row.paper}, Table {row.table}, {row.section}",
        parameters=parameters.value if parameters else "",
        cells={name: value for name, value in cells.items() if value},
        average=cell(layout.average),
    )


def _measured(layout: PaperTable, best: Mapping[str, FinishedRun]) -> tuple[ResultRow, list[str]]:
    """Return the row of a group of runs, and notes on the row's average. best: {task: the group's best run}."""
    first = next(iter(best.values()))
    source = f"{_place(first)}, from {first.origin}"
    cells = _cells(layout, best)
    scores = {task: run.median for task, run in best.items()}
    average, caveats = _average(layout, scores, cells, f"{first.kind} ({source})")
    row = ResultRow(
        model=first.kind,
        origin=MEASURED,
        source=source,
        parameters=f"{first.parameters / 1e6:.1f}",
        cells=cells,
        average=average,
    )
    return row, caveats


def _place(run: FinishedRun) -> Path:
    return run.path if run.task == OWN else run.place


def _cells(layout: PaperTable, sources: Mapping[str, FinishedRun | Submitted]) -> dict[str, Cell]:
    """Return {column name: cell} for a row. sources: {task: run or submission with the task's scores}."""
    columns = [column for column in layout.columns if column.task in sources]
    return {column.name: cell for column in columns if (cell := _cell(column, sources[column.task]))}


def _average(
    layout: PaperTable, scores: Mapping[str, Scores], cells: Mapping[str, Cell], name: str
) -> tuple[Cell | None, list[str]]:
    """Return the cell of a row's average over tasks, and notes on the average.

    The cell is None if the paper prints no average or a score is missing.
    scores: the row's scores by task. name: the row's name, with which each note starts.
    """
    if not layout.average:
        return None, []
    part = layout.columns[-1].split.split("_")[0]
    named = {  # by the names of tasks.averages
        f"{task}{split.removeprefix(part)}/{metric}": value
        for task, splits in scores.items()
        for split, metrics in splits.items()
        if split.split("_")[0] == part
        for metric, value in metrics.items()
    }
    try:
        value = averages.average(layout.convention, named)
    except UserError:
        missing = [column.name for column in layout.columns if column.name not in cells and column.task != "wnli"]
        return None, [f"{name} has no average: {', '.join(missing)} missing"]
    caveats = []
    if "wnli/accuracy" in sum(averages.AVERAGES[layout.convention], ()) and "wnli" not in scores:
        caveats.append(f"{name}: WNLI counts as {averages.WNLI}, the accuracy of its most common label")
    return Cell(value=value, text=f"{value:.1f}"), caveats


def _cell(column: Column, source: FinishedRun | Submitted) -> Cell | None:
    """Return a column's cell for a run or submission; None if `source` lacks the column's scores."""
    if isinstance(source, Submitted):
        value = _mean(column, source.scores.get(column.task, {}))
        return None if value is None else Cell(value=value, text=f"{value:.1f}")
    if source.task != column.task or (value := _mean(column, source.median)) is None:
        return None
    by_seed = [score for scores in source.seeds if (score := _mean(column, scores)) is not None]
    low, high, text = min(by_seed), max(by_seed), f"{value:.1f}"
    if len(by_seed) > 1:
        text += f" ({low:.1f}–{high:.1f})"
    return Cell(value=value, text=text, low=low, high=high, seeds=len(by_seed))


def _mean(column: Column, scores: Scores) -> float | None:
    split = scores.get(column.split, {})
    if not all(name in split for name in column.scores):
        return None
    return fmean(split[name] for name in column.scores)


def _notes(run: FinishedRun, alternatives: int) -> list[str]:
    """Return notes on the scores of a run, the best of `alternatives` runs."""
    notes = []
    if alternatives > 1:
        notes.append(f"{run.task}: {run.path} has the best score of {alternatives} runs")
    if run.collapsed:
        notes.append(
            f"{run.task}: {run.collapsed} of {len(run.seeds)} seeds predict the same for every example ({run.path})"
        )
    if run.task == "squad2" and "f1" in run.median.get("dev", {}):
        notes.append(
            f"squad2: EM and F1 use the best thresholds on the development set; with the run's own threshold, F1 is "
            f"{run.median['dev']['f1']:.1f} ({run.path})"
        )
    if rows := run.config.get("train_rows"):
        notes.append(f"{run.task}: trained on only {rows:,} examples ({run.path})")
    return notes
