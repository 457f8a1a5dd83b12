"""What GLUE's leaderboard takes (gluebenchmark.com): a zip with a TSV for every test set and the diagnostic one."""

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

HEADER = ("index", "prediction")
# By what predictions are called here: the file, and the rows that the leaderboard's test set has.
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
_MAJORITY = GLUE["wnli"].labels.index("0")  # of WNLI's training and test set
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date a zip can have, so that equal predictions make equal files


def write(
    path: Path,
    predictions: Mapping[str, Mapping[str, int | float]],
    *,
    wnli: Wnli = "majority",
    rows: Mapping[str, int] | None = None,
) -> None:
    """Writes the zip; raises UserError naming every file and row that is missing, and for what is no label.

    predictions: by the names of FILES, the place of each row's label in the task's labels, or its number, by the
    example's key. wnli: what is said of WNLI, whose predictions need not be there under `majority`, as papers did.
    rows: how many each test set has, where it is not the leaderboard's.
    """
    given = dict(predictions)
    check_files(given, wnli)
    if wnli == "majority":
        given["wnli"] = {str(index): _MAJORITY for index in range(_count("wnli", rows))}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, (file, _) in FILES.items():
            check_rows(name, given[name], rows)
            lines = [HEADER, *_lines(name, given[name])]
            text = "".join(f"{index}\t{prediction}\n" for index, prediction in lines)
            archive.writestr(zipfile.ZipInfo(file, _EPOCH), text, zipfile.ZIP_DEFLATED)
    atomic.write_bytes(path, buffer.getvalue())


def check_files(given: Collection[str], wnli: Wnli) -> None:
    """Raises UserError unless there are predictions of all files, but of WNLI's where those are the majority."""
    if missing := [name for name in FILES if name not in given and not (name == "wnli" and wnli == "majority")]:
        raise UserError(f"the submission needs predictions of {', '.join(missing)} too")
    if strange := sorted(set(given) - set(FILES)):
        raise UserError(f"{', '.join(strange)} is of no file of a submission: known are {', '.join(FILES)}")


def check_rows(name: str, given: Collection[str], rows: Mapping[str, int] | None = None) -> None:
    """Raises UserError unless these are the keys of all rows of a file, 0 and on; rows: as in `write`."""
    count = _count(name, rows)
    keys = [str(index) for index in range(count)]
    if twice := [key for key, times in Counter(list(given)).items() if times > 1]:
        raise UserError(f"row {twice[0]} of {name} is there twice")
    given = set(given)
    if missing := [key for key in keys if key not in given]:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise UserError(f"the submission needs {count:,} rows of {name}, of which {len(missing):,} are missing: {some}")
    if len(given) > count:
        extra = min(given - set(keys))
        raise UserError(f"the submission needs {count:,} rows of {name} and is given {len(given):,}, such as {extra}")


def _count(name: str, rows: Mapping[str, int] | None) -> int:
    return (rows or {}).get(name, FILES[name][1])


def _lines(name: str, given: Mapping[str, int | float]) -> list[tuple[str, str]]:
    """The rows of a file in the order of their index."""
    task = GLUE[name.partition("_")[0]]
    return [(key, _spelt(name, key, given[key], task.labels, task.range)) for key in map(str, range(len(given)))]


def _spelt(name: str, key: str, value: int | float, labels: tuple[str, ...], limits: tuple[float, float] | None) -> str:
    if limits:
        if not math.isfinite(value):
            raise UserError(f"the prediction of row {key} of {name} is {value}: a finite number is needed")
        return f"{min(max(value, limits[0]), limits[1]):.6f}"
    if not 0 <= value < len(labels) or value != int(value):
        raise UserError(f"the prediction of row {key} of {name} is {value}: it must be a place in {', '.join(labels)}")
    return labels[int(value)]
