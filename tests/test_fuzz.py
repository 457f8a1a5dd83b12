"""Readers on damaged files: any damage gives a UserError or is accepted, in bounded memory and time."""

import json
from pathlib import Path

import numpy as np
import pytest
import tiny
from hostile import MEMORY, PROCESS, damaged, fuzz, survive
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


@pytest.mark.slow  # starts a process
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
