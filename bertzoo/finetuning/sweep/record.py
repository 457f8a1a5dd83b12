"""The directory of a sweep or a chain: what it is of, every point's run, one table, and the best of each task."""

import csv
import fcntl
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertzoo.core import atomic, config
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.paths import on_disk
from bertzoo.finetuning.results import runs
from bertzoo.finetuning.results.runs import Run
from bertzoo.finetuning.sweep.grid import VERSION, Point

POINTS = "points"  # of a sweep, where its runs are
_LOCK = ".lock"


class Record:
    """A directory, which need not exist yet; points are known here by their names.

    what: a sweep or a chain, after which its files are called; folder: in it, where the runs are.
    """

    def __init__(self, name: str, points: Sequence[Point], what: str = "sweep", folder: str = POINTS):
        self.path = on_disk(name, "the run directory", "name a directory, a mounted one perhaps")
        self._what, self._folder = what, folder
        self.points = points
        self.states: dict[str, tuple[str, str]] = {}  # of the others: failed or stopped, and the error
        self.finished: dict[str, Run] = {}

    @property
    def table(self) -> Path:
        """A line a point."""
        return self.path / f"{self._what}.csv"

    @property
    def about(self) -> Path:
        """What the directory is of."""
        return self.path / f"{self._what}.json"

    def run_dir(self, point: Point) -> Path:
        """Where the run of a point is."""
        return self.path / self._folder / point.name

    def log(self, point: Point) -> Path:
        """What the run of a point prints."""
        return self.path / "logs" / f"{point.name}.log"  # apart from the runs, which a pattern may name

    def look(self, point: Point) -> bool:
        """Whether a point is finished; raises UserError where its results are damaged."""
        path = self.run_dir(point)
        if (path / runs.RESULTS).is_file():
            self.finished[point.name] = runs.read(path, self.path)
        return point.name in self.finished

    def best(self, task: str) -> Point | None:
        """The finished point of a task with the best score, the first of equals; None where there is none."""
        found = [point for point in self.points if point.task == task and point.name in self.finished]
        return max(found, key=lambda point: self.finished[point.name].score, default=None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory: two sweeps in one would run each point twice. The lock ends with the process."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--run_dir={self.path} is a file; name a directory")
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(
                    f"{self.path} is in use by another bertzoo {self._what}; wait for it or stop it"
                ) from error
            yield

    def claim(self, mine: dict[str, Any], changes: Callable[[Any, Any], list[str]] = config.difference) -> None:
        """Make the directory the sweep's or the chain's that `mine` is about; raises ConfigError where it holds one
        with `changes`, a function of what the two are about: of a sweep any, though its grid may have other points.
        """
        if self.about.is_file():
            changed = changes(_about(self.about), mine)
            if changed:
                raise ConfigError(
                    f"{self.path} holds a {self._what} with other options: {'; '.join(changed)}; give back these "
                    "values, or choose another --run_dir"
                )
        elif (self.path / self._folder).exists():
            raise UserError(f"{self.path} has {self._folder} but no {self.about.name}; choose another --run_dir")
        atomic.write_json(self.about, mine, indent=2)

    def write(self) -> None:
        """Write the table, a line a point."""
        text = io.StringIO()
        lines = [self._line(point) for point in self.points]
        writer = csv.DictWriter(text, _columns(lines), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        atomic.write_bytes(self.table, text.getvalue().encode())

    def lines(self) -> Iterator[str]:
        """The table for a person: of every point its score, its place in the grid and its run."""
        lines = [self._line(point) for point in self.points]
        settings = dict.fromkeys(key for point in self.points for key in point.settings)
        columns = ["task", "state", "score", "low", "high", *settings, "run"]
        rows = [columns, *([_shown(line.get(key, "")) for key in columns] for line in lines)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()

    def _line(self, point: Point) -> Mapping[str, Any]:
        head: dict[str, Any] = {"task": point.task, "state": "waiting", "score": "", "low": "", "high": "", "seeds": ""}
        state, error = self.states.get(point.name, ("waiting", ""))
        tail = {"run": str(self.run_dir(point).relative_to(self.path)), "error": error}
        if point.name not in self.finished:
            return {**head, "state": state, **point.settings, **tail}
        run = self.finished[point.name]
        head |= {"state": "finished", "score": run.score, "low": min(run.each), "high": max(run.each)}
        head |= {"seeds": len(run.seeds), "collapsed": run.collapsed, "epochs": " ".join(map(str, run.epochs))}
        scores = {f"{split}/{name}": value for split, found in run.median.items() for name, value in found.items()}
        return {**head, **point.settings, **scores, **tail}


def _columns(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """All that any line has, what went wrong and where last."""
    last = ("run", "error")
    return [*dict.fromkeys(key for line in lines for key in line if key not in last), *last]


def _shown(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _about(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is damaged: it cannot be read ({error})") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise UserError(f"{file} is of nothing that is known here")
    return found
