"""Paragraphs as tokens, sliding windows over them (BERT §4.2, run_squad.py), and the text of a span."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.tasks.squad import Question


class Pieces(NamedTuple):
    """A paragraph's n tokens: ids (n,), their offsets (n,2) in the text, and of w words the first token (w + 1,) and
    the offsets (w,2).
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    places: np.ndarray


class Window(NamedTuple):
    """One row: `size` tokens of the paragraph from `first` on, at the position `context`, and `[SEP]`.

    question: index of the question; owners (n,): for every token of the paragraph the `number` of the window that gives
    it the most context; start, end: the answer's first and last position, both 0 ([CLS]) if it is not inside.
    """

    question: int
    context: int
    first: int
    size: int
    number: int
    owners: np.ndarray
    start: int
    end: int

    @property
    def length(self) -> int:
        """The row's length without padding."""
        return self.context + self.size + 1

    @property
    def best(self) -> np.ndarray:
        """(size,) bool: tokens that no other window of the question gives more context."""
        return self.owners[self.first : self.first + self.size] == self.number


@dataclass(frozen=True, eq=False, kw_only=True)
class Paragraphs:
    """Questions, the windows of their paragraphs in the questions' order, and the tokens of every paragraph by text."""

    questions: Sequence[Question]
    windows: list[Window]
    pieces: Mapping[str, Pieces]

    def text(self, row: int, start: int, end: int) -> str:
        """The paragraph's text behind the positions `start` to `end` of a row."""
        return self.questions[self.windows[row].question].context[slice(*self.characters(row, start, end))]

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """The offsets of that text in the paragraph."""
        window = self.windows[row]
        context, shift = self.questions[window.question].context, window.first - window.context
        (first, _), (_, last) = self.pieces[context].offsets[[start + shift, end + shift]].tolist()
        return first, _after_marks(context, last)


def cut(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first token, number of tokens) of every window; each token of the paragraph is in at least one."""
    parts = []
    first = 0
    while first < pieces:
        size = min(pieces - first, room)
        parts.append((first, size))
        if first + size == pieces:
            break
        first += min(size, stride)
    return parts


def max_context(parts: Sequence[tuple[int, int]], pieces: int) -> np.ndarray:
    """(pieces,): for each token the window that maximises min(left, right) + 0.01 · size; the first of equals."""
    owners, score = np.zeros(pieces, np.int32), np.full(pieces, -1.0)
    for number, (first, size) in enumerate(parts):
        places = np.arange(size)
        here = np.minimum(places, places[::-1]) + 0.01 * size
        better = here > score[first : first + size]
        owners[first : first + size][better] = number
        score[first : first + size][better] = here[better]
    return owners


def _after_marks(text: str, end: int) -> int:
    """The end after the combining marks from `end` on, which tokens leave out."""
    return next((i for i in range(end, len(text)) if not unicodedata.combining(text[i])), len(text))
