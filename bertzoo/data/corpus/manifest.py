"""The manifest of a tokenised corpus: written last, so that its presence means that the corpus is complete."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import shard
from bertzoo.data.corpus.shard import SPLITS, FileRecord, ShardRecord
from bertzoo.data.sources.mixture import Part
from bertzoo.data.tokenizers import tokenizer

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class SplitRecord:
    """One split as the manifest describes it."""

    documents: int
    sentences: int
    tokens: int
    sentence_index: FileRecord
    document_index: FileRecord
    shards: tuple[ShardRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of a corpus; `raw` is the whole of it as plain data."""

    hash: str
    settings: dict[str, Any]
    vocab_size: int
    tokenizer_sha256: str
    splits: dict[str, SplitRecord]
    raw: dict[str, Any]


def read(directory: Path) -> Manifest:
    """Reads and checks a manifest; raises CorpusError naming the file and what is wrong with it."""
    path = directory / NAME
    if not path.is_file():
        raise CorpusError(
            f"{path} does not exist: {directory} holds no complete tokenised corpus, run `bertzoo tokenize` to write it"
        )
    return parse(path.read_bytes(), str(path))


def parse(data: bytes, path: str) -> Manifest:
    """The manifest that the file `path` holds; raises CorpusError naming the file and what is wrong with it."""
    try:
        raw = json.loads(data.decode())
        if raw["settings"]["format"] != FORMAT:
            raise CorpusError(
                f"{path} has format {raw['settings']['format']}, this version reads {FORMAT}: tokenise the source again"
            )
        manifest = _parse(raw)
    except KeyError as error:
        raise CorpusError(f"{path} is damaged, it has no {error}: tokenise the source again") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise CorpusError(f"{path} is damaged ({error}): tokenise the source again") from error
    if manifest.hash != _hash(raw):
        raise CorpusError(f"{path} is damaged, its hash does not fit its contents: tokenise the source again")
    return manifest


def same(ours: dict[str, Any], written: bytes, place: str) -> None:
    """Raises CorpusError unless the settings.json of the corpus at `place` says what ours do."""
    try:
        theirs = json.loads(written.decode())
        found = differences(ours, theirs)
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorpusError(f"{place}/settings.json is damaged ({error}): delete {place} and tokenise again") from error
    if found:
        raise CorpusError(f"{place} holds another corpus ({'; '.join(found)}): choose another destination or delete it")


def differences(ours: dict[str, object], theirs: dict[str, object]) -> list[str]:
    """One line for every setting in which two corpora differ."""
    flat_ours, flat_theirs = _flatten(ours), _flatten(theirs)
    return [
        f"{name} is {flat_theirs.get(name)!r} there and {flat_ours.get(name)!r} here"
        for name in sorted(flat_ours.keys() | flat_theirs.keys())
        if flat_ours.get(name) != flat_theirs.get(name)
    ]


def _flatten(settings: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": leaf for inner, leaf in value.items()}
        else:
            flat[name] = value
    return flat


def _parse(raw: dict[str, Any]) -> Manifest:
    splits = {}
    for split in SPLITS:
        fields = {name: raw["splits"][split][name] for name in ("documents", "sentences", "tokens")}
        splits[split] = SplitRecord(
            **fields,
            sentence_index=FileRecord(**raw["splits"][split]["sentence_index"]),
            document_index=FileRecord(**raw["splits"][split]["document_index"]),
            shards=tuple(ShardRecord(**record) for record in raw["splits"][split]["shards"]),
        )
    return Manifest(
        hash=raw["hash"],
        settings=raw["settings"],
        vocab_size=raw["tokenizer"]["vocab_size"],
        tokenizer_sha256=raw["tokenizer"]["sha256"],
        splits=splits,
        raw=raw,
    )


def _hash(raw: dict[str, Any]) -> str:
    contents = {name: value for name, value in raw.items() if name != "hash"}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def finish(destination: Path, pieces: Path, count: int, settings: dict[str, Any], parts: Sequence[Part]) -> None:
    """Joins the indexes of finished pieces and writes the manifest; raises CorpusError when a split is empty."""
    sidecars = [json.loads((pieces / f"{index:05d}.json").read_text(encoding="utf-8")) for index in range(count)]
    dropped: Counter[str] = Counter()
    for sidecar in sidecars:
        dropped.update(sidecar["dropped"])
    kept = {split: [index for index, sidecar in enumerate(sidecars) if split in sidecar["shards"]] for split in SPLITS}
    said = ", ".join(f"{number} {reason}" for reason, number in sorted(dropped.items())) or "none"
    for split, indexes in kept.items():
        if not indexes:
            raise CorpusError(
                f"the {split} part of the corpus is empty (heldout = {settings['heldout']}, documents dropped: {said}):"
                " put blank lines between documents, or give more of them or another heldout share, and delete"
                f" {destination}"
            )
    splits = {split: _join(destination, pieces, split, indexes, sidecars) for split, indexes in kept.items()}
    directory = destination / "tokenizer"
    vocabulary = tokenizer.load(directory)
    description = {"vocab_size": vocabulary.vocab_size, "sha256": tokenizer.fingerprint(directory)}
    raw = {"settings": settings, "tokenizer": description, "splits": splits, "dropped": dict(dropped)}
    if len(parts) > 1:
        raw["parts"] = [_part(part, index, sidecars) for index, part in enumerate(parts)]
    raw = {"hash": _hash(raw), **raw}
    atomic.write_json(destination / NAME, raw)


def _part(part: Part, index: int, sidecars: list[dict[str, Any]]) -> dict[str, Any]:
    """What a part of a mixture gave, repetitions included."""
    own = [sidecar for sidecar in sidecars if sidecar["part"] == index]
    tokens = sum(shards["tokens"] for sidecar in own for shards in sidecar["shards"].values())
    documents = sum(sidecar["documents"] for sidecar in own)
    return {"source": part.source, "weight": part.weight, "documents": documents, "tokens": tokens}


def _join(
    destination: Path, pieces: Path, split: str, indexes: list[int], sidecars: list[dict[str, Any]]
) -> dict[str, Any]:
    shards = [sidecars[index]["shards"][split] for index in indexes]

    def parts(name: str) -> Iterator[np.ndarray]:
        return (np.load(pieces / f"{index:05d}.{split}.{name}.npy") for index in indexes)

    longest = max(int(part.max()) for part in parts("sentences"))
    sentences = sum(len(part) for part in parts("sentences"))
    documents = sum(len(part) for part in parts("documents"))
    sentence_path, document_path = (destination / f"{split}.{name}.npy" for name in ("sentences", "documents"))
    dtype = np.dtype(np.uint16 if longest < 1 << 16 else np.int32)
    _save(sentence_path, dtype, sentences, parts("sentences"))
    _save(document_path, np.dtype(np.int64), documents + 1, _first_sentences(parts("documents")))
    per_document: Counter[int] = Counter()
    for part in parts("documents"):
        per_document.update(
            dict(zip(*(array.tolist() for array in np.unique(_bin(part), return_counts=True)), strict=True))
        )
    return {
        "documents": documents,
        "sentences": sentences,
        "tokens": sum(record["tokens"] for record in shards),
        "sentences_per_document": {
            "mean": sentences / documents,
            "at_least": {str(k): per_document[k] for k in sorted(per_document)},
        },
        "sentence_index": shard.describe(sentence_path),
        "document_index": shard.describe(document_path),
        "shards": shards,
    }


def _bin(counts: np.ndarray) -> np.ndarray:
    """The largest power of two that is not above each count: the classes of the histogram."""
    return 2 ** np.floor(np.log2(counts)).astype(np.int64)


def _first_sentences(parts: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    total = 0
    yield np.zeros(1, np.int64)
    for part in parts:
        ends = total + np.cumsum(part, dtype=np.int64)
        yield ends
        total = int(ends[-1])


def _save(path: Path, dtype: np.dtype, length: int, parts: Iterator[np.ndarray]) -> None:
    """Writes an array piece by piece, which a memory-mapped one would hold as a whole until it is flushed."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (length,)}
    with atomic.replacing(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            part.astype(dtype).tofile(file)
