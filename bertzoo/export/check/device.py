"""Pack inputs for a phone as raw bytes, and check the phone's outputs; launch/phone.sh copies inputs and outputs.

A LiteRT file's metadata JSON lists the file's inputs and outputs ("ports") in order. The folder beside the file has
golden.json (sentences and the file's outputs) and, for a scored classifier or regression, exam.json (examples of the
task).

A `.pt`, `.pte` or `.onnx` file is only timed, by PyTorch's speed_benchmark_torch, ExecuTorch's executor_runner or ONNX
Runtime's onnxruntime_perf_test (docs/phone.md cites their sources).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import fitting, read_json
from bertzoo.core.errors import UserError
from bertzoo.export.check import verify
from bertzoo.export.companions import check_takes_ids, companions, read_metadata
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
_CHANCE = 2  # in addition, a score may be lower by what this many examples count
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


TIMED_SUFFIXES = (".pt", ".pte", ".onnx")  # of files that a phone times without a check of their outputs
USUAL = 128  # tokens, as in the papers' tables, unless the file or --length says otherwise
_INT32 = 6  # TensorProto.DataType


@dataclass(frozen=True)
class FileCompanions:
    """Contents of the JSON files that belong to a LiteRT file: its metadata (`description`), golden.json and exam.json.

    exam: None without exam.json. Only files that were scored on a task with one label or number per text have it.
    """

    description: dict[str, Any]
    golden: list[dict[str, Any]]
    exam: dict[str, Any] | None

    def rows(self, examples: int | None) -> list[dict[str, Any]]:
        """Return all rows of golden.json, then the first `examples` rows of exam.json; None takes all."""
        return [*self.golden, *(self.exam["rows"][:examples] if self.exam else [])]


def read_companions(file: Path) -> FileCompanions:
    """Read the JSON files that belong to a LiteRT file.

    Raises UserError if one of them is missing, damaged or belongs to another file.
    """
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
    path, ports = folder / "golden.json", description["ports"]
    if not (golden := _read_json(path, _GOLDEN)):
        raise UserError(
            f"{path} has no texts, because the rows of {file} are too short for even one word. Convert the model again "
            "with longer --lengths."
        )
    _check_rows(path, golden, ports)
    exam, path = None, folder / "exam.json"
    if description.get("scores") and (path.exists() or _requires_exam(description)):
        exam = _read_json(path, _EXAM)
        _check_rows(path, exam["rows"], ports)
        if not exam["rows"] or not {*exam["metrics"]} <= metrics.METRICS[exam["kind"]].keys():
            raise UserError(f"{path} is damaged, or from another version of bertzoo. Convert the model again.")
    return FileCompanions(description, golden, exam)


def _requires_exam(description: dict[str, Any]) -> bool:
    """Return whether a scored file must have exam.json; files with other heads may have it.

    Files of the format "litert" that classify sequences, with one label or number per text, must have it.
    """
    head = description.get("head", {})
    several = head.get("problem_type") == "multi_label_classification"
    of_texts = head.get("kind", "sequence_classification") == "sequence_classification"
    return description["format"] == "litert" and of_texts and not several


def _read_json(path: Path, pattern: Any) -> Any:
    try:
        return read_json(path, pattern)
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Convert the model again with `bertzoo convert --to=litert`.") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Convert the model again.") from None


def _check_rows(path: Path, rows: list[dict[str, Any]], ports: dict[str, Any]) -> None:
    """Raise UserError unless every row has the inputs and outputs of its signature, with the right number of values."""
    sizes = {
        name: {side: {port[0]: math.prod(port[2]) for port in sides[side]} for side in ("inputs", "outputs")}
        for name, sides in ports.items()
    }
    for number, row in enumerate(rows):
        side = sizes.get(row["signature"], {"inputs": {}, "outputs": {}})
        outputs = row.get("outputs", {"logits": row.get("logits")})
        fits = all(_is_output(values, side["outputs"].get(name, -1)) for name, values in outputs.items())
        if {name: len(values) for name, values in row["inputs"].items()} != side["inputs"] or not fits:
            raise UserError(
                f"{path} is damaged: row {number} does not fit the signature {row['signature']}. Convert it again."
            )


def _is_output(values: Any, size: int) -> bool:
    """Return whether `values` is an output of `size` numbers in the form that golden.json has.

    The form is all numbers or, of a large output, a dict with the largest numbers and their indices.
    """
    try:
        if isinstance(values, dict):
            fitting(values, {"likeliest": [int], "values": [float]})
            places = values["likeliest"]
            return len(places) == len(values["values"]) and all(0 <= place < size for place in places)
        return np.asarray(values, np.float64).size == size
    except (ValueError, TypeError):
        return False


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
    rows = beside.rows(examples)
    numbered = [f"{number:05} {row['signature']} {lines[row['signature']]}\n" for number, row in enumerate(rows)]
    with atomic.new_directory(folder) as temporary:
        for number, row in enumerate(rows):
            _write_row(temporary / "rows" / f"{number:05}", row)
        for name in ports:
            ones = {port[0]: np.ones(port[2], np.int32) for port in ports[name]["inputs"]}
            fitting = [row for row in beside.golden if row["signature"] == name] or [{"inputs": ones}]
            _write_row(temporary / "timed" / name, fitting[-1])
        (temporary / "rows" / "list").write_text("".join(numbered), encoding="utf-8")
        signatures = "".join(f"{name} {line}\n" for name, line in lines.items())
        (temporary / "signatures").write_text(signatures, encoding="utf-8")
    return len(beside.golden), len(rows) - len(beside.golden)


def _write_row(folder: Path, row: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    for name, values in row["inputs"].items():
        (folder / name).write_bytes(np.asarray(values, "<i4").tobytes())


def count_packed(file: Path, folder: Path) -> int:
    """Return how many rows of exam.json `pack` wrote to a folder; raises UserError if the rows are another file's."""
    try:
        lines = (folder / "rows" / "list").read_bytes().splitlines()
    except FileNotFoundError:
        raise UserError(f"{folder} was not written by `bertzoo phone pack`. Pack the inputs first.") from None
    beside = read_companions(file)
    count = len(lines) - len(beside.golden)
    if not 0 <= count <= len(beside.exam["rows"] if beside.exam else ()):
        raise UserError(f"{folder} has the inputs of another file than {file}. Pack those of {file} into a new folder.")
    return count


def judge(
    file: Path, computed: Path, examples: int | None = None, limit: float | None = None, float16: bool = False
) -> dict[str, Any]:
    """Compare a phone's outputs in the folder `computed` with the file's outputs on this machine.

    examples: number of rows from exam.json that `pack` wrote.
    limit: largest error to allow, as a share of an output's largest value; None takes the limit in LIMITS.
    float16: whether the phone computed in float16; the limits are then at least as loose as FLOAT16.

    Returns a dict with the keys:
    rows: number of rows of golden.json.
    limits: the applied DeviceLimits, as a dict.
    golden: errors of each output over the rows of golden.json, as `_figures` returns them.
    exam: scores on the task, as `_exam_scores` returns them.
    wrong: a sentence for each exceeded limit.
    right: whether `wrong` is empty.

    Raises UserError if an output is missing or has the wrong size.
    """
    beside = read_companions(file)
    ports, limits = beside.description["ports"], LIMITS[beside.description["precision"]]
    if float16:
        limits = DeviceLimits(
            max(limits.error, FLOAT16.error), min(limits.cosine, FLOAT16.cosine), max(limits.points, FLOAT16.points)
        )
    if limit is not None:
        limits = limits._replace(error=limit)
    outputs = [
        _read_outputs(computed, number, ports[row["signature"]]) for number, row in enumerate(beside.rows(examples))
    ]
    pairs = dict[str, list[tuple[np.ndarray, np.ndarray]]]()
    for row, arrays in zip(beside.golden, outputs, strict=False):
        for name, actual, expected in _pairs(arrays, row["outputs"]):
            pairs.setdefault(name, []).append((actual, expected))
    kinds = {port[0]: port[1] for sides in ports.values() for port in sides["outputs"]}
    figures, allowed = {}, {}
    for name, values in pairs.items():
        actual, expected = map(np.concatenate, zip(*values, strict=True))
        allowed[name] = verify.Limit(limits.error, limits.cosine)
        if kinds[name] in ("int8", "uint8"):
            size = len(expected) // len(values)
            allowed[name] = verify.integer_limit(allowed[name], np.dtype(kinds[name]), size)
        if kinds[name] == "uint8":  # bits, whose vectors golden.json lacks
            actual, expected = (2.0 * np.unpackbits(side.astype(np.uint8)) - 1 for side in (actual, expected))
            allowed[name] = allowed[name]._replace(error=2)
        figures[name] = _figures(actual, expected)
    scores = _exam_scores(beside.exam, outputs[len(beside.golden) :])
    wrong = [*_beyond_limits(figures, allowed), *_lower_scores(scores, limits)]
    return {
        "rows": len(beside.golden),
        "limits": limits._asdict(),
        "golden": figures,
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
    """Yield (name, phone's values, expected values) for each output, both flat.

    If `expected` holds only an output's largest values and their indices, takes the phone's values at these indices.
    """
    if has_starts := "starts" in expected:
        outputs, expected = _same_starts(outputs, expected)
    for name, values in expected.items():
        actual = outputs[name].reshape(-1).astype(np.float64)
        if isinstance(values, dict):
            actual, values = actual[values["likeliest"]], values["values"]
        expected_values = np.asarray(values, np.float64).reshape(-1)
        if has_starts and name.endswith("_logits"):
            from bertzoo.heads import drop_excluded  # imports jax, which takes a second

            actual, expected_values = drop_excluded(actual, expected_values)
        yield name, actual, expected_values


def _same_starts(outputs: dict[str, np.ndarray], expected: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `outputs` and `expected`, with end logits for the same start positions.

    If the positions differ and `expected` has only the largest end logits, removes start positions and end logits from
    `expected`. If no position is common, all `outputs` become NaN.
    """
    if np.array_equal(outputs["starts"], expected["starts"]):
        return outputs, expected
    if isinstance(expected["end_logits"], dict):  # golden.json has only the largest values, which cannot be reordered
        return outputs, {name: values for name, values in expected.items() if name not in ("starts", "end_logits")}
    from bertzoo.heads import align_starts

    try:
        return align_starts(outputs, {name: np.asarray(values) for name, values in expected.items()})
    except ValueError:  # phone and file share no start
        return {name: np.full(array.shape, np.nan) for name, array in outputs.items()}, expected


def _figures(actual: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """Return an output's largest error, largest value and cosine; the error is inf if an actual value is not finite."""
    error, norms = float(np.abs(actual - expected).max()), np.linalg.norm(actual) * np.linalg.norm(expected)
    finite = bool(np.isfinite(actual).all())
    return {
        "max_error": error if finite else math.inf,
        "largest": float(np.abs(expected).max()),
        "cosine": float(actual @ expected / norms) if finite and norms else float(finite and not error),
    }


def _beyond_limits(figures: dict[str, dict[str, float]], allowed: dict[str, verify.Limit]) -> Iterator[str]:
    for name, one in figures.items():
        limits = allowed[name]
        if not (one["max_error"] <= limits.error * one["largest"] and one["cosine"] >= limits.cosine):
            yield (
                f"the error of {name} is {one['max_error']:.2g} (limit: {limits.error:g} times the largest value, "
                f"{one['largest']:.3g}), and the cosine {one['cosine']:.4f} (limit: at least {limits.cosine:g})"
            )


def _exam_scores(exam: dict[str, Any] | None, outputs: list[dict[str, np.ndarray]]) -> dict[str, Any] | None:
    """Score the phone's `outputs`, and this machine's logits for the same rows of exam.json, on the task.

    Returns None if `exam` is None or `outputs` is empty. The phone's scores are NaN if an output is not finite.
    """
    if exam is None or not outputs:
        return None
    rows = exam["rows"][: len(outputs)]

    def score(logits: np.ndarray) -> dict[str, float]:
        predictions = logits[:, 0] * exam["scale"] if exam["kind"] == "regression" else logits.argmax(-1)
        labels = np.asarray([row["label"] for row in rows])
        return metrics.scores_of(exam["kind"], exam["metrics"], (), predictions, labels)

    here = score(np.asarray([row["logits"] for row in rows]))
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
    allowed = limits.points + 100 * _CHANCE / exam["examples"]
    phone = exam["scores"]["phone"]
    if any(np.isnan(points) for points in phone.values()):
        yield f"{exam['task']} cannot be scored: an output is not finite"
        return
    for name, here in exam["scores"]["here"].items():
        lower = here - phone[name]
        if metrics.in_points(name) and lower > allowed:
            count = f"{exam['examples']:,} examples"
            yield f"{name} is {lower:.2f} points lower than on this machine (limit: {allowed:.3g} on {count})"


def pack_timed(file: Path, folder: Path, length: int | None = None) -> int:
    """Write a row of `length` tokens to a new folder, as input to time an exported file on a phone; return the length.

    file: the exported file. length: None takes the length nearest to USUAL that the file accepts.

    The file `signatures` in the folder lists the inputs in the graph's order, with their shapes. The folder
    timed/SIGNATURE has each input twice: as raw little-endian int32 and, in the layout of ONNX's test data, as
    input_NUMBER.pb.

    Raises UserError if `file` does not accept the length, or takes texts.
    """
    description = read_metadata(file, "format", "inputs", "lengths")
    if description is None:
        path = file.with_name(companions(file)[0])
        raise UserError(f"{path} is missing. Convert the model again with `bertzoo convert`.")
    check_takes_ids(file, description["format"])
    if folder.exists():
        raise UserError(f"{folder} exists. Name a new folder.")
    shortest, longest = description["lengths"]["shortest"], description["lengths"]["longest"]
    if length is None:
        length = min(max(USUAL, shortest), longest)
    if not shortest <= length <= longest:
        span = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
        raise UserError(f"--length={length}, but the rows of {file} have {span} tokens. Use one of these lengths.")
    row = _timed_row(file, description, length)
    shapes = ":".join(f"1,{array.size}" for array in row.values())
    with atomic.new_directory(folder) as temporary:
        timed = temporary / "timed" / f"length_{length}"
        timed.mkdir(parents=True)
        for number, (name, array) in enumerate(row.items()):
            (timed / name).write_bytes(array.tobytes())
            (timed / f"input_{number}.pb").write_bytes(tensor_proto(name, array[None]))
        (temporary / "signatures").write_text(f"length_{length} {','.join(row)} {shapes}\n", encoding="utf-8")
    return length


def _timed_row(file: Path, description: Mapping[str, Any], length: int) -> dict[str, np.ndarray]:
    """Return a row of `length` tokens as int32 inputs by name, in the graph's order.

    This is the last row of this length in golden.json or, if there is none, a row in which every value is 1.
    """
    path = file.with_name(companions(file)[1]) / "golden.json"
    golden = _read_json(path, _GOLDEN) if path.exists() else []
    rows = [row["inputs"] for row in golden if row["signature"] == f"length_{length}"]
    ones = {name: [1] * (1 if name == "masked_positions" else length) for name in description["inputs"]}
    inputs = rows[-1] if rows else ones
    if {name: len(values) for name, values in inputs.items()} != {name: len(values) for name, values in ones.items()}:
        raise UserError(f"{path} is damaged: a row of length {length} does not fit the file. Convert the model again.")
    return {name: np.asarray(inputs[name], "<i4") for name in ones}


def tensor_proto(name: str, array: np.ndarray) -> bytes:
    """Return an int32 array as a serialised TensorProto of onnx.proto: dims, data_type, name and raw_data.

    The wire format is protobuf's (https://protobuf.dev/programming-guides/encoding).
    """
    name_bytes, content = name.encode(), array.astype("<i4").tobytes()
    dims = b"".join(b"\x08" + _varint(size) for size in array.shape)
    kind = b"\x10" + _varint(_INT32)
    return dims + kind + b"\x42" + _varint(len(name_bytes)) + name_bytes + b"\x4a" + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
