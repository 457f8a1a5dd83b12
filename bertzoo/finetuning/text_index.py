"""An index of texts: vectors as float32, int8 or bits, memory-mapped, and the texts nearest to a query.

A directory holds index.json (model, sizes), texts.jsonl, and the rows of numbers without a header: vectors.raw (N,E)
and, with bits, bits.raw (N,E/8).
"""

import json
import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import parse_json, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import model_name
from bertzoo.finetuning.embed import EmbeddingModel, Long, Precision, quantised, unit_vectors
from bertzoo.tasks import fields

_LOG = logging.getLogger(__name__)

_DESCRIPTION, _VECTORS, _BITS, _TEXTS = "index.json", "vectors.raw", "bits.raw", "texts.jsonl"
_FIELDS = {
    **{"version": Literal[2], "model": str, "vectors_sha256": str, "texts": int, "size": int},
    **{"precision": Precision, "prompt": str, "long": Long},
}
_ADVICE = "Build the index again."
_PART = 65_536  # vectors that are compared with the queries at once
_RESCORED = 10  # with bits: candidates for each result, which the int8 vectors order
_LEAST = 100  # least number of candidates
_QUERIES = 64  # queries that are compared at once


class Hit(NamedTuple):
    """A result of a search: the text, its number in the index, and the cosine of its vector and the query's."""

    row: int
    score: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Index:
    """An opened index. vectors: (N,E), float32 or int8. bits: (N,E/8) uint8, or None. lines: the texts as JSON, (N)."""

    directory: Path
    description: dict[str, Any]
    vectors: np.ndarray
    bits: np.ndarray | None
    lines: list[bytes]

    @property
    def size(self) -> int:
        """Number of dimensions of the vectors."""
        return int(self.description["size"])

    def text(self, row: int) -> str:
        """Return the text `row`; raises UserError if its line is damaged."""
        place = f"{self.directory / _TEXTS} line {row + 1}"
        try:
            return fields.text(parse_json(self.lines[row], str), place, "text")
        except ValueError as error:
            raise UserError(f"{place} is damaged ({error}). {_ADVICE}") from error

    def check_model(self, model: EmbeddingModel) -> None:
        """Raise UserError if another model made the index: other parameters, head or tokenizer."""
        if model.fingerprint != self.description["vectors_sha256"]:
            raise UserError(
                f"{model.path} is not the model of the index: its parameters, head and tokenizer have the SHA-256 "
                f"{model.fingerprint[:12]}…, those of the index's {self.description['model']} have "
                f"{self.description['vectors_sha256'][:12]}…. Use that model, or build the index again."
            )

    def search(self, queries: np.ndarray, top: int) -> list[list[Hit]]:
        """Return the `top` nearest texts of each query (Q,E), the nearest first; ties in the order of the index."""
        if queries.shape[1] != self.size:
            raise UserError(
                f"the queries have {queries.shape[1]} dimensions, but the vectors of the index have {self.size}. Use "
                "the model of the index."
            )
        unit = unit_vectors(queries)
        if self.bits is None:
            found = _nearest(unit, self.vectors, top)
        else:
            found = []
            candidates = _nearest(quantised(queries, "binary"), self.bits, max(_RESCORED * top, _LEAST))
            for query, (_, rows) in zip(unit, candidates, strict=True):
                rows = np.sort(rows)
                ((scores, best),) = _nearest(query[None], self.vectors[rows], top)
                found.append((scores, rows[best]))
        if not all(np.isfinite(scores).all() for scores, _ in found):
            raise UserError(f"a cosine of {self.directory / _VECTORS} and a query is not finite. {_ADVICE}")
        return [
            [Hit(int(row), float(score), self.text(row)) for score, row in zip(*hits, strict=True)] for hits in found
        ]


def _nearest(queries: np.ndarray, stored: np.ndarray, top: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (scores, rows) of the nearest vectors in `stored`, for each query, the nearest first.

    The score is the cosine, for queries of length 1, and of bits (uint8) minus the number of different bits.
    """
    bits = stored.dtype == np.uint8
    found = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
    for start in range(0, len(stored), _PART):
        part = stored[start : start + _PART]
        unit = part if bits else unit_vectors(part.astype(np.float32))
        for first in range(0, len(queries), _QUERIES):
            block = queries[first : first + _QUERIES]
            differing = (-np.bitwise_count(part ^ code).sum(1, dtype=np.int32) for code in block)
            for i, scores in enumerate(differing if bits else block @ unit.T, first):
                rows = _best(scores, top)
                scores, rows = np.append(found[i][0], scores[rows]), np.append(found[i][1], rows + start)
                best = _best(scores, top)
                found[i] = scores[best], rows[best]
    return found


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    """Return the indices of the `top` highest scores, the highest first; ties in their order, NaN first."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    least = np.partition(scores, -top)[-top] if top < len(scores) else -np.inf
    kept = np.flatnonzero(scores >= least)
    return kept[np.argsort(-scores[kept], kind="stable")[:top]]


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
) -> dict[str, Any]:
    """Embed texts and write their index into a new directory; return its description.

    precision: of the stored vectors; "binary" stores bits to find candidates, and int8 vectors to order them. The other
    options are those of `EmbeddingModel.parts`. Raises UserError without texts, or if the directory exists.
    """
    if not texts:
        raise UserError("there are no texts to index. Give at least one.")
    description = {
        "version": 2,
        "model": model_name(str(model.path)),
        "vectors_sha256": model.fingerprint,
        "texts": len(texts),
        "size": size or model.width,
        "precision": precision,
        "prompt": prompt,
        "long": long,
    }
    stored: Precision = "int8" if precision == "binary" else precision
    atomic.check_new_directory(destination)
    with atomic.new_directory(destination) as folder:
        done = longer = 0
        with ExitStack() as stack:
            vectors = stack.enter_context((folder / _VECTORS).open("wb"))
            bits = stack.enter_context((folder / _BITS).open("wb")) if precision == "binary" else None
            for part, cut in model.parts(texts, prompt=prompt, size=size, long=long, batch_size=batch_size):
                if not np.isfinite(part).all():
                    raise UserError(f"{model.path} gives a vector that is not finite. Use another model.")
                vectors.write(quantised(part, stored).tobytes())
                if bits is not None:
                    bits.write(quantised(part, "binary").tobytes())
                done, longer = done + len(part), longer + cut
                _LOG.info(f"{done:,} of {len(texts):,} texts embedded")
        with (folder / _TEXTS).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        (folder / _DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    if longer:
        state = "averaged over their pieces" if long == "average" else "cut"
        _LOG.info(f"{longer:,} texts have more than {model.max_length} tokens and were {state}")
    return description


def read_index(directory: Path) -> Index:
    """Open an index; raises UserError if a file is missing or damaged, or does not fit the others."""
    if not (directory / _DESCRIPTION).is_file():
        raise UserError(f"{directory} is no index: it has no {_DESCRIPTION}. Make one with `bertzoo search index`.")
    try:
        description = read_json(directory / _DESCRIPTION, _FIELDS)
    except (OSError, ValueError) as error:
        raise UserError(f"{directory / _DESCRIPTION} is damaged ({error}). {_ADVICE}") from error
    count, size, binary = description["texts"], description["size"], description["precision"] == "binary"
    if count < 1 or size < 1:
        raise UserError(f"{directory / _DESCRIPTION} has texts = {count} and size = {size}, not 1 or more. {_ADVICE}")
    stored = "int8" if binary else description["precision"]
    vectors = _map(directory / _VECTORS, (count, size), stored)
    bits = _map(directory / _BITS, (count, -(-size // 8)), "uint8") if binary else None
    texts = directory / _TEXTS
    lines = texts.read_bytes().split(b"\n") if texts.is_file() else []
    if len(lines) != count + 1 or lines[-1]:
        raise UserError(f"{texts} has not the {count:,} lines of the index. {_ADVICE}")
    return Index(directory=directory, description=description, vectors=vectors, bits=bits, lines=lines[:-1])


def _map(path: Path, shape: tuple[int, int], dtype: str) -> np.ndarray:
    """Map a file of an array's numbers; raises UserError if it is missing or has another size."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if not path.is_file() or path.stat().st_size != size:
        raise UserError(f"{path} is no file of {size:,} bytes. {_ADVICE}")
    return np.memmap(path, dtype, "r", shape=shape)
