"""The directory of a sweep: its settings, all runs, a table, and links to each task's best run."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, config, lock
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import KINDS, METRICS
from bertzoo.core.paths import check_vacant, on_disk
from bertzoo.core.tables import aligned
from bertzoo.finetuning import results
from bertzoo.finetuning.results import FinishedRun
from bertzoo.finetuning.sweep.grid import PRUNE, VERSION, SweepPoint
from bertzoo.runs import report

LOSS = "loss"  # of a held-out line, in nats
POINTS, BEST, IDENTITY = "points", "best", "sweep.json"  # folders of runs and of links to the best; file of settings


@dataclass(frozen=True, kw_only=True)
class PrunedRun:
    """A finished pruning. heldout: metrics on held-out data, after the fine-tuning that follows the last cut."""

    heldout: Mapping[str, float]

    @property
    def score(self) -> float:
        """The held-out loss, in nats; lower is better."""
        return self.heldout[LOSS]


def read_pruned(path: Path) -> PrunedRun:
    """Read a finished pruning's last held-out evaluation; raises UserError if there is none."""
    part = KINDS[PRUNE].parts(path)[-1:]
    lines = [line for folder in part for line in report.read_history(folder / METRICS).heldout if LOSS in line]
    if not lines:
        raise UserError(f"{path} has no held-out loss after its last cut. Use a positive run.evaluate_every.")
    return PrunedRun(heldout={name: value for name, value in lines[-1].items() if isinstance(value, float)})


class Record:
    """A sweep's directory, which need not exist yet, and the states of the sweep's runs.

    points: the runs.
    states: {name of a run that ended early: ("failed" or "stopped", the error)}.
    finished: {name of a finished run: its results}.
    """

    def __init__(self, name: str, points: Sequence[SweepPoint]):
        self.path = on_disk(name, "the run directory", "Name a local or mounted directory.")
        self.points = points
        self.states: dict[str, tuple[str, str]] = {}
        self.finished: dict[str, FinishedRun | PrunedRun] = {}
        self.table = self.path / "sweep.csv"

    def run_dir(self, point: SweepPoint) -> Path:
        """Return the directory of a run."""
        return self.path / POINTS / point.name

    def log(self, point: SweepPoint) -> Path:
        """Return the path of a run's log, outside of the folder of runs, so that a glob for runs matches no log."""
        return self.path / "logs" / f"{point.name}.log"

    def look(self, point: SweepPoint) -> bool:
        """Read a run's results if it is finished; return whether it is. Raises UserError if the results are damaged."""
        path = self.run_dir(point)
        if point.is_pruning and KINDS[PRUNE].is_finished(path):
            self.finished[point.name] = read_pruned(path)
        elif (path / results.RESULTS).is_file():
            self.finished[point.name] = results.read_run(path, self.path)
        return point.name in self.finished

    def best(self, task: str) -> SweepPoint | None:
        """Return the finished run of a task with the best score, the first on a tie; None if no run is finished.

        The best score is the highest or, for prunings, the lowest (a loss).
        """
        finished = [point for point in self.points if point.task == task and point.name in self.finished]
        sign = -1 if task == PRUNE else 1
        return max(finished, key=lambda point: sign * self.finished[point.name].score, default=None)

    def show(self, number: float) -> str:
        """Format a score: in points with two decimals or, for a pruning, in nats with four decimals."""
        return f"{number:.4f}" if any(point.is_pruning for point in self.points) else f"{number:.2f}"

    def link_best(self) -> None:
        """For every task, make best/TASK a link to the task's best finished run."""
        for point in filter(None, map(self.best, dict.fromkeys(point.task for point in self.points))):
            link = self.path / BEST / point.task
            link.parent.mkdir(exist_ok=True)
            temporary = link.with_name(f"{link.name}.tmp")
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(Path("..", POINTS, point.name))
            temporary.replace(link)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create and lock the directory, so that two sweeps cannot do the same runs.

        Raises UserError if another process uses the directory, or if it holds files that belong to no sweep.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--run_dir={self.path} is a file. Name a directory.")
        if self.path.exists():
            marks = [IDENTITY, POINTS]
            check_vacant(str(self.path), [path.name for path in self.path.iterdir()], marks, [lock.NAME])
        self.path.mkdir(parents=True, exist_ok=True)
        with lock.hold(self.path / lock.NAME, str(self.path)):
            yield

    def claim(self, identity: dict[str, Any]) -> None:
        """Write `Sweep.identity` to sweep.json; raises ConfigError if the file holds different settings."""
        file = self.path / IDENTITY
        if file.is_file():
            config.reject(str(self.path), config.difference(_read_identity(file), identity))
        elif (self.path / POINTS).exists():
            raise UserError(f"{self.path} has {POINTS} but no {file.name}. Use a different --run_dir.")
        atomic.write_json(file, identity, indent=2)

    def write(self) -> None:
        """Write sweep.csv, the table of the runs' states, settings and scores."""
        text = io.StringIO()
        lines = [self._line(point) for point in self.points]
        last = ("run", "error")
        columns = [*dict.fromkeys(key for line in lines for key in line if key not in last), *last]
        writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        atomic.write_bytes(self.table, text.getvalue().encode())

    def lines(self) -> list[str]:
        """Return the lines of the console's table: state, score, settings and directory of every run."""
        settings = dict.fromkeys(key for point in self.points for key in point.settings)
        columns = ["task", "state", "score", "low", "high", *settings, "run"]
        rows = [columns]
        for line in map(self._line, self.points):
            values = (line.get(key, "") for key in columns)
            rows.append([self.show(value) if isinstance(value, float) else str(value) for value in values])
        return aligned(rows)

    def _line(self, point: SweepPoint) -> Mapping[str, Any]:
        head: dict[str, Any] = {"task": point.task, "state": "waiting", "score": "", "low": "", "high": "", "seeds": ""}
        state, error = self.states.get(point.name, ("waiting", ""))
        tail = {"run": str(self.run_dir(point).relative_to(self.path)), "error": error}
        if point.name not in self.finished:
            return {**head, "state": state, **point.settings, **tail}
        run = self.finished[point.name]
        if isinstance(run, PrunedRun):
            return {**head, "state": "finished", "score": run.score, **point.settings, **run.heldout, **tail}
        low, high = min(run.chosen_scores), max(run.chosen_scores)
        head |= {"state": "finished", "score": run.score, "low": low, "high": high}
        head |= {"seeds": len(run.seeds), "collapsed": run.collapsed, "epochs": " ".join(map(str, run.epochs))}
        scores = {f"{split}/{name}": value for split, named in run.median.items() for name, value in named.items()}
        return {**head, **point.settings, **scores, **tail}


def _read_identity(file: Path) -> dict[str, Any]:
    try:
        identity = read_json(file, {"runs?": {str: dict}})
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged: {error}. Restore a copy or use a different --run_dir.") from error
    if identity.get("version") != VERSION:
        raise UserError(
            f"{file} has version {identity.get('version')}, but this bertzoo reads version {VERSION}. Use a different "
            "--run_dir."
        )
    return identity
