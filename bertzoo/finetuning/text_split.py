"""Texts of a split for a head that embeds them: batches of pairs to train on, and scores of the texts' vectors."""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertzoo.finetuning.scoring import Split
from bertzoo.heads.labels import TEACHER
from bertzoo.runs.runner import Outputs
from bertzoo.tasks import metrics
from bertzoo.tasks.rows import Slot, plan_batches

_TOP = 10  # results of a search that count for `mrr`
_QUERIES = 1024  # queries that are compared with all texts at once


@dataclass(frozen=True, kw_only=True)
class TextSplit(Split):
    """N examples of n texts each, of which T are distinct. `plan` and `batch` run over the distinct texts.

    texts: the distinct texts, (T); texts with equal tokens are one. rows: their tokens, (T). index: each example's
    texts as indices of `rows`, (N,n): a text, its partner, and hard negatives. similarity: of each example's first two
    texts, (N,); None without. teacher: a teacher's vectors of the distinct texts, (T,E); None without. sizes: further
    numbers of first dimensions to score.
    """

    texts: Sequence[str] = ()
    index: np.ndarray
    similarity: np.ndarray | None = None
    teacher: np.ndarray | None = None
    temperature: float = 0.05
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def summary(self) -> str:
        return super().summary.replace(" examples", f" examples, {len(self.rows):,} distinct texts", 1)

    @property
    def deciding(self) -> tuple[str, ...]:
        """Name of the metric that is the score: spearman of similarities, mrr of pairs, or the teacher's cosine."""
        if self.similarity is not None:
            return ("spearman",)
        return ("mrr",) if self.index.shape[1] > 1 else ("teacher_cosine",)

    @property
    def digest(self) -> str:
        """SHA-256 of the examples as the model reads them, in hexadecimal."""
        arrays = [self.index, *([] if self.similarity is None else [self.similarity])]
        return hashlib.sha256(self.rows.digest.encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()

    def predict(self, slots: Sequence[Slot], outputs: Sequence[Outputs]) -> np.ndarray:
        """Return the vectors of the distinct texts, (T,E)."""
        return self.rows.restore(slots, [output["embedding"] for output in outputs])

    def is_finite(self, vectors: np.ndarray) -> bool:
        return bool(np.isfinite(vectors).all())

    def scores(self, vectors: np.ndarray) -> dict[str, float]:
        """Return metrics by name, in points; those of shorter vectors end in their size. All are 0 if not finite.

        spearman: of cosine and similarity. mrr: mean reciprocal rank of an example's second text among those of all
        examples, by the cosine to the first; 0 beyond rank 10. accuracy: share of examples whose second text is first.
        teacher_cosine: mean cosine of a text's vector and the teacher's.
        """
        found: dict[str, float] = {}
        finite = self.is_finite(vectors)
        for size in (None, *self.sizes) if self.deciding != ("teacher_cosine",) else (None,):
            scores = self._scores(vectors[:, :size] if finite else np.ones_like(vectors[:, :1]))
            found |= {name if size is None else f"{name}_{size}": value * finite for name, value in scores.items()}
        return found

    def _scores(self, vectors: np.ndarray) -> dict[str, float]:
        if self.similarity is not None:
            return {"spearman": metrics.spearman(self._cosines(vectors), self.similarity)}
        if self.index.shape[1] == 1:
            return {"teacher_cosine": 100 * float(np.mean(self._to_teacher(vectors)))}
        ranks = np.concatenate([rank for rank, _ in self._searched(vectors)])
        return {
            "mrr": 100 * float(np.mean(np.where(ranks <= _TOP, 1 / ranks, 0))),
            "accuracy": 100 * float(np.mean(ranks == 1)),
        }

    def loss(self, vectors: np.ndarray, mean: float | None = None) -> float:
        """Return the loss of the vectors: squared error of the cosine, cross-entropy of the search, or 1 - cosine."""
        if not self.is_finite(vectors):
            return float("nan")
        if self.similarity is not None:
            return float(np.mean(np.square(self._cosines(vectors) - self.similarity)))
        if self.index.shape[1] == 1:
            return 1 - float(np.mean(self._to_teacher(vectors)))
        return float(np.mean(np.concatenate([loss for _, loss in self._searched(vectors)])))

    def distinct(self, vectors: np.ndarray) -> set[Any]:
        """Return the distinct vectors, rounded to 6 decimals."""
        return {row.tobytes() for row in np.round(vectors, 6) + 0.0}

    def _cosines(self, vectors: np.ndarray) -> np.ndarray:
        unit = unit_vectors(vectors)
        return np.sum(unit[self.index[:, 0]] * unit[self.index[:, 1]], axis=-1)

    def _to_teacher(self, vectors: np.ndarray) -> np.ndarray:
        assert self.teacher is not None
        return np.sum(unit_vectors(vectors) * unit_vectors(np.asarray(self.teacher, np.float64)), axis=-1)

    def _searched(self, vectors: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for a part of the examples, the rank of each second text among all, from 1, and its cross-entropy.

        Of texts with equal cosines, as of vectors of bits or of a collapsed model, each has the mean of their ranks.
        A text that is a partner of an equal first text, or the first text itself, is left out of the others.
        """
        unit, (first, second) = unit_vectors(vectors), self.index[:, :2].T
        candidates = np.unique(second)
        column = np.searchsorted(candidates, second)
        for start in range(0, len(first), _QUERIES):
            queries = first[start : start + _QUERIES]
            own = column[start : start + _QUERIES]
            cosines = unit[queries] @ unit[candidates].T
            right = cosines[np.arange(len(own)), own]
            for row, query in enumerate(queries):
                cosines[row, column[self._partners[query]]] = -np.inf
            cosines[candidates == queries[:, None]] = -np.inf
            cosines[np.arange(len(own)), own] = right
            scaled = cosines / self.temperature
            highest = scaled.max(1, keepdims=True)
            total = highest[:, 0] + np.log(np.exp(scaled - highest).sum(1))
            nearer, equal = ((compare(cosines, right[:, None])).sum(1) for compare in (np.greater, np.equal))
            yield nearer + (1 + equal) / 2, total - right / self.temperature

    @functools.cached_property
    def _partners(self) -> dict[int, list[int]]:
        """Examples by their first text."""
        found: dict[int, list[int]] = {}
        for example, text in enumerate(self.index[:, 0].tolist()):
            found.setdefault(text, []).append(example)
        return found


@dataclass(frozen=True, kw_only=True)
class TrainingTexts(TextSplit):
    """A split to train on: `plan` and `batch` run over the N examples."""

    def plan(self, batch_size: int, lengths: Sequence[int], seed: int | None = None, epoch: int = 0) -> list[Slot]:
        return plan_batches(self.rows.held[self.index].max(1), batch_size, lengths, seed, epoch)

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of `heads.embedding.EmbeddingObjective` for a planned batch, by name."""
        count, width = len(slot.rows), self.index.shape[1]
        texts = self.index[slot.rows]
        flat = self.rows.batch(Slot(texts.reshape(-1), slot.length), batch_size * width)
        batch = {name: array.reshape(batch_size, width, *array.shape[1:]) for name, array in flat.items()}
        batch["row_weight"] = batch["row_weight"][:, 0]
        batch["text_id"] = np.full((batch_size, width), -1, np.int32)
        batch["text_id"][:count] = texts
        if self.similarity is not None:
            batch["similarity"] = np.zeros(batch_size, np.float32)
            batch["similarity"][:count] = self.similarity[slot.rows]
        if self.teacher is not None:
            batch[TEACHER] = np.zeros((batch_size, width, self.teacher.shape[1]), np.float32)
            batch[TEACHER][:count] = self.teacher[texts.reshape(-1)].reshape(count, width, -1)
        return batch


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Divide vectors (…,E) by their norms; a zero vector stays."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(norms, np.finfo(np.float32).tiny)
