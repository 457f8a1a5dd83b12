"""A model that embeds texts, and an index of texts: their vectors, memory-mapped, and the texts nearest to a query.

The index's directory holds index.json (model, sizes), texts.jsonl, and matrices without a header:
vectors.raw (N,E), as float32 or int8, and, with bits, bits.raw (N,E/8).
"""

import json
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from bertzoo.conversion.heads import vectors_digest
from bertzoo.core import atomic
from bertzoo.core.documents import parse_json, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import model_name
from bertzoo.finetuning.saved_model import SavedModel
from bertzoo.runs.runner import FlaxRunner, Runner
from bertzoo.tasks import fields
from bertzoo.tasks.rows import encode_pieces
from bertzoo.train import sharding

_LOG = logging.getLogger(__name__)

DOCUMENT, QUERY = ("document", "passage"), ("query",)  # names of prompts for a search
Precision = Literal["float32", "int8", "binary"]
Long = Literal["cut", "average"]
_CHUNK = 4096  # texts that are encoded at once
_LENGTHS = (16, 32, 64, 128, 256)  # row lengths in tokens, beside the longest


@dataclass(frozen=True, kw_only=True)
class EmbeddingModel(SavedModel):
    """A model that maps a text to a vector."""

    @property
    def width(self) -> int:
        """Number of dimensions of a vector."""
        return self.pretrained.head.width(self.pretrained.model)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model, its head and its tokenizer; the JSON of an exported file records that of its model."""
        if self.file is None:
            return vectors_digest(self.pretrained)
        if "vectors_sha256" not in self.pretrained.source:
            raise UserError(f"the JSON of {self.path} has no source.vectors_sha256. Convert the model again.")
        return str(self.pretrained.source["vectors_sha256"])

    def prompt(self, name: str | None, *usual: str) -> str:
        """Return the prompt `name` that the model records, to put before a text; raises UserError if there is none.

        Without a name, return the first of the prompts `usual` that the model records, or else its default prompt.
        """
        prompts = self.pretrained.source.get("prompts", {})
        if name is None:
            usual = (*usual, self.pretrained.source.get("default_prompt", ""))
            return next((prompts[name] for name in usual if name in prompts), "")
        if name not in prompts:
            advice = f"Use one of {', '.join(prompts)}." if prompts else "It records no prompts: leave the prompt out."
            raise UserError(f"{self.path} records no prompt {name!r}. {advice}")
        return prompts[name]

    def embed(
        self, texts: Sequence[str], *, prompt: str = "", size: int = 0, long: Long = "cut", batch_size: int = 0
    ) -> np.ndarray:
        """Return the vectors of texts, (N,E) float32. Arguments and errors are those of `batches`."""
        arrays = [array for array, _ in self.batches(texts, prompt=prompt, size=size, long=long, batch_size=batch_size)]
        return np.concatenate([np.zeros((0, size or self.width), np.float32), *arrays])

    def batches(
        self, texts: Sequence[str], *, prompt: str = "", size: int = 0, long: Long = "cut", batch_size: int = 0
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Yield the vectors of the next texts, (n,E) float32, and how many of these have more than `max_length` tokens.

        prompt: text to put before each text. size: number of first dimensions to return, of length 1 again if the
        model's vectors have; 0: all. long: treatment of a text with more than `max_length` tokens: "cut" embeds its
        beginning, "average" the mean of its pieces' vectors, weighted by their tokens. batch_size: as in `runner`; it
        does not change the vectors. Raises UserError for a wrong argument.
        """
        if not isinstance(size, int) or size < 0:
            raise UserError(f"size = {size!r} is no number of dimensions. Use 1 to {self.width}, or 0 for all.")
        if size > self.width:
            raise UserError(f"size = {size} is above the {self.width} dimensions of {self.path}. Use a smaller size.")
        if long not in get_args(Long):
            raise UserError(f"long = {long!r} is unknown. Use one of {', '.join(get_args(Long))}.")
        if not isinstance(batch_size, int) or batch_size < 0:
            raise UserError(
                f"batch_size = {batch_size!r} is no number of texts. Use 1 or more, or 0 for the usual one."
            )
        if batch_size and self.file is not None:
            raise UserError(
                f"batch_size = {batch_size} does not apply to {self.path}, which is an exported file. Leave it out."
            )
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise UserError(f"text {number} is {str(text)[:40]!r}, a {type(text).__name__}. Give a list of texts.")
            fields.text(text, f"text {number}", "text")  # raises for half of a surrogate pair
        runner = self._runner(batch_size)
        for start in range(0, len(texts), _CHUNK):
            batch = [prompt + text for text in texts[start : start + _CHUNK]]
            rows, owner = encode_pieces(batch, self.tokenizer, self.max_length, self.padding, whole=long == "average")
            slots, outputs = runner.run_all(rows)
            pieces = rows.restore(slots, [output["embedding"] for output in outputs])
            if len(owner) == len(batch):
                vectors = pieces
            else:
                vectors = np.zeros((len(batch), pieces.shape[1]), np.float64)
                weight = np.maximum(rows.lengths - 2, 1)  # an empty text has no token
                np.add.at(vectors, owner, pieces * weight[:, None])
                vectors /= np.bincount(owner, weight)[:, None]
            vectors = vectors[:, :size] if size else vectors
            if self.pretrained.head.normalise and vectors is not pieces:
                vectors = unit_vectors(vectors)
            yield vectors.astype(np.float32), len(np.unique(owner[rows.cut]))

    def _runner(self, batch_size: int) -> Runner:
        """Return the exported file, or a runner of the model whose row lengths fit any texts; keeps its programs."""
        if self.file is not None:
            return self.file
        size = batch_size or self.recipe.batch_size
        if size not in self._runners:
            module, params = self.module()
            predict = self.pretrained.head.objective(module).predict
            lengths = (*(length for length in _LENGTHS if length < self.max_length), self.max_length)
            self._runners[size] = FlaxRunner(predict, params, self.mesh or sharding.one_device(), size, lengths)
        return self._runners[size]

    @cached_property
    def _runners(self) -> dict[int, Runner]:
        return {}


def quantised(vectors: np.ndarray, precision: Precision) -> np.ndarray:
    """Return vectors (N,E) as "float32" (N,E), "int8" (N,E) or "binary", uint8 (N,E/8).

    int8: round(127 x / max|x|) for each vector, which changes its length alone; compare by the cosine. binary: one bit
    for each dimension, 1 if it is positive, the first in the highest bit; compare by the number of equal bits (the
    precisions "int8" and "ubinary" of sentence-transformers, the first with a scale for each vector). Raises UserError
    for another precision.
    """
    if precision not in get_args(Precision):
        raise UserError(f"precision = {precision!r} is unknown. Use one of {', '.join(get_args(Precision))}.")
    if precision == "int8":
        largest = np.abs(vectors).max(-1, keepdims=True)
        return np.round(127 * vectors / np.maximum(largest, np.finfo(np.float32).tiny)).astype(np.int8)
    return np.packbits(vectors > 0, axis=-1) if precision == "binary" else vectors.astype(np.float32)


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Divide vectors (…,E) by their norms; a zero vector remains zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


_DESCRIPTION, _VECTORS, _BITS, _TEXTS = "index.json", "vectors.raw", "bits.raw", "texts.jsonl"
_FIELDS = {
    **{"version": Literal[2], "model": str, "vectors_sha256": str, "texts": int, "size": int},
    **{"precision": Precision, "prompt": str, "long": Long},
}
_ADVICE = "Build the index again."
_COMPARED = 65_536  # vectors that are compared with the queries at once
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
        line = f"{self.directory / _TEXTS} line {row + 1}"
        try:
            return fields.text(parse_json(self.lines[row], str), line, "text")
        except ValueError as error:
            raise UserError(f"{line} is damaged ({error}). {_ADVICE}") from error

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
            nearest = nearest_vectors(unit, self.vectors, top)
        else:
            nearest = []
            candidates = nearest_vectors(quantised(queries, "binary"), self.bits, max(_RESCORED * top, _LEAST))
            for query, (_, rows) in zip(unit, candidates, strict=True):
                rows = np.sort(rows)
                ((scores, best),) = nearest_vectors(query[None], self.vectors[rows], top)
                nearest.append((scores, rows[best]))
        if not all(np.isfinite(scores).all() for scores, _ in nearest):
            raise UserError(f"a cosine of {self.directory / _VECTORS} and a query is not finite. {_ADVICE}")
        return [
            [Hit(int(row), float(score), self.text(row)) for score, row in zip(*hits, strict=True)] for hits in nearest
        ]


def nearest_vectors(queries: np.ndarray, stored: np.ndarray, top: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (scores, rows) of the nearest vectors in `stored`, for each query, the nearest first.

    The score is the cosine, for queries of length 1, and of bits (uint8) minus the number of different bits.
    """
    bits = stored.dtype == np.uint8
    nearest = [(np.zeros(0, np.float32), np.zeros(0, np.int64)) for _ in queries]
    for start in range(0, len(stored), _COMPARED):
        chunk = stored[start : start + _COMPARED]
        unit = chunk if bits else unit_vectors(chunk.astype(np.float32))
        for first in range(0, len(queries), _QUERIES):
            block = queries[first : first + _QUERIES]
            differing = (-np.bitwise_count(chunk ^ code).sum(1, dtype=np.int32) for code in block)
            for i, scores in enumerate(differing if bits else block @ unit.T, first):
                rows = _best(scores, top)
                scores, rows = np.append(nearest[i][0], scores[rows]), np.append(nearest[i][1], rows + start)
                best = _best(scores, top)
                nearest[i] = scores[best], rows[best]
    return nearest


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    """Return the indices of the `top` highest scores, the highest first; ties in their order, NaN first."""
    scores = np.where(np.isnan(scores), np.inf, scores)
    least = np.partition(scores, -top)[-top] if top < len(scores) else -np.inf
    best = np.flatnonzero(scores >= least)
    return best[np.argsort(-scores[best], kind="stable")[:top]]


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
    options are those of `EmbeddingModel.batches`. Raises UserError without texts, or if the directory exists.
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
        count = longer = 0
        with ExitStack() as stack:
            vectors = stack.enter_context((folder / _VECTORS).open("wb"))
            bits = stack.enter_context((folder / _BITS).open("wb")) if precision == "binary" else None
            for batch, cut in model.batches(texts, prompt=prompt, size=size, long=long, batch_size=batch_size):
                if not np.isfinite(batch).all():
                    raise UserError(f"{model.path} gives a vector that is not finite. Use another model.")
                vectors.write(quantised(batch, stored).tobytes())
                if bits is not None:
                    bits.write(quantised(batch, "binary").tobytes())
                count, longer = count + len(batch), longer + cut
                _LOG.info(f"{count:,} of {len(texts):,} texts embedded")
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
    description = read_json(directory / _DESCRIPTION, _FIELDS, _ADVICE)
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
