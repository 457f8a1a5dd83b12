"""Paragraphs in pieces, the windows that slide over them (BERT §4.2, run_squad.py), and the text of what they hold."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.tasks.squad import Question


class Pieces(NamedTuple):
    """A paragraph in pieces: their ids (n,), offsets (n,2) in the text, and of every word the first piece (words + 1,)
    and the characters (words,2).
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    places: np.ndarray


class Window(NamedTuple):
    """One row: `size` pieces of the paragraph from `first` on, at the position `context`, and `[SEP]`.

    question: its index among the questions; owners (pieces,): for every piece of the paragraph the `number` of that
    window of the question which gives it the most context; start, end: the answer's first and last position, both 0
    ([CLS]) where it is not inside.
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
        """Of the row, without padding."""
        return self.context + self.size + 1

    @property
    def best(self) -> np.ndarray:
        """(size,) bool: the pieces that no other window of the question gives more context."""
        return self.owners[self.first : self.first + self.size] == self.number


@dataclass(frozen=True, eq=False, kw_only=True)
class Paragraphs:
    """Questions, the windows of their paragraphs in the questions' order, and by its text every paragraph in pieces."""

    questions: Sequence[Question]
    windows: list[Window]
    pieces: Mapping[str, Pieces]

    def text(self, row: int, start: int, end: int) -> str:
        """What the pieces from position `start` to `end` of a row stand for, as the paragraph has it."""
        return self.questions[self.windows[row].question].context[slice(*self.characters(row, start, end))]

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """Where that is in the paragraph: its first character, and the one after its last."""
        window = self.windows[row]
        context, shift = self.questions[window.question].context, window.first - window.context
        (first, _), (_, last) = self.pieces[context].offsets[[start + shift, end + shift]].tolist()
        return first, _after_marks(context, last)


def cut(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(first piece, number of pieces) of every window on a paragraph; each piece is in at least one."""
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
    """(pieces,): the window in which each piece has the most of min(left, right) + 0.01 · size, the first of equals."""
    owners, score = np.zeros(pieces, np.int32), np.full(pieces, -1.0)
    for number, (first, size) in enumerate(parts):
        places = np.arange(size)
        here = np.minimum(places, places[::-1]) + 0.01 * size
        better = here > score[first : first + size]
        owners[first : first + size][better] = number
        score[first : first + size][better] = here[better]
    return owners


def _after_marks(text: str, end: int) -> int:
    """Behind the accents that stand apart from `end` on, which pieces leave out."""
    return next((i for i in range(end, len(text)) if not unicodedata.combining(text[i])), len(text))
