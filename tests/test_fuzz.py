"""Readers on damaged files: any damage gives a UserError or is accepted, in bounded memory and time."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
from hostile import MEMORY, PROCESS, attack, fuzz, survive
from safetensors.numpy import save

from bertzoo.conversion import tensors
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.data.corpus import manifest, shard
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.runs.configs import Pretrain, Transfer


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of every kind of file."""
    from bertzoo.cli import main as cli

    folder = tmp_path_factory.mktemp("files")
    text = ["one two three four five", "six seven eight"] * 40
    for settings in (WordPiece(vocab_size=60), SentencePiece(vocab_size=40)):
        (folder / settings.kind).mkdir()
        tokenizers.save(tokenizers.build(settings, lambda: iter(text)), settings, folder / settings.kind)
    shard.write_shard(folder / "a.array_record", np.arange(5000, dtype="<u2"))
    shutil.copy(folder / "a.array_record", folder / "whole")
    (folder / "model.safetensors").write_bytes(save({"a": np.ones((3, 4), np.float32), "b": np.zeros(7, np.float16)}))
    for name in ("demo", "demo_replaced", "demo_transfer"):
        shutil.copy(config.find(name), folder)
    corpus, recipe = tiny.write_text(folder / "text.txt"), tiny.write_config(folder, "nowhere")
    assert cli.main(["tokenize", str(corpus), str(folder / "corpus"), f"--config={recipe}", "--workers=1"]) == 0
    return folder


def read_tokenizer(file: Path) -> object:
    return tokenizers.load(file.parent).encode_batch(["one two nine"])


def read_shard(file: Path) -> object:
    size = (file.parent / "whole").stat().st_size
    record = shard.ShardRecord(file=file.name, bytes=size, sha256="", tokens=5000)
    return shard.Blocks(file.parent, [record], np.dtype("<u2")).read(np.arange(5))


# What the report names -> the file that is damaged, and its reader.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "config (demo)": ("demo.toml", lambda file: config.load(Pretrain, [file])),
    "config (demo_replaced)": ("demo_replaced.toml", lambda file: config.load(Pretrain, [file])),
    "config (demo_transfer)": ("demo_transfer.toml", lambda file: config.load(Transfer, [file])),
    **{
        f"tokenizer ({kind}, {name})": (f"{kind}/{name}", read_tokenizer)
        for kind in ("wordpiece", "sentencepiece")
        for name in tokenizers.files(kind)
    },
    "ArrayRecord": ("a.array_record", read_shard),
    "manifest": (f"corpus/{manifest.NAME}", lambda file: manifest.parse_manifest(file.read_bytes(), "manifest.json")),
    "safetensors": ("model.safetensors", lambda file: tensors.read_weights(file.parent)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_readers(name: str, files: Path) -> None:
    path, read = READERS[name]
    attack(name, files / path, lambda file: survive(lambda: read(file)))


@pytest.mark.slow  # starts a process
@pytest.mark.skipif(not PROCESS.exists(), reason="a process's peak is asked of Linux alone")
def test_a_reader_with_too_much_memory_fails() -> None:
    taken: list[int] = []

    def read(damage: list) -> None:
        if not taken:
            taken.append(len(b"a" * (MEMORY + (1 << 24))))

    with pytest.raises(AssertionError, match="< "):
        fuzz("memory", read)


@pytest.mark.parametrize("name", ["manifest.json", "settings.json", "a.toml"])
def test_deeply_nested_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(("a = " if name == "a.toml" else "") + "[" * 100_000)
    readers = {"manifest.json": manifest.read_manifest, "settings.json": tokenizers.load}
    with pytest.raises(UserError):
        readers[name](tmp_path) if name in readers else config.load(Pretrain, [tmp_path / name])
