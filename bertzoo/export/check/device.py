"""Pack inputs for a phone as raw bytes, and check the phone's outputs; launch/phone.sh copies inputs and outputs.

A LiteRT file's metadata JSON lists the file's inputs and outputs ("ports") in order. The folder beside the file has
golden.json (sentences and the file's outputs) and, for a scored classifier or regression, exam.json (examples of the
task).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.export.check import verify
from bertzoo.export.companions import companions, read_metadata
from bertzoo.export.options import LITERT
from bertzoo.tasks import metrics


class DeviceLimits(NamedTuple):
    """Limits of the difference between a file's outputs on a phone and on this machine.

    error: largest difference, as a share of the output's largest value.
    cosine: smallest cosine between the outputs.
    points: largest number of points by which the phone's score may be lower.
    """

    error: float
    cosine: float
    points: float


# LiteRT's own kernels (XNNPACK, built-in, reference) differ by up to a third of these limits on one machine
# (docs/phone.md): float32 by the order of sums, int8 by rounding steps, which every layer amplifies.
LIMITS = {
    "fp32": DeviceLimits(1e-4, 0.99999, 0.5),
    "fp16": DeviceLimits(1e-4, 0.99999, 0.5),
    "int8-weight": DeviceLimits(1e-4, 0.99999, 0.5),
    "int8-dynamic": DeviceLimits(0.2, 0.99, 2.5),
    "int8-static": DeviceLimits(0.6, 0.9, 5.0),
    "int4-dynamic": DeviceLimits(0.2, 0.99, 2.5),  # activations as in int8-dynamic
}
FLOAT16 = DeviceLimits(2e-2, 0.9995, 1.0)  # for delegates in float16, unless LIMITS are looser
_GOLDEN = [{"signature": str, "inputs": {str: [int]}, "outputs": dict}]
_EXAM = {
    "task": str,
    "split": str,
    "of": int,
    "kind": Literal["classification", "regression"],
    "metrics": [str],
    "scale": float,
    "rows": [{"signature": str, "inputs": {str: [int]}, "label": float, "logits": [float]}],
}


class CompanionRow(NamedTuple):
    """A row of golden.json or exam.json: the inputs, the file's outputs by name, and an example's label.

    A large output is a dict with its largest `values` and their indices, `likeliest`.
    """

    signature: str
    inputs: dict[str, np.ndarray]
    outputs: dict[str, Any]
    label: float | None


@dataclass(frozen=True)
class FileCompanions:
    """Contents of the JSON files that belong to a LiteRT file: its metadata (`description`), golden.json and exam.json.

    exam: None without exam.json. Only files that were scored on a task with one label or number per text have it.
    """

    description: dict[str, Any]
    golden: list[CompanionRow]
    exam: dict[str, Any] | None

    @property
    def rows(self) -> list[CompanionRow]:
        """All rows of golden.json, then those of exam.json."""
        return [*self.golden, *(self.exam["rows"] if self.exam else [])]


def read_companions(file: Path) -> FileCompanions:
    """Read a LiteRT file's JSON files; raises UserError if one is missing, damaged or of another file."""
    path, folder = (file.with_name(name) for name in companions(file))
    if (description := read_metadata(file, "format")) is None:
        raise UserError(f"{path} is missing. Convert the model again with `bertzoo convert --to=litert`.")
    if description["format"] not in LITERT:
        raise UserError(
            f"{file} has the format {description['format']}, but LiteRT's benchmark_model does not run it. Convert "
            "the model with --to=litert."
        )
    if description.get("sentences") == "random ids":
        raise UserError(
            f"{file} was made from a model without a tokenizer, so it has no inputs for a phone. Convert one with it."
        )
    if missing := {"precision", "ports"} - description.keys():
        raise UserError(f"{path} is damaged: it has no entry {missing.pop()!r}. Convert the model again.")
    path, ports, exam = folder / "golden.json", description["ports"], None
    try:
        golden = [_companion_row(row, ports) for row in read_json(path, _GOLDEN)]
        if description.get("scores") and (folder / "exam.json").exists():
            path = folder / "exam.json"
            exam = read_json(path, _EXAM)
            exam["rows"] = [_companion_row(row, ports) for row in exam["rows"]]
            if not exam["rows"] or not {*exam["metrics"]} <= metrics.METRICS[exam["kind"]].keys():
                raise ValueError("it has no rows, or unknown metrics")
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Convert the model again with `bertzoo convert --to=litert`.") from None
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{path} is damaged: {error}. Convert the model again.") from None
    if not golden:
        raise UserError(
            f"{folder / 'golden.json'} has no texts, because the rows of {file} are too short for even one word. "
            "Convert the model again with longer --lengths."
        )
    return FileCompanions(description, golden, exam)


def _companion_row(row: Mapping[str, Any], ports: Mapping[str, Any]) -> CompanionRow:
    """Return a row as arrays; raises LookupError, TypeError, ValueError or OverflowError if it does not fit `ports`."""
    sides = ports[row["signature"]]
    inputs = {name: np.asarray(row["inputs"][name], "<i4").reshape(shape) for name, _, shape in sides["inputs"]}
    shapes = {name: shape for name, _, shape in sides["outputs"]}
    outputs = row.get("outputs") or {"logits": row["logits"]}
    arrays: dict[str, Any] = {}
    for name, values in outputs.items():
        if not isinstance(values, dict):
            arrays[name] = np.asarray(values, np.float64).reshape(shapes[name])[0]
            continue
        indices, largest = np.asarray(values["likeliest"], np.int64), np.asarray(values["values"], np.float64)
        if indices.shape != largest.shape or not ((indices >= 0) & (indices < math.prod(shapes[name]))).all():
            raise ValueError("an output has the indices of another")
        arrays[name] = {"likeliest": indices, "values": largest}
    return CompanionRow(row["signature"], inputs, arrays, row.get("label"))


def pack(file: Path, folder: Path, examples: int | None = None) -> tuple[int, int]:
    """Write test inputs for a phone to a new folder; return how many rows are from golden.json and from exam.json.

    examples: largest number of rows from exam.json; None takes all.

    The files rows/NUMBER/INPUT and timed/SIGNATURE/INPUT are raw little-endian int32. The file `rows/list` has a line
    for each row and the file `signatures` a line for each signature, with the signature, the names of its inputs and
    their shapes in the syntax of LiteRT's benchmark_model.
    """
    beside = read_companions(file)
    if folder.exists():
        raise UserError(f"{folder} exists. Name a new folder.")
    if examples and beside.exam is None:
        raise UserError(
            f"--rows={examples} applies only to a file that was scored as a classifier or regression, and {file} was "
            "not. Leave --rows out."
        )
    ports = beside.description["ports"]
    lines = {
        name: f"{','.join(port[0] for port in sides['inputs'])} "
        f"{':'.join(','.join(map(str, port[2])) for port in sides['inputs'])}"
        for name, sides in ports.items()
    }
    rows = beside.rows[: None if examples is None else len(beside.golden) + examples]
    numbered = [f"{number:05} {row.signature} {lines[row.signature]}\n" for number, row in enumerate(rows)]
    with atomic.new_directory(folder) as temporary:
        for number, row in enumerate(rows):
            _write_row(temporary / "rows" / f"{number:05}", row.inputs)
        for name in ports:
            ones = {port[0]: np.ones(port[2], "<i4") for port in ports[name]["inputs"]}
            golden = [row.inputs for row in beside.golden if row.signature == name]
            _write_row(temporary / "timed" / name, [ones, *golden][-1])
        (temporary / "rows" / "list").write_text("".join(numbered), encoding="utf-8")
        signatures = "".join(f"{name} {line}\n" for name, line in lines.items())
        (temporary / "signatures").write_text(signatures, encoding="utf-8")
    return len(beside.golden), len(rows) - len(beside.golden)


def _write_row(folder: Path, inputs: Mapping[str, np.ndarray]) -> None:
    folder.mkdir(parents=True)
    for name, array in inputs.items():
        (folder / name).write_bytes(array.tobytes())


def judge(
    file: Path, computed: Path, packed: int | None = None, limit: float | None = None, float16: bool = False
) -> dict[str, Any]:
    """Compare a phone's outputs in the folder `computed` with the file's outputs on this machine.

    packed: number of rows that `pack` wrote; None for all rows.
    limit: largest error to allow, as a share of an output's largest value; None takes the limit in LIMITS.
    float16: whether the phone computed in float16; the limits are then at least as loose as FLOAT16.

    Returns a dict with the keys:
    rows: number of rows of golden.json.
    limits: the applied DeviceLimits, as a dict.
    golden: errors of each output over the rows of golden.json, as `verify.differences` returns them.
    exam: scores on the task, as `_exam_scores` returns them.
    wrong: a sentence for each exceeded limit.
    right: whether `wrong` is empty.

    Raises UserError if an output is missing or has the wrong size, or if `packed` does not fit the file.
    """
    beside = read_companions(file)
    count, rows = len(beside.golden), beside.rows
    if packed is not None and not count <= packed <= len(rows):
        raise UserError(
            f"{packed} rows were packed, but {file} has {count} golden rows and {len(rows) - count} examples. Pack the "
            "inputs of this file into a new folder."
        )
    ports, limits = beside.description["ports"], LIMITS[beside.description["precision"]]
    if float16:
        limits = DeviceLimits(
            max(limits.error, FLOAT16.error), min(limits.cosine, FLOAT16.cosine), max(limits.points, FLOAT16.points)
        )
    if limit is not None:
        limits = limits._replace(error=limit)
    outputs = [_read_outputs(computed, number, ports[row.signature]) for number, row in enumerate(rows[:packed])]
    pairs = dict[str, list[tuple[np.ndarray, np.ndarray]]]()
    for row, arrays in zip(beside.golden, outputs, strict=False):
        for name, actual, expected in _pairs(arrays, row.outputs):
            pairs.setdefault(name, []).append((actual, expected))
    kinds = {port[0]: port[1] for sides in ports.values() for port in sides["outputs"]}
    errors, wrong = {}, []
    for name, values in pairs.items():
        actual, expected = map(np.concatenate, zip(*values, strict=True))
        allowed = verify.Limit(limits.error, limits.cosine)
        if kinds[name] in ("int8", "uint8"):
            allowed = verify.integer_limit(allowed, np.dtype(kinds[name]), len(expected) // len(values))
        if kinds[name] == "uint8":  # bits, whose vectors golden.json lacks
            actual, expected = (2.0 * np.unpackbits(side.astype(np.uint8)) - 1 for side in (actual, expected))
            allowed = allowed._replace(error=2)
        errors[name] = verify.differences(actual, expected)
        wrong += filter(None, [verify.excess(name, errors[name], allowed)])
    scores = _exam_scores(beside.exam, outputs[count:])
    wrong += _lower_scores(scores, limits)
    return {
        "rows": count,
        "limits": limits._asdict(),
        "golden": errors,
        "exam": scores,
        "wrong": wrong,
        "right": not wrong,
    }


def _read_outputs(folder: Path, number: int, ports: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the outputs of row `number` by name; benchmark_model writes them to one file in the order of `ports`."""
    path = folder / f"{number:05}"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: the phone did not compute row {number}. Run benchmark_model on this row."
        ) from None
    outputs, at = {}, 0
    for name, kind, shape in ports["outputs"]:
        count = math.prod(shape)
        size = np.dtype(kind).itemsize * count
        if at + size <= len(content):
            outputs[name] = np.frombuffer(content, np.dtype(kind).newbyteorder("<"), count, at).reshape(shape)[0]
        at += size
    if at != len(content):
        raise UserError(
            f"{path} has {len(content)} bytes, but row {number} has {at} bytes. Copy it from the phone again."
        )
    return outputs


def _pairs(outputs: dict[str, np.ndarray], expected: dict[str, Any]) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield (name, phone's values, expected values) for each output, both flat, or only at its likeliest indices.

    If the starts differ, compares the end logits of common starts; without any, the phone's values become NaN.
    """
    if has_starts := "starts" in expected:
        from bertzoo.heads import align_starts, drop_excluded  # imports jax, which takes a second

        if not np.array_equal(outputs["starts"], expected["starts"]):
            if isinstance(expected["end_logits"], dict):  # only the largest values, which cannot be reordered
                expected = {name: values for name, values in expected.items() if name not in ("starts", "end_logits")}
            else:
                try:
                    outputs, expected = align_starts(outputs, expected)
                except ValueError:  # phone and file share no start
                    outputs = {name: np.full(array.shape, np.nan) for name, array in outputs.items()}
    for name, values in expected.items():
        actual = outputs[name].reshape(-1).astype(np.float64)
        if isinstance(values, dict):
            actual, values = actual[values["likeliest"]], values["values"]
        values = values.reshape(-1)
        if has_starts and name.endswith("_logits"):
            actual, values = drop_excluded(actual, values)
        yield name, actual, values


def _exam_scores(exam: dict[str, Any] | None, outputs: list[dict[str, np.ndarray]]) -> dict[str, Any] | None:
    """Score the phone's `outputs`, and this machine's logits for the same rows of exam.json, on the task.

    Returns None if `exam` is None or `outputs` is empty. The phone's scores are NaN if an output is not finite.
    """
    if exam is None or not outputs:
        return None
    rows = exam["rows"][: len(outputs)]

    def score(logits: np.ndarray) -> dict[str, float]:
        predictions = logits[:, 0] * exam["scale"] if exam["kind"] == "regression" else logits.argmax(-1)
        labels = np.asarray([row.label for row in rows])
        return metrics.scores_of(exam["kind"], exam["metrics"], (), predictions, labels)

    here = score(np.stack([row.outputs["logits"] for row in rows]))
    logits = np.stack([output["logits"] for output in outputs])
    return {
        "task": exam["task"],
        "split": exam["split"],
        "of": exam["of"],
        "examples": len(rows),
        "scores": {"phone": score(logits) if np.isfinite(logits).all() else dict.fromkeys(here, np.nan), "here": here},
    }


def _lower_scores(exam: dict[str, Any] | None, limits: DeviceLimits) -> Iterator[str]:
    if exam is None:
        return
    room = limits.points + 100 * 2 / exam["examples"]  # in addition, by what two examples count
    phone, here = exam["scores"]["phone"], exam["scores"]["here"]
    if any(np.isnan(points) for points in phone.values()):
        yield f"{exam['task']} cannot be scored: an output is not finite"
        return
    for name in verify.lower_scores(phone, here, room):
        lower, count = here[name] - phone[name], f"{exam['examples']:,} examples"
        yield f"{name} is {lower:.2f} points lower than on this machine (limit: {room:.3g} on {count})"
