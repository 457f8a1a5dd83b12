"""What GLUE's leaderboard takes (gluebenchmark.com): a zip with a TSV for every test set and the diagnostic one."""

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from bertzoo.data.vocabulary import write_atomically
from bertzoo.errors import UserError
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
_MAJORITY = GLUE["wnli"].labels.index("0")  # of WNLI's training and test set
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date a zip can have, so that equal predictions make equal files


def write(
    path: Path,
    predictions: Mapping[str, Mapping[str, int | float]],
    *,
    wnli: Literal["majority", "predicted"] = "majority",
    rows: Mapping[str, int] | None = None,
) -> None:
    """Writes the zip; raises UserError naming every file and row that is missing, and for what is no label.

    predictions: by the names of FILES, the place of each row's label in the task's labels, or its number, by the
    example's key. wnli: what is said of WNLI, whose predictions need not be there under `majority`, as papers did.
    rows: how many each test set has, where it is not the leaderboard's.
    """
    given = dict(predictions)
    counts = {name: count for name, (_, count) in FILES.items()} | dict(rows or {})
    if wnli == "majority":
        given["wnli"] = {str(index): _MAJORITY for index in range(counts["wnli"])}
    if missing := [name for name in FILES if name not in given]:
        raise UserError(f"the submission needs predictions of {', '.join(missing)} too")
    if strange := sorted(set(given) - set(FILES)):
        raise UserError(f"{', '.join(strange)} is of no file of a submission: known are {', '.join(FILES)}")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, (file, _) in FILES.items():
            lines = [HEADER, *_lines(name, given[name], counts[name])]
            text = "".join(f"{index}\t{prediction}\n" for index, prediction in lines)
            archive.writestr(zipfile.ZipInfo(file, _EPOCH), text, zipfile.ZIP_DEFLATED)
    write_atomically(path, buffer.getvalue())


def _lines(name: str, given: Mapping[str, int | float], count: int) -> list[tuple[str, str]]:
    """The rows of a file in the order of their index."""
    keys = [str(index) for index in range(count)]
    if missing := [key for key in keys if key not in given]:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        raise UserError(f"the submission needs {count:,} rows of {name}, of which {len(missing):,} are missing: {some}")
    if len(given) > count:
        extra = next(key for key in given if key not in set(keys))
        raise UserError(f"the submission needs {count:,} rows of {name} and is given {len(given):,}, such as {extra}")
    task = GLUE[name.partition("_")[0]]
    return [(key, _spelt(name, key, given[key], task.labels, task.range)) for key in keys]


def _spelt(name: str, key: str, value: int | float, labels: tuple[str, ...], limits: tuple[float, float] | None) -> str:
    if limits:
        if not math.isfinite(value):
            raise UserError(f"the prediction of row {key} of {name} is {value}: a finite number is needed")
        return f"{min(max(value, limits[0]), limits[1]):.6f}"
    if not 0 <= value < len(labels) or value != int(value):
        raise UserError(f"the prediction of row {key} of {name} is {value}: it must be a place in {', '.join(labels)}")
    return labels[int(value)]
