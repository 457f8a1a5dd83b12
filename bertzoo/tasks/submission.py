"""Write a submission to GLUE's leaderboard (gluebenchmark.com): a zip with one TSV per test set."""

import io
import math
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.tasks.glue import GLUE

# By test set: its file in the zip, and its number of rows on the leaderboard.
FILES: dict[str, tuple[str, int]] = {
    "cola": ("CoLA.tsv", 1063),
    "sst2": ("SST-2.tsv", 1821),
    "mrpc": ("MRPC.tsv", 1725),
    "stsb": ("STS-B.tsv", 1379),
    "qqp": ("QQP.tsv", 390_965),
    "mnli_matched": ("MNLI-m.tsv", 9796),
    "mnli_mismatched": ("MNLI-mm.tsv", 9847),
    "qnli": ("QNLI.tsv", 5463),
    "rte": ("RTE.tsv", 3000),
    "wnli": ("WNLI.tsv", 146),
    "ax": ("AX.tsv", 1104),
}
Wnli = Literal["majority", "predicted"]
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip's oldest date, so that equal predictions make equal files


def write_submission(
    path: Path,
    predictions: Mapping[str, Mapping[str, int | float]],
    *,
    wnli: Wnli = "majority",
) -> None:
    """Write the zip; raises UserError for predictions that are not labels.

    predictions: {test set: {key of an example: label index or number}}, which `check_files` and `check_rows` accept.
    wnli: "majority" predicts WNLI's most common label, as papers do, and needs no predictions.
    """
    tables = dict(predictions)
    if wnli == "majority":
        tables["wnli"] = dict.fromkeys(map(str, range(FILES["wnli"][1])), GLUE["wnli"].labels.index("0"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, (file, count) in FILES.items():
            rows = (f"{row}\t{_cell(name, row, tables[name][str(row)])}\n" for row in range(count))
            text = "index\tprediction\n" + "".join(rows)
            archive.writestr(zipfile.ZipInfo(file, _EPOCH), text, zipfile.ZIP_DEFLATED)
    atomic.write_bytes(path, buffer.getvalue())


def check_files(names: Collection[str], wnli: Wnli) -> None:
    """Raise UserError unless `names` are the test sets in FILES; WNLI may be missing if `wnli` is "majority"."""
    if missing := [name for name in FILES if name not in names and not (name == "wnli" and wnli == "majority")]:
        raise UserError(f"the submission lacks predictions for {', '.join(missing)}. Fine-tune on these tasks too.")
    if unknown := sorted(set(names) - set(FILES)):
        raise UserError(f"the submission takes no predictions for {', '.join(unknown)}. Use only {', '.join(FILES)}.")


def check_rows(name: str, keys: Collection[str]) -> None:
    """Raise UserError unless `keys` are "0", "1", …, one per row of the test set."""
    count = FILES[name][1]
    present, expected = Counter(keys), Counter(str(index) for index in range(count))
    if differing := [*(expected - present), *(present - expected)]:
        some = ", ".join(differing[:5]) + (", …" if len(differing) > 5 else "")
        raise UserError(
            f"the submission needs {count:,} rows of {name}, each once; {some} are missing, repeated or unknown. "
            "Predict GLUE's own test set."
        )


def _cell(name: str, row: int, value: int | float) -> str:
    """Return a prediction as text: the label at index `value`, or a number. Raises UserError for other values.

    A model's predictions may be -1 below its thresholds, or not finite.
    """
    task = GLUE[name.partition("_")[0]]
    if task.range and math.isfinite(value):
        return f"{min(max(value, task.range[0]), task.range[1]):.6f}"
    if value not in range(len(task.labels)):
        known = f"a label's index, for {', '.join(task.labels)}" if task.labels else "a finite number"
        raise UserError(f"the prediction of row {row} of {name} is {value}, not {known}. Use another model.")
    return task.labels[int(value)]
