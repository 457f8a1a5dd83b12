"""What GLUE's leaderboard made of a submission, as its author has copied it into a file."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertzoo.core.errors import UserError
from bertzoo.core.schema import nearest
from bertzoo.finetuning.results.runs import Scores
from bertzoo.tasks import readers
from bertzoo.tasks.averages import score_name
from bertzoo.tasks.glue import GLUE

COLUMNS = ("score", "value")
KNOWN = {
    score_name(task, split, metric): (task.name, split, metric)
    for task in GLUE.values()
    for split in task.test
    for metric in task.metrics
}


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """model: what it is called; scores: by task, in points."""

    path: Path
    model: str
    scores: Mapping[str, Scores]


def read(path: Path) -> Submitted:
    """A table (.csv, .tsv, .jsonl) of `score`, such as mnli_matched/accuracy, and `value`, in points; its name without
    suffix is the model's.

    Raises UserError naming the line of a score that is unknown, is there twice or is no number of points.
    """
    table, found = readers.read(path), dict[str, dict[str, dict[str, float]]]()
    for row in table.select(COLUMNS):
        place = table.place(row.number)
        if row.cells is None:
            raise UserError(f"{place} has {row.why}: mend it")
        name, value = (str(cell).strip() for cell in row.cells)
        if name not in KNOWN:
            raise UserError(f"{place}: {name!r} is no score of the leaderboard{nearest(name, KNOWN)}")
        task, split, metric = KNOWN[name]
        scores = found.setdefault(task, {}).setdefault(split, {})
        if metric in scores:
            raise UserError(f"{place}: {name} is there twice: keep one")
        scores[metric] = _points(value, f"{place}, {name}")
    if not found:
        raise UserError(f"{path} holds no score: give a line such as rte/accuracy,71.2 below the header score,value")
    return Submitted(path=path, model=path.stem, scores=found)


def _points(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not -100 <= value <= 100:
        raise UserError(f"{where}: {text!r} is no number of points from -100 to 100")
    return value
