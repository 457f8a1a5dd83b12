"""Readers on damaged files: any damage gives a UserError or is accepted, in bounded memory.

Every file that is read here is a valid one with bytes or words of it changed. BERTZOO_FUZZ says how many are tried of
each.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from bertzoo.conversion import tensors
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.data.corpus import manifest, shard
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.runs.transfer_config import Transfer

COUNT = int(os.environ.get("BERTZOO_FUZZ", "150"))
MEMORY = 512 << 20  # bytes that a process may grow by; the files have some kilobytes
PROCESS = Path("/proc/self")  # of Linux; anywhere else a process's peak is not asked for
WORDS = [
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"999999999999999999999",
    b"\xff\xfe",
    b"\0",
]
WORDS += [b'"', b"\\", b"[" * 2000, b"..", b"/", b"\xed\xa0\x80", b"\r\n", b"=", b"[[a]]", b"a.b.c = 1\n"]


# (kind, place as a share of the file, number of bytes, new bytes)
DAMAGE = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "word", "swap"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(1, 64),
        st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from(WORDS)),
    ),
    min_size=1,
    max_size=6,
)


def damaged(data: bytes, damage: list[tuple[str, float, int, bytes]]) -> bytes:
    """The data with all of this done to it."""
    for what, share, size, new in damage:
        at = int(share * len(data))
        if what == "flip" and data:
            data = data[:at] + bytes([data[at] ^ (1 << size % 8)]) + data[at + 1 :]
        elif what == "cut":
            data = data[:at]
        elif what == "insert":
            data = data[:at] + new + data[at:]
        elif what == "remove":
            data = data[:at] + data[at + size :]
        elif what == "repeat":
            data = data[:at] + data[at : at + size] * 3 + data[at + size :]
        elif what == "word":  # replaces a number or a word
            end = at
            while end < len(data) and data[end : end + 1].isalnum():
                end += 1
            data = data[:at] + new + data[end:]
        elif what == "swap":
            data = data[:at] + data[at + size : at + 2 * size] + data[at : at + size] + data[at + 2 * size :]
    return data


REFUSED: list[str] = []  # output since the last test started


def survive(read: Callable[[], object]) -> None:
    """Read; a UserError of one line is as good as a result."""
    try:
        read()
    except UserError as error:
        REFUSED.append(str(error))
        assert str(error) and "\n" not in str(error), str(error)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of every kind of file."""
    made = tmp_path_factory.mktemp("files")
    text = ["one two three four five", "six seven eight"] * 40
    for name, settings_ in (("word", WordPiece(vocab_size=60)), ("piece", SentencePiece(vocab_size=40))):
        (made / name).mkdir()
        tokenizers.save(tokenizers.build(settings_, lambda: iter(text)), settings_, made / name)
    shard.write_shard(made / "a.array_record", np.arange(5000, dtype="<u2"))
    (made / "model.safetensors").write_bytes(save({"a": np.ones((3, 4), np.float32), "b": np.zeros(7, np.float16)}))
    return made


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The manifest of a corpus."""
    from bertzoo.cli import main as cli

    folder = tmp_path_factory.mktemp("corpus")
    text, settings_ = tiny.write_text(folder / "text.txt"), tiny.write_config(folder, "nowhere")
    assert cli.main(["tokenize", str(text), str(folder / "corpus"), f"--config={settings_}", "--workers=1"]) == 0
    return (folder / "corpus" / manifest.NAME).read_bytes()


def fuzz(name: str, test: Callable[[list], None]) -> None:
    """Run a test on many damaged files within a memory limit, and log the outcome."""
    REFUSED.clear()
    grown = tried = 0

    def counted(damage: list) -> None:
        nonlocal tried
        tried += 1
        test(damage)

    many = settings(
        max_examples=COUNT, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    if PROCESS.exists():
        (PROCESS / "clear_refs").write_text("5")  # the peak is the process's own of all time until then
        before = peak()
        many(given(damage=DAMAGE)(counted))()
        grown = peak() - before
        assert grown < MEMORY
    else:
        many(given(damage=DAMAGE)(counted))()
    assert tried >= COUNT, "there are not so many damages of this file"
    print(
        f"fuzzed {name}: {tried} files, {len(REFUSED)} refused, {grown >> 20} MB"
    )  # for benchmarks/reliability/kills.py


def peak() -> int:
    """The most bytes that this process has held."""
    (line,) = [line for line in (PROCESS / "status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not PROCESS.exists(), reason="a process's peak is asked of Linux alone")
def test_a_reader_with_too_much_memory_fails() -> None:
    taken: list[int] = []

    def read(damage: list) -> None:
        if not taken:
            taken.append(len(b"a" * (MEMORY + (1 << 24))))

    with pytest.raises(AssertionError, match="< "):
        fuzz("memory", read)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("demo", Pretrain), ("demo_replaced", Pretrain), ("demo_transfer", Transfer)]
)
def test_configs(name: str, kind: type, tmp_path: Path) -> None:
    whole = config.find(name).read_bytes()

    def read(damage: list) -> None:
        (tmp_path / "a.toml").write_bytes(damaged(whole, damage))
        survive(lambda: config.load(kind, [tmp_path / "a.toml"]))

    fuzz(f"config ({name})", read)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["word", "piece"])
@pytest.mark.parametrize("part", [0, 1])
def test_tokenizers(files: Path, which: str, part: int, tmp_path: Path) -> None:
    kind = json.loads((files / which / "settings.json").read_text())["kind"]
    names = tokenizers.files(kind)
    contents = {name: (files / which / name).read_bytes() for name in names}

    def read(damage: list) -> None:
        for name, data in contents.items():
            (tmp_path / name).write_bytes(damaged(data, damage) if name == names[part] else data)
        survive(lambda: tokenizers.load(tmp_path).encode_batch(["one two nine"]))

    fuzz(f"tokenizer ({kind}, {names[part]})", read)


@pytest.mark.slow
def test_array_records(files: Path, tmp_path: Path) -> None:
    whole = (files / "a.array_record").read_bytes()
    record = shard.ShardRecord(file="a", bytes=len(whole), sha256="", tokens=5000)

    def read(damage: list) -> None:
        (tmp_path / "a").write_bytes(damaged(whole, damage))
        survive(lambda: shard.Blocks(tmp_path, [record], np.dtype("<u2")).read(np.arange(5)))

    fuzz("ArrayRecord", read)


@pytest.mark.slow
def test_manifests(corpus: bytes) -> None:
    fuzz("manifest", lambda damage: survive(lambda: manifest.parse_manifest(damaged(corpus, damage), "manifest.json")))


@pytest.mark.slow
def test_safetensors(files: Path, tmp_path: Path) -> None:
    whole = (files / "model.safetensors").read_bytes()

    def read(damage: list) -> None:
        (tmp_path / "model.safetensors").write_bytes(damaged(whole, damage))
        survive(lambda: tensors.read_weights(tmp_path))

    fuzz("safetensors", read)


@pytest.mark.parametrize("name", ["manifest.json", "settings.json", "a.toml"])
def test_deeply_nested_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(("a = " if name == "a.toml" else "") + "[" * 100_000)
    readers = {"manifest.json": manifest.read_manifest, "settings.json": tokenizers.load}
    with pytest.raises(UserError):
        readers[name](tmp_path) if name in readers else config.load(Pretrain, [tmp_path / name])
