"""What a phone is given to compute, as files of bytes, and what it made of them; launch/phone.sh moves them.

A LiteRT file's JSON says how its inputs and outputs lie; the golden inputs and the task's examples stand beside it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.errors import UserError
from bertzoo.export.beside import companions
from bertzoo.tasks.metrics import METRICS


@dataclass(frozen=True)
class Companions:
    """What stands beside a file: its JSON, its golden rows, and its task's examples or None."""

    said: dict[str, Any]
    golden: list[dict[str, Any]]
    exam: dict[str, Any] | None


def read(file: Path) -> Companions:
    """The companions of a LiteRT file; raises UserError where one is missing or none of its."""
    described, folder = (file.with_name(name) for name in companions(file))
    said, golden = _json(described), _json(folder / "golden.json")
    if said["format"] != "litert":
        raise UserError(f"{file} is of the format {said['format']}; benchmark_model runs LiteRT files alone")
    if file.stat().st_size != said["bytes"]:
        raise UserError(f"{described} says that {file} has {said['bytes']} bytes, but it has {file.stat().st_size}")
    exam = folder / "exam.json"
    return Companions(said, golden, _json(exam) if exam.exists() else None)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; `bertzoo convert --to=litert` writes it beside the file") from None
    except ValueError:
        raise UserError(f"{path} is damaged; convert the model again") from None


def pack(file: Path, folder: Path, examples: int | None = None) -> int:
    """Write to a new folder what a phone is to compute, and return how many rows: the golden inputs, and the examples
    of the task, at most `examples` of them.

    `signatures` and `rows/list` name signatures, inputs and shapes as benchmark_model takes them; `rows/NUMBER/INPUT`
    and `timed/SIGNATURE/INPUT` are numbers as they lie in memory (int32, little-endian).
    """
    known = read(file)
    if folder.exists():
        raise UserError(f"{folder} exists; name a new folder")
    ports = known.said["ports"]
    lines = {
        name: f"{','.join(each[0] for each in port['inputs'])} "
        f"{':'.join(','.join(map(str, each[2])) for each in port['inputs'])}"
        for name, port in ports.items()
    }
    listed = []
    for number, row in enumerate(_rows(known, examples)):
        _write(folder / "rows" / f"{number:05}", row)
        listed.append(f"{number:05} {row['signature']} {lines[row['signature']]}\n")
    for name in ports:
        fitting = [row for row in _rows(known, 0) if row["signature"] == name] or [_blank(ports[name], name)]
        _write(folder / "timed" / name, fitting[-1])
    (folder / "rows" / "list").write_text("".join(listed), encoding="utf-8")
    (folder / "signatures").write_text("".join(f"{name} {line}\n" for name, line in lines.items()), encoding="utf-8")
    return len(listed)


def packed(file: Path, folder: Path) -> int:
    """How many of the task's examples a folder that `pack` made of the file holds; raises UserError if it is none."""
    try:
        lines = (folder / "rows" / "list").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{folder} is not what `bertzoo phone pack` writes") from None
    return len(lines) - len(read(file).golden)


def _rows(known: Companions, examples: int | None) -> list[dict[str, Any]]:
    return [*known.golden, *(known.exam["rows"][:examples] if known.exam else [])]


def _blank(port: dict[str, Any], name: str) -> dict[str, Any]:
    """A row of ones, of a signature that no golden text is of: its first tokens, which are all attended to."""
    return {"signature": name, "inputs": {each[0]: np.ones(each[2], np.int32).tolist() for each in port["inputs"]}}


def _write(folder: Path, row: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for name, values in row["inputs"].items():
        (folder / name).write_bytes(np.asarray(values, "<i4").tobytes())


def judge(file: Path, given: Path, examples: int | None = None, limit: float | None = None) -> dict[str, Any]:
    """What a phone's outputs of `pack`'s rows are beside those of the file here: {"golden": {output: figures}, "exam":
    the scores there and here, or None, "right": whether no error is beyond `limit`, a share of an output's largest
    value (the file's own limit if None)}. Raises UserError where an output is missing or of another size.
    """
    known = read(file)
    share = known.said["limits"]["error"] if limit is None else limit
    largest, error = dict[str, float](), dict[str, float]()
    for number, row in enumerate(known.golden):
        outputs = _outputs(given, number, known.said["ports"][row["signature"]])
        for name, found, expected in _compared(outputs, row["outputs"]):
            largest[name] = max(largest.get(name, 0.0), float(np.abs(expected).max()))
            apart = float(np.abs(found - expected).max())
            error[name] = math.inf if math.isnan(apart) else max(error.get(name, 0.0), apart)
    figures = {name: {"max_error": error[name], "largest": largest[name]} for name in error}
    exam = _exam(known, given, examples)
    right = all(one["max_error"] <= share * one["largest"] for one in figures.values())
    return {"rows": len(known.golden), "limit": share, "golden": figures, "exam": exam, "right": right}


def _outputs(given: Path, number: int, port: dict[str, Any]) -> dict[str, np.ndarray]:
    """A row's outputs, which benchmark_model writes one behind another."""
    path = given / f"{number:05}"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the phone has not computed row {number}") from None
    found, at = {}, 0
    for name, dtype, shape in port["outputs"]:
        count = math.prod(shape)
        size = np.dtype(dtype).itemsize * count
        if at + size <= len(content):
            found[name] = np.frombuffer(content, np.dtype(dtype).newbyteorder("<"), count, at).reshape(shape)[0]
        at += size
    if at != len(content):
        raise UserError(f"{path} has {len(content)} bytes, but the outputs of row {number} have {at}")
    return found


def _compared(outputs: dict[str, np.ndarray], expected: dict[str, Any]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, what the phone gave, what the file gives here); of a large output the likeliest alone are known."""
    if "starts" in expected:  # of answers, whose order may be another one
        from bertzoo.export.proof import aligned

        whole = {name: array[None] for name, array in outputs.items()}
        theirs, kept = aligned(whole, {name: np.asarray(values) for name, values in expected.items()})
        outputs, expected = {name: array[0] for name, array in theirs.items()}, dict(kept)
    for name, values in expected.items():
        found = outputs[name]
        if isinstance(values, dict):
            yield name, found.reshape(-1)[values["likeliest"]].astype(np.float64), np.asarray(values["values"])
        else:
            yield name, found.astype(np.float64), np.asarray(values, np.float64)


def _exam(known: Companions, given: Path, examples: int | None) -> dict[str, Any] | None:
    if known.exam is None or not (rows := known.exam["rows"][:examples]):
        return None
    ports, first = known.said["ports"], len(known.golden)
    logits = [_outputs(given, first + i, ports[row["signature"]])["logits"] for i, row in enumerate(rows)]
    labels, kind = np.asarray([row["label"] for row in rows]), known.exam["kind"]
    scores = {}
    for where, each in (("phone", logits), ("here", [np.asarray(row["logits"]) for row in rows])):
        whole = np.stack(each)
        said = whole[:, 0] * known.exam["scale"] if kind == "regression" else whole.argmax(-1)
        scores[where] = {name: METRICS[kind][name](said, labels) for name in known.exam["metrics"]}
    return {
        "task": known.exam["task"],
        "split": known.exam["split"],
        "of": known.exam.get("of", len(known.exam["rows"])),  # files of earlier versions do not say it
        "examples": len(rows),
        "scores": scores,
    }
