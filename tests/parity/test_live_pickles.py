# pyright: reportMissingImports=false
"""pytorch_model.bin as torch writes it, and other pickles of torch; run by `make test-all`."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparing import needs
from hostile import peak, restart_peak
from messages import refused

needs("torch")

import tiny_bert
import torch

from bertzoo.conversion import huggingface
from bertzoo.conversion.tensors import read_pickled

BIAS = "cls.predictions.bias"


class Large:
    """An object of a few bytes in a pickle, and of 2 GiB in memory."""

    def __reduce__(self) -> tuple:
        return bytearray, (2 << 30,)


PICKLES: dict[str, tuple[Callable[[dict], Any], tuple[str, ...]]] = {
    "numbers as names": (lambda state: {0: state[BIAS]}, ("lacks the tensor",)),
    "nested": (lambda state: {"model": state}, (" dict",)),
    "a list": (lambda state: [*state.values()], ("'list'",)),
    "sparse": (lambda state: state | {BIAS: state[BIAS].to_sparse()}, ("Sparse",)),
    "a large object": (lambda state: state | {BIAS: Large()}, ("MemoryError",)),
    "bytes": (lambda state: state | {BIAS: state[BIAS].byte()}, (BIAS, "uint8")),
}


def pickled(folder: Path, change: Callable[[dict], Any]) -> Path:
    source = tiny_bert.write(folder)
    (source / "model.safetensors").unlink()
    state = {name: torch.from_numpy(array) for name, array in tiny_bert.tensors().items()}
    torch.save(change(state), source / "pytorch_model.bin")
    return source


def rejected(source: Path, capsys: pytest.CaptureFixture, *parts: str) -> None:
    assert tiny_bert.convert(source, source.parent / "out") == 2
    refused(capsys, source / "pytorch_model.bin", *parts)


@pytest.mark.parametrize("case", PICKLES)
def test_pickles(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    change, named = PICKLES[case]
    source, before = pickled(tmp_path / "source", change), restart_peak()
    rejected(source, capsys, *named)
    assert list(tmp_path.iterdir()) == [source] and peak() - before < 256 << 20


def test_halves_and_doubles_become_float32(tmp_path: Path) -> None:
    def converted(state: dict) -> dict:
        return {"half": state[BIAS].half(), "brain": state[BIAS].bfloat16(), "double": state[BIAS].double()}

    tensors = read_pickled(pickled(tmp_path / "source", converted) / "pytorch_model.bin")
    assert {name: array.dtype for name, array in tensors.items()} == dict.fromkeys(tensors, np.float32)
    np.testing.assert_array_equal(tensors["double"], tiny_bert.tensors()[BIAS])


class Payload:
    """A pickle that makes a folder when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("plain", [False, True], ids=["by torch", "by pickle"])
def test_code_in_a_pickle_does_not_run(plain: bool, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    mark = tmp_path / "mark"
    source = pickled(tmp_path / "source", lambda state: state | {BIAS: Payload(mark)})
    if plain:
        (source / "pytorch_model.bin").write_bytes(pickle.dumps({BIAS: Payload(mark)}))
    rejected(source, capsys)
    assert not mark.exists()
    with pytest.raises(FileExistsError):  # what an unsafe reader does
        mark.mkdir()
        pickle.loads(pickle.dumps(Payload(mark)))


def test_a_file_that_is_not_a_pickle(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = pickled(tmp_path / "source", lambda state: state)
    for data in (b"", b"garbage", b"e" * 50, bytes(range(256)), b"PK\x03\x04" + bytes(99)):
        (source / "pytorch_model.bin").write_bytes(data)
        rejected(source, capsys)


@pytest.mark.parametrize("kind", [torch.Tensor, torch.nn.Parameter])
def test_a_pickle_of_tensors_or_parameters(kind: type, tmp_path: Path) -> None:
    source = pickled(tmp_path / "source", lambda state: {name: kind(tensor) for name, tensor in state.items()})
    plain = tiny_bert.write(tmp_path / "plain")
    first, second = huggingface.read_huggingface(source).params, huggingface.read_huggingface(plain).params
    assert first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
