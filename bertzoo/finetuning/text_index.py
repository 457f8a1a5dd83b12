"""An index of texts: vectors as float32, int8 or bits, memory-mapped, and the texts nearest to a query.

A directory holds index.json (model, sizes), vectors.npy (N,E), with bits also bits.npy (N,E/8), and texts.jsonl.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import parse_json, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import model_name
from bertzoo.finetuning.embed import EmbeddingModel, Long, Precision, quantised

_DESCRIPTION, _VECTORS, _BITS, _TEXTS = "index.json", "vectors.npy", "bits.npy", "texts.jsonl"
_FIELDS = {"version": int, "model": str, "parameters_sha256": str, "texts": int, "size": int, "precision": str}
_PART = 65_536  # vectors that are compared with the queries at once
_RESCORED = 10  # with bits: candidates for each result, which the int8 vectors order
_LEAST = 100  # least number of candidates

Say = Callable[[str], None]


class Hit(NamedTuple):
    """A result of a search: the text, its number in the index, and the cosine of its vector and the query's."""

    row: int
    score: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Index:
    """An opened index. vectors: (N,E), float32 or int8. bits: (N,E/8) uint8, or None. texts: the N texts."""

    description: dict[str, Any]
    vectors: np.ndarray
    bits: np.ndarray | None
    texts: list[str]

    @property
    def size(self) -> int:
        """Number of dimensions of the vectors."""
        return int(self.description["size"])

    def check_model(self, model: EmbeddingModel) -> None:
        """Raise UserError if the index was made with other parameters than the model's."""
        if model.fingerprint != self.description["parameters_sha256"]:
            raise UserError(
                f"{model.path} is not the model of the index: its parameters have the SHA-256 "
                f"{model.fingerprint[:12]}…, those of the index's {self.description['model']} have "
                f"{self.description['parameters_sha256'][:12]}…. Use that model, or build the index again."
            )

    def search(self, queries: np.ndarray, top: int) -> list[list[Hit]]:
        """Return the `top` nearest texts of each query (Q,E), the nearest first; ties in the order of the index."""
        if queries.shape[1] != self.size:
            raise UserError(
                f"the queries have {queries.shape[1]} dimensions, but the vectors of the index have {self.size}. Use "
                "the model of the index."
            )
        unit = _unit(queries)
        rows = None if self.bits is None else self._nearest_bits(queries, max(_RESCORED * top, _LEAST))
        found = [
            self._nearest(query[None], top, None if rows is None else np.sort(rows[i])) for i, query in enumerate(unit)
        ]
        return [[Hit(int(row), float(score), self.texts[row]) for score, row in hits] for hits in found]

    def _nearest(self, query: np.ndarray, top: int, rows: np.ndarray | None) -> list[tuple[float, int]]:
        """Return (cosine, row) of the nearest vectors among `rows`, by default all."""
        best: list[tuple[float, int]] = []
        count = len(self.vectors) if rows is None else len(rows)
        for start in range(0, count, _PART):
            part = np.arange(start, min(start + _PART, count)) if rows is None else rows[start : start + _PART]
            scores = (_unit(self.vectors[part].astype(np.float32)) @ query.T)[:, 0]
            order = np.argsort(-scores, kind="stable")[:top]
            best = sorted([*best, *zip(scores[order].tolist(), part[order].tolist(), strict=True)], key=_rank)[:top]
        return best

    def _nearest_bits(self, queries: np.ndarray, top: int) -> np.ndarray:
        """Return the rows of the vectors with the most bits equal to each query's, (Q, at most top)."""
        assert self.bits is not None
        codes = quantised(queries, "binary")
        found = []
        for code in codes:
            different = np.concatenate(
                [
                    np.bitwise_count(self.bits[start : start + _PART] ^ code).sum(1, dtype=np.int32)
                    for start in range(0, len(self.bits), _PART)
                ]
            )
            found.append(np.argsort(different, kind="stable")[:top])
        return np.array(found)


def _rank(hit: tuple[float, int]) -> tuple[float, int]:
    return -hit[0], hit[1]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)


def build_index(
    model: EmbeddingModel,
    texts: Sequence[str],
    destination: Path,
    *,
    precision: Precision = "int8",
    size: int = 0,
    prompt: str = "",
    long: Long = "average",
    batch_size: int = 0,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Embed texts and write their index into a new directory; return its description.

    precision: of the stored vectors; "binary" stores bits to find candidates, and int8 vectors to order them. The other
    options are those of `EmbeddingModel.parts`. Raises UserError without texts, or if the directory exists.
    """
    if not texts:
        raise UserError("there are no texts to index. Give at least one.")
    width = size or model.width
    description = {
        "version": 1,
        "model": model_name(str(model.path)),
        "parameters_sha256": model.fingerprint,
        "texts": len(texts),
        "size": width,
        "precision": precision,
        "prompt": prompt,
        "long": long,
    }
    stored: Precision = "int8" if precision == "binary" else precision
    atomic.check_new_directory(destination)
    with atomic.new_directory(destination) as folder:
        vectors = _new_array(folder / _VECTORS, (len(texts), width), np.dtype(stored))
        bits = (
            _new_array(folder / _BITS, (len(texts), -(-width // 8)), np.dtype(np.uint8))
            if precision == "binary"
            else None
        )
        done = longer = 0
        for part, cut in model.parts(texts, prompt=prompt, size=size, long=long, batch_size=batch_size):
            vectors[done : done + len(part)] = quantised(part, stored)
            if bits is not None:
                bits[done : done + len(part)] = quantised(part, "binary")
            done, longer = done + len(part), longer + cut
            say(f"{done:,} of {len(texts):,} texts embedded")
        del vectors, bits
        with (folder / _TEXTS).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        (folder / _DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    if longer:
        state = "averaged over their pieces" if long == "average" else "cut"
        say(f"{longer:,} texts have more than {model.max_length} tokens and were {state}")
    return description


def _new_array(file: Path, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    return np.lib.format.open_memmap(file, "w+", dtype, shape)


def read_index(directory: Path) -> Index:
    """Open an index; raises UserError if a file is missing or damaged, or does not fit the others."""
    if not (directory / _DESCRIPTION).is_file():
        raise UserError(f"{directory} is no index: it has no {_DESCRIPTION}. Make one with `bertzoo search index`.")
    advice = "Build the index again."
    try:
        description = read_json(directory / _DESCRIPTION, _FIELDS | {"prompt": str, "long": str})
    except ValueError as error:
        raise UserError(f"{directory / _DESCRIPTION} is damaged ({error}). {advice}") from error
    if description["version"] != 1 or description["precision"] not in ("float32", "int8", "binary"):
        raise UserError(
            f"{directory / _DESCRIPTION} has version = {description['version']} and precision = "
            f"{description['precision']}, which this bertzoo does not know. {advice}"
        )
    count, size, binary = description["texts"], description["size"], description["precision"] == "binary"
    stored = "int8" if binary else description["precision"]
    vectors = _read_array(directory / _VECTORS, (count, size), stored)
    bits = _read_array(directory / _BITS, (count, -(-size // 8)), "uint8") if binary else None
    try:
        lines = (directory / _TEXTS).read_text(encoding="utf-8").split("\n")  # a text may hold other line breaks
        texts = [parse_json(line, str) for line in lines[:-1]]
    except (OSError, ValueError) as error:
        raise UserError(f"{directory / _TEXTS} is missing or damaged ({error}). {advice}") from error
    if len(texts) != count:
        raise UserError(f"{directory / _TEXTS} has {len(texts)} texts, not {count}. {advice}")
    return Index(description=description, vectors=vectors, bits=bits, texts=texts)


def _read_array(file: Path, shape: tuple[int, int], dtype: str) -> np.ndarray:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} is missing or damaged ({error}). Build the index again.") from error
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise UserError(
            f"{file} holds {array.dtype} of shape {array.shape}, not {dtype} of shape {shape}. Build the index again."
        )
    return array
