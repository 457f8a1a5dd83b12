"""Pack the row with which a phone times a `.pt`, `.pte` or `.onnx` file; launch/phone.sh copies the packed files.

The runners are PyTorch's speed_benchmark_torch, ExecuTorch's executor_runner and ONNX Runtime's onnxruntime_perf_test
(docs/phone.md cites their sources).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.export.companions import check_takes_ids, companions, read_metadata

SUFFIXES = (".pt", ".pte", ".onnx")  # of files that a phone times without a check of their outputs
USUAL = 128  # tokens, as in the papers' tables, unless the file or --length says otherwise
_INT32 = 6  # TensorProto.DataType
_GOLDEN = [{"signature": str, "inputs": {str: [int]}}]


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
    try:
        golden = read_json(path, _GOLDEN) if path.exists() else []
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}. Convert the model again.") from None
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
