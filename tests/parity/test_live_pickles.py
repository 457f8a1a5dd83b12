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
from messages import mentions

needs("torch")

import tiny_bert
import torch

from bertzoo.cli.main import main
from bertzoo.conversion import huggingface
from bertzoo.conversion.pickled import read_pickled

BIAS = "cls.predictions.bias"


class Large:
    """An object of a few bytes in a pickle, and of 2 GiB in memory."""

    def __reduce__(self) -> tuple:
        return bytearray, (2 << 30,)


PICKLES: dict[str, tuple[Callable[[dict], Any], tuple[str, ...]]] = {
    "numbers as names": (lambda state: {0: state[BIAS]}, (" 0 ", " Tensor")),
    "nested": (lambda state: {"model": state}, ("'model'", " dict")),
    "a list": (lambda state: [*state.values()], (" list",)),
    "sparse": (lambda state: state | {BIAS: state[BIAS].to_sparse()}, (BIAS, " sparse")),
    "doubles": (lambda state: state | {BIAS: state[BIAS].double()}, (BIAS, "float64", "float32")),
    "one number at every place": (
        lambda state: state | {BIAS: torch.zeros(1).expand(1 << 13, 1 << 16)},
        (BIAS, "(8192, 65536)", "2,147,483,648", "4"),
    ),
    "one array at many offsets": (
        lambda state: {f"a{i}": array[i:] for array in [torch.zeros(1 << 20).half()] for i in range(512)},
        (f"{(512 << 20) - 511 * 256:,}",),  # elements of all views
    ),
    "one array under many names": (
        lambda state: {f"a{i}": array for array in [torch.zeros(1 << 20).half()] for i in range(512)},
        (f"{512 << 20:,}",),
    ),
    "a large object": (lambda state: state | {BIAS: Large()}, ("MemoryError",)),
    "bytes": (lambda state: state | {BIAS: state[BIAS].byte()}, (BIAS, "uint8", "float32")),
}


def pickled(folder: Path, change: Callable[[dict], Any]) -> Path:
    source = tiny_bert.write(folder)
    (source / "model.safetensors").unlink()
    state = {name: torch.from_numpy(array) for name, array in tiny_bert.tensors().items()}
    torch.save(change(state), source / "pytorch_model.bin")
    return source


def refusal(source: Path, capsys: pytest.CaptureFixture) -> str:
    assert main(["convert", str(source), str(source.parent / "out"), "--to=bertzoo"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("case", PICKLES)
def test_pickles(case: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    change, named = PICKLES[case]
    source, before = pickled(tmp_path / "source", change), restart_peak()
    assert mentions(refusal(source, capsys), source / "pytorch_model.bin", *named)
    assert list(tmp_path.iterdir()) == [source] and peak() - before < 256 << 20


@pytest.mark.parametrize("names", [1, 8])
def test_tied_tensors_are_read_once(names: int, tmp_path: Path) -> None:
    def halves(state: dict) -> dict:
        half = {name: array.half() if array.is_floating_point() else array for name, array in state.items()}
        large = torch.ones(1 << 20).half()
        return half | {"cls.predictions.decoder.bias": half[BIAS]} | {f"tied.{i}": large for i in range(names)}

    path, before = pickled(tmp_path / "source", halves) / "pytorch_model.bin", restart_peak()
    tensors = read_pickled(path)
    assert peak() - before < 64 << 20
    assert tensors[BIAS].dtype == tensors["tied.0"].dtype == np.float32
    assert all(tensors[f"tied.{i}"] is tensors["tied.0"] for i in range(names))
    assert tensors["cls.predictions.decoder.bias"] is tensors[BIAS] and (tensors["tied.0"] == 1).all()


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
    assert mentions(refusal(source, capsys), source / "pytorch_model.bin") and not mark.exists()
    with pytest.raises(FileExistsError):  # what an unsafe reader does
        mark.mkdir()
        pickle.loads(pickle.dumps(Payload(mark)))


def test_a_file_that_is_not_a_pickle(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    source = pickled(tmp_path / "source", lambda state: state)
    for data in (b"", b"garbage", b"e" * 50, bytes(range(256)), b"PK\x03\x04" + bytes(99)):
        (source / "pytorch_model.bin").write_bytes(data)
        assert mentions(refusal(source, capsys), source / "pytorch_model.bin")


def test_a_pickle_of_parameters(tmp_path: Path) -> None:
    source = pickled(tmp_path / "source", lambda state: {name: torch.nn.Parameter(a) for name, a in state.items()})
    plain = tiny_bert.write(tmp_path / "plain")
    first, second = huggingface.read_huggingface(source).params, huggingface.read_huggingface(plain).params
    assert first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)
