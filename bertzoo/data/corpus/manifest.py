"""The manifest of a tokenised corpus. It is written last, so a corpus with a manifest is complete."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.config import leaves
from bertzoo.core.documents import fitting, parse_json, read_json
from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus.shard import FILE, SHARD, SPLITS, FileRecord, ShardRecord, describe_file
from bertzoo.data.tokenizers import tokenizer

if TYPE_CHECKING:
    from bertzoo.data.settings import MixtureSource

FORMAT = 1
NAME = "manifest.json"
SETTINGS = "settings.json"  # file with the settings of the corpus; written first
PIECES = "pieces"  # directory of the finished pieces' sidecars and indexes until the manifest is written
_SPLIT = {
    "documents": int,
    "sentences": int,
    "tokens": int,
    "sentence_index": FILE,
    "document_index": FILE,
    "shards": [SHARD],
}
_MANIFEST = {
    "hash": str,
    "settings": {"format": int},
    "tokenizer": {"vocab_size": int, "sha256": str},
    "splits": dict.fromkeys(SPLITS, _SPLIT),
    "dropped": {str: int},
    "parts?": [{"source": str, "weight": float, "documents": int, "tokens": int}],
    "usage": {split: {"unknown": int, "entries": int} for split in SPLITS},
}


@dataclass(frozen=True, kw_only=True)
class SplitRecord:
    """The manifest's entry for one split, training or held-out."""

    documents: int
    sentences: int
    tokens: int
    unknown: int  # number of [UNK] tokens
    entries: int  # number of different tokens that occur
    sentence_index: FileRecord
    document_index: FileRecord
    shards: tuple[ShardRecord, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The fields that are numbers, by name."""
        return {name: getattr(self, name) for name in ("documents", "sentences", "tokens", "unknown", "entries")}

    def __str__(self) -> str:
        counts = f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens"
        return f"{counts}, {self.unknown / self.tokens:.2%} of them [UNK]"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    hash: str  # SHA-256 of the manifest without `hash` and `usage`; it identifies the corpus
    settings: dict[str, Any]  # content of the corpus's settings.json
    vocab_size: int
    tokenizer_sha256: str
    splits: dict[str, SplitRecord]  # "train" and "heldout"
    raw: dict[str, Any]  # the whole manifest as parsed JSON

    @property
    def unknown_share(self) -> float:
        """The share of [UNK] among all tokens, from 0 to 1."""
        splits = self.splits.values()
        return sum(split.unknown for split in splits) / sum(split.tokens for split in splits)

    @property
    def files(self) -> list[FileRecord]:
        """The indexes and shards of all splits."""
        splits = self.splits.values()
        return [file for split in splits for file in (split.sentence_index, split.document_index, *split.shards)]


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest in a corpus's directory; raises CorpusError naming the file and what is wrong."""
    path = directory / NAME
    if not path.is_file():
        raise CorpusError(
            f"{path} does not exist: {directory} holds no complete corpus. Run `bertzoo tokenize` to write it."
        )
    return parse_manifest(path.read_bytes(), str(path))


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Parse and check `data`, the bytes of a manifest; raises CorpusError naming `path` and what is wrong."""
    try:
        raw = parse_json(data, {"settings": {"format": object}})
        if (version := raw["settings"]["format"]) != FORMAT:
            raise CorpusError(
                f"{path} has format {version}, but this bertzoo reads format {FORMAT}. Tokenise the source again."
            )
        fitting(raw, _MANIFEST)
        manifest = Manifest(
            hash=raw["hash"],
            settings=raw["settings"],
            vocab_size=raw["tokenizer"]["vocab_size"],
            tokenizer_sha256=raw["tokenizer"]["sha256"],
            splits={split: _split_record(raw["splits"][split], raw["usage"][split]) for split in SPLITS},
            raw=raw,
        )
    except (ValueError, TypeError) as error:  # TypeError: further keys
        raise CorpusError(f"{path} is damaged ({error}). Tokenise the source again.") from error
    if manifest.hash != _hash(raw):
        raise CorpusError(f"{path} is damaged: its hash differs from that of its contents. Tokenise the source again.")
    return manifest


def _split_record(raw: dict[str, Any], usage: dict[str, int]) -> SplitRecord:
    return SplitRecord(
        documents=raw["documents"],
        sentences=raw["sentences"],
        tokens=raw["tokens"],
        **usage,
        sentence_index=FileRecord(**raw["sentence_index"]),
        document_index=FileRecord(**raw["document_index"]),
        shards=tuple(ShardRecord(**shard) for shard in raw["shards"]),
    )


def _hash(raw: dict[str, Any]) -> str:
    contents = {name: value for name, value in raw.items() if name not in ("hash", "usage")}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def check_same_settings(settings: dict[str, Any], data: bytes, folder: str) -> None:
    """Raise CorpusError unless `data`, the settings.json of the corpus in `folder`, equals `settings`."""
    try:
        different = differences(settings, parse_json(data))
    except ValueError as error:
        raise CorpusError(f"{folder}/{SETTINGS} is damaged ({error}). Delete {folder} and tokenise again.") from error
    if different:
        raise CorpusError(
            f"{folder} holds another corpus ({'; '.join(different)}). Use another destination, or delete this corpus."
        )


def differences(ours: dict[str, object], theirs: dict[str, object]) -> list[str]:
    """Return a line such as "heldout is 0.03 there and 0.01 here" for each setting that differs."""
    here, there = (dict(leaves(settings, "")) for settings in (ours, theirs))
    return [
        f"{name} is {there.get(name)!r} there and {here.get(name)!r} here"
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name)
    ]


def read_sidecar(sidecar: Path, destination: Path) -> dict[str, Any]:
    """Read the JSON file that marks a piece of the corpus `destination` as finished, or raise DocumentError."""
    pattern = {"text_sha256": str, "part": int, "documents": int, "shards": {str: SHARD}, "dropped": {str: int}}
    return read_json(sidecar, pattern, f"Delete {destination} and tokenise again.")


def write_manifest(
    destination: Path, pieces: Path, count: int, settings: dict[str, Any], sources: Sequence["MixtureSource"]
) -> None:
    """Join the sentence and document indexes of a corpus's `count` pieces (groups of documents) and write the manifest.

    pieces: folder with the pieces' files. Raises CorpusError if a split is empty.
    """
    sidecars = [read_sidecar(pieces / f"{index:05d}.json", destination) for index in range(count)]
    dropped: Counter[str] = Counter()
    for sidecar in sidecars:
        dropped.update(sidecar["dropped"])
    directory = destination / "tokenizer"
    vocabulary = tokenizer.load(directory)
    splits, usage = {}, {}
    for split in SPLITS:
        indexes = [index for index, sidecar in enumerate(sidecars) if split in sidecar["shards"]]
        if not indexes:
            numbers = ", ".join(f"{number} {reason}" for reason, number in sorted(dropped.items())) or "none"
            raise CorpusError(
                f"the {split} split of the corpus is empty (heldout = {settings['heldout']}, documents dropped: "
                f"{numbers}). Delete {destination}, then add documents, separated by blank lines, or set another "
                "--data.heldout."
            )
        splits[split] = _join_split(destination, pieces, split, indexes, sidecars)
        files = (pieces / f"{index:05d}.{split}.entries.npy" for index in indexes)
        counts = sum(map(np.load, files), np.zeros(vocabulary.vocab_size, np.int64))
        usage[split] = {"unknown": int(counts[vocabulary.specials.unk]), "entries": int(np.count_nonzero(counts))}
    description = {"vocab_size": vocabulary.vocab_size, "sha256": tokenizer.fingerprint(directory)}
    raw = {"settings": settings, "tokenizer": description, "splits": splits, "dropped": dict(dropped)}
    if len(sources) > 1:
        raw["parts"] = []
        for index, source in enumerate(sources):
            of_source = [sidecar for sidecar in sidecars if sidecar["part"] == index]
            documents = sum(sidecar["documents"] for sidecar in of_source)  # repeated ones count each time
            tokens = sum(record["tokens"] for sidecar in of_source for record in sidecar["shards"].values())
            entry = {"source": source.source, "weight": source.weight, "documents": documents, "tokens": tokens}
            raw["parts"].append(entry)
    atomic.write_json(destination / NAME, {"hash": _hash(raw), **raw, "usage": usage})


def _join_split(
    destination: Path, pieces: Path, split: str, indexes: list[int], sidecars: list[dict[str, Any]]
) -> dict[str, Any]:
    """Write a split's two indexes and return its entry in the manifest.

    indexes: numbers of the pieces that have documents in the split. sidecars: the JSON object of every piece.
    """
    shards = [sidecars[index]["shards"][split] for index in indexes]

    def arrays(name: str) -> Iterator[np.ndarray]:
        return (np.load(pieces / f"{index:05d}.{split}.{name}.npy") for index in indexes)

    longest = max(int(lengths.max()) for lengths in arrays("sentences"))
    sentences = sum(len(lengths) for lengths in arrays("sentences"))
    documents = sum(len(counts) for counts in arrays("documents"))
    sentence_path, document_path = (destination / f"{split}.{name}.npy" for name in ("sentences", "documents"))
    dtype = np.dtype(np.uint16 if longest < 1 << 16 else np.int32)
    _save(sentence_path, dtype, sentences, arrays("sentences"))
    _save(document_path, np.dtype(np.int64), documents + 1, _first_sentences(arrays("documents")))
    return {
        "documents": documents,
        "sentences": sentences,
        "tokens": sum(record["tokens"] for record in shards),
        "sentence_index": describe_file(sentence_path),
        "document_index": describe_file(document_path),
        "shards": shards,
    }


def _first_sentences(counts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the index of each document's first sentence and, last, the number of all sentences, from their `counts`."""
    total = 0
    yield np.zeros(1, np.int64)
    for array in counts:
        ends = total + np.cumsum(array, dtype=np.int64)
        yield ends
        total = int(ends[-1])


def _save(path: Path, dtype: np.dtype, length: int, arrays: Iterator[np.ndarray]) -> None:
    """Write several arrays, together (length,), to a .npy file, with only one of them in memory at a time.

    A memory map is not used, because it would stay in memory until flushed.
    """
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    with atomic.replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for array in arrays:
            array.astype(dtype).tofile(file)
