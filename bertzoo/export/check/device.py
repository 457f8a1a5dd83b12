"""What a phone is given to compute, as files of bytes, and what it made of them; launch/phone.sh moves them.

A LiteRT file's JSON says how its inputs and outputs lie; the golden inputs and the task's examples stand beside it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.export.beside import companions
from bertzoo.export.check import device_cases, verify
from bertzoo.export.failure import ExportFailed
from bertzoo.tasks.metrics import in_points


class Same(NamedTuple):
    """How far one file's outputs on another device may be from those here: the largest error as a share of an output's
    largest value, the cosine, and by how many points a score of the task may be lower.
    """

    error: float
    cosine: float
    points: float

    def wider(self, other: "Same") -> "Same":
        """What is within either."""
        return Same(max(self.error, other.error), min(self.cosine, other.cosine), max(self.points, other.points))


# How far LiteRT's kernels are apart on this machine (XNNPACK's, its others, its reference ones; docs/phone.md says how
# far), with room for another CPU's: in float32 by the order of sums, in int8 by a step where a value lies between two,
# which every layer makes more of. What is not computed of the input is beyond all of these.
SAME = {
    "fp32": Same(1e-4, 0.99999, 0.5),
    "fp16": Same(1e-4, 0.99999, 0.5),
    "int8-weight": Same(1e-4, 0.99999, 0.5),
    "int8-dynamic": Same(0.2, 0.99, 2.5),
    "int8-static": Same(0.6, 0.9, 5.0),
}
FLOAT16 = Same(2e-2, 0.9995, 1.0)  # of a delegate that computes in it whatever the weights are: at least this
_CHANCE = 2  # examples that may fall otherwise whatever their number, of a hundred 2 points, of ten 20


@dataclass(frozen=True)
class Companions:
    """What stands beside a file: its JSON, its golden rows, and its task's examples or None."""

    said: dict[str, Any]
    golden: list[dict[str, Any]]
    exam: dict[str, Any] | None


def read(file: Path) -> Companions:
    """The companions of a LiteRT file; raises UserError where one is missing or none of its."""
    described, folder = (file.with_name(name) for name in companions(file))
    said = _json(described)
    if said["format"] != "litert":
        raise UserError(f"{file} is of the format {said['format']}; benchmark_model runs LiteRT files alone")
    if file.stat().st_size != said["bytes"]:
        raise UserError(f"{described} says that {file} has {said['bytes']} bytes, but it has {file.stat().st_size}")
    if said.get("sentences") == "random ids":
        raise UserError(
            f"{file} was made of a model without a tokenizer, so that no golden inputs stand beside it for a phone to "
            "compute; convert a model that has its tokenizer"
        )
    if not (golden := _json(folder / "golden.json")):
        raise UserError(
            f"{folder / 'golden.json'} has no rows, as no text is as short as {file} reads; name longer --lengths"
        )
    return Companions(said, golden, _exam_of(folder / "exam.json", said))


def _exam_of(path: Path, said: dict[str, Any]) -> device_cases.Exam | None:
    """The examples that a file was scored on; None where it was on none."""
    if not said.get("scores"):
        return None
    found = _json(path)
    if not isinstance(found, dict) or found.get("kind") not in device_cases.KINDS or not found.get("rows"):
        raise UserError(f"{path} is damaged, or of another version; convert the model again")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; `bertzoo convert --to=litert` writes it beside the file") from None
    except ValueError:
        raise UserError(f"{path} is damaged; convert the model again") from None


def pack(file: Path, folder: Path, examples: int | None = None) -> tuple[int, int]:
    """Write to a new folder what a phone is to compute, and return how many rows: the golden inputs, and the task's, at
    most `examples` of them.

    `signatures` and `rows/list` name signatures, inputs and shapes as benchmark_model takes them; `rows/NUMBER/INPUT`
    and `timed/SIGNATURE/INPUT` are numbers as they lie in memory (int32, little-endian).
    """
    known = read(file)
    if folder.exists():
        raise UserError(f"{folder} exists; name a new folder")
    if known.exam:
        device_cases.check(known.exam, examples)
    elif examples:
        raise UserError(f"--rows={examples} asks for rows of a task, but {file} was scored on none: leave it out")
    ports = known.said["ports"]
    lines = {
        name: f"{','.join(each[0] for each in port['inputs'])} "
        f"{':'.join(','.join(map(str, each[2])) for each in port['inputs'])}"
        for name, port in ports.items()
    }
    rows = _rows(known, examples)
    listed = [f"{number:05} {row['signature']} {lines[row['signature']]}\n" for number, row in enumerate(rows)]
    signatures = [f"{name} {line}\n" for name, line in lines.items()]
    with atomic.new_directory(folder) as made:
        for number, row in enumerate(rows):
            _write(made / "rows" / f"{number:05}", row)
        for name in ports:
            fitting = [row for row in known.golden if row["signature"] == name] or [_blank(ports[name], name)]
            _write(made / "timed" / name, fitting[-1])
        (made / "rows" / "list").write_text("".join(listed), encoding="utf-8")
        (made / "signatures").write_text("".join(signatures), encoding="utf-8")
    return len(known.golden), len(rows) - len(known.golden)


def packed(file: Path, folder: Path) -> int:
    """How many of the task's examples a folder that `pack` made of the file holds; raises UserError if it is none."""
    try:
        lines = (folder / "rows" / "list").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{folder} is not what `bertzoo phone pack` writes") from None
    known = read(file)
    count = len(lines) - len(known.golden)
    if not 0 <= count <= len(known.exam["rows"] if known.exam else ()):
        raise UserError(f"{folder} was packed of another file than {file}: pack it again")
    return count


def _rows(known: Companions, examples: int | None) -> list[dict[str, Any]]:
    return [*known.golden, *(known.exam["rows"][:examples] if known.exam else [])]


def _blank(port: dict[str, Any], name: str) -> dict[str, Any]:
    """A row of ones, of a signature that no golden text is of: its first tokens, which are all attended to."""
    return {"signature": name, "inputs": {each[0]: np.ones(each[2], np.int32).tolist() for each in port["inputs"]}}


def _write(folder: Path, row: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for name, values in row["inputs"].items():
        (folder / name).write_bytes(np.asarray(values, "<i4").tobytes())


def judge(
    file: Path, given: Path, examples: int | None = None, limit: float | None = None, float16: bool = False
) -> dict[str, Any]:
    """What a phone's outputs of `pack`'s rows are beside those of the file here: {"golden": {output: figures}, "exam":
    the scores there and here, or None, "limits", "wrong": what is beyond them, in words, "right": whether nothing is}.
    Raises UserError where an output is missing or of another size.

    The limits are those of the file's precision in SAME, at least FLOAT16 if the phone computed in `float16`; `limit`
    is an error instead of theirs.
    """
    known = read(file)
    limits = SAME[known.said["precision"]]
    if float16:
        limits = limits.wider(FLOAT16)
    if limit is not None:
        limits = limits._replace(error=limit)
    pairs = dict[str, list[tuple[np.ndarray, np.ndarray]]]()
    for number, row in enumerate(known.golden):
        outputs = _outputs(given, number, known.said["ports"][row["signature"]])
        for name, found, expected in _compared(outputs, row["outputs"]):
            pairs.setdefault(name, []).append((found, expected))
    figures = {name: _figures(*map(np.concatenate, zip(*each, strict=True))) for name, each in pairs.items()}
    scores = _exam(known, given, examples)
    wrong = [*_beyond(figures, limits), *_lower(scores, limits)]
    return {
        "rows": len(known.golden),
        "limits": limits._asdict(),
        "golden": figures,
        "exam": scores,
        "wrong": wrong,
        "right": not wrong,
    }


def _figures(found: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """Of one output over all rows; an error without end and no cosine where the phone gave a number that is none."""
    apart, lengths = float(np.abs(found - expected).max()), np.linalg.norm(found) * np.linalg.norm(expected)
    finite = bool(np.isfinite(found).all())
    cosine = float(found @ expected / lengths) if finite and lengths else float(finite and not apart)
    return {
        "max_error": apart if finite else math.inf,
        "largest": float(np.abs(expected).max()),
        "cosine": cosine,
    }


def _beyond(figures: dict[str, dict[str, float]], limits: Same) -> Iterator[str]:
    for name, one in figures.items():
        if not (one["max_error"] <= limits.error * one["largest"] and one["cosine"] >= limits.cosine):
            yield (
                f"{name} is off by {one['max_error']:.2g} of values up to {one['largest']:.3g} (at most "
                f"{limits.error:g} of the largest), cosine {one['cosine']:.4f} (at least {limits.cosine:g})"
            )


def _lower(scored: dict[str, Any] | None, limits: Same) -> Iterator[str]:
    if scored is None:
        return
    allowed = limits.points + 100 * _CHANCE / scored["examples"]
    phone = scored["scores"]["phone"]
    if any(np.isnan(points) for points in phone.values()):
        yield f"{scored['task']} cannot be scored, as an output is not finite"
        return
    for name, here in scored["scores"]["here"].items():
        lower = here - phone[name]
        if in_points(name) and lower > allowed:
            of = f"{scored['examples']:,} examples"
            yield f"{name} is {lower:.2f} points lower than here (at most {allowed:.3g} on {of})"


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
    joint = "starts" in expected
    if joint:
        outputs, expected = _answers(outputs, expected)
    for name, values in expected.items():
        found = outputs[name].reshape(-1).astype(np.float64)
        if isinstance(values, dict):
            found, values = found[values["likeliest"]], values["values"]
        want = np.asarray(values, np.float64).reshape(-1)
        found, want = verify.answerable(found, want) if joint and name.endswith("_logits") else (found, want)
        yield name, found, want


def _answers(outputs: dict[str, np.ndarray], expected: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both with the ends of answers given the same starts, which may come in another order."""
    if np.array_equal(outputs["starts"], expected["starts"]):
        return outputs, expected
    if isinstance(expected["end_logits"], dict):  # whose likeliest cannot be put in another order
        return outputs, {name: values for name, values in expected.items() if name not in ("starts", "end_logits")}
    whole = {name: array[None] for name, array in outputs.items()}
    try:
        theirs, kept = verify.aligned(whole, {name: np.asarray(values) for name, values in expected.items()})
    except ExportFailed:  # not one start is the same
        return {name: np.full(array.shape, np.nan) for name, array in outputs.items()}, expected
    return {name: array[0] for name, array in theirs.items()}, dict(kept)


def _exam(known: Companions, given: Path, examples: int | None) -> dict[str, Any] | None:
    if known.exam is None or not (rows := known.exam["rows"][:examples]):
        return None
    ports, first = known.said["ports"], len(known.golden)
    found = device_cases.points(
        known.exam, [_outputs(given, first + i, ports[row["signature"]]) for i, row in enumerate(rows)]
    )
    if found is None:
        return None
    return {
        "task": known.exam["task"],
        "split": known.exam["split"],
        "of": known.exam.get("of", len(known.exam["rows"])),  # files of earlier versions do not say it
        "examples": found.examples,
        "scores": {"phone": found.phone, "here": found.here},
    }
