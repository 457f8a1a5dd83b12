"""Read the scores that GLUE's leaderboard gave a submission, from a table that the user wrote."""

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

KNOWN = {
    score_name(task, split, metric): (task.name, split, metric)
    for task in GLUE.values()
    for split in task.test
    for metric in task.metrics
}


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """A submission's scores on GLUE's leaderboard. model: its name in tables. scores: by task, in points."""

    path: Path
    model: str
    scores: Mapping[str, Scores]


def read_leaderboard(path: Path) -> Submitted:
    """Read a .csv, .tsv or .jsonl with the columns `score`, such as mnli_matched/accuracy, and `value`, in points.

    The file's stem names the model. Raises UserError naming the line of a score that is unknown, duplicate or out of
    range.
    """
    by_task: dict[str, dict[str, dict[str, float]]] = {}
    for place, cells in readers.read_table(path).valid_rows(("score", "value")):
        name, text = (str(cell).strip() for cell in cells)
        if name not in KNOWN:
            raise UserError(f"{place}: {name!r} is not a score of the leaderboard{nearest(name, KNOWN)}")
        task, split, metric = KNOWN[name]
        scores = by_task.setdefault(task, {}).setdefault(split, {})
        if metric in scores:
            raise UserError(f"{place}: {name} occurs twice. Keep one.")
        try:
            scores[metric] = float(text)
        except ValueError:
            scores[metric] = math.nan
        if not -100 <= scores[metric] <= 100:
            raise UserError(f"{place}, {name}: {text!r} is not a number from -100 to 100. Correct it.")
    if not by_task:
        raise UserError(f"{path} holds no score. Add a row such as score = rte/accuracy, value = 71.2.")
    return Submitted(path=path, model=path.stem, scores=by_task)
