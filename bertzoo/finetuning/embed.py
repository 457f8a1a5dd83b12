"""A model that embeds texts: vectors of texts, and scores on pairs and similarities."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from bertzoo.conversion.heads import vectors_digest
from bertzoo.core.errors import UserError
from bertzoo.finetuning.saved_model import SavedModel, one_device
from bertzoo.runs.runner import FlaxRunner, Runner
from bertzoo.tasks import fields
from bertzoo.tasks.rows import encode_pieces

DOCUMENT, QUERY = ("document", "passage"), ("query",)  # names of prompts for a search
Precision = Literal["float32", "int8", "binary"]
Long = Literal["cut", "average"]
_PART = 4096  # texts that are encoded at once
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
        """SHA-256 of all that decides the vectors; a file's is that of its model, which its JSON records."""
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
            known = f"Use one of {', '.join(prompts)}." if prompts else "It records no prompts: leave the prompt out."
            raise UserError(f"{self.path} records no prompt {name!r}. {known}")
        return prompts[name]

    def embed(
        self, texts: Sequence[str], *, prompt: str = "", size: int = 0, long: Long = "cut", batch_size: int = 0
    ) -> np.ndarray:
        """Return the vectors of texts, (N,E) float32. Arguments and errors are those of `parts`."""
        parts = [part for part, _ in self.parts(texts, prompt=prompt, size=size, long=long, batch_size=batch_size)]
        return np.concatenate([np.zeros((0, size or self.width), np.float32), *parts])

    def parts(
        self, texts: Sequence[str], *, prompt: str = "", size: int = 0, long: Long = "cut", batch_size: int = 0
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Yield the vectors of the next texts, (n,E) float32, and how many of these have more tokens than a row.

        prompt: text to put before each text. size: number of first dimensions to return, of length 1 again if the
        model's vectors have; 0: all. long: what becomes of a text with more than `max_length` tokens: "cut" embeds its
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
        for start in range(0, len(texts), _PART):
            batch = [prompt + text for text in texts[start : start + _PART]]
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
            self._runners[size] = FlaxRunner(predict, params, self.mesh or one_device(), size, lengths)
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
    """Divide vectors (…,E) by their norms; a zero vector stays."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)
