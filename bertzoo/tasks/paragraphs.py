"""Paragraphs as tokens, sliding windows over them (BERT §4.2, run_squad.py), and the text of a span."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.tasks.squad import Question


class Pieces(NamedTuple):
    """A paragraph's n tokens and w words. ids: (n,); offsets: (n,2), each token's start and end in the text; words:
    (w + 1,), each word's first token, and n; places: (w,2), each word's start and end in the text.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    places: np.ndarray


class Window(NamedTuple):
    """One row: the question, `size` tokens of the paragraph from token `first` on, and `[SEP]`.

    question: its index; context: position of these tokens in the row; number: the window's number in its
    paragraph; owners (n,): for every token of the paragraph, the `number` of the window with its maximum context;
    start, end: the answer's first and last position, both 0 ([CLS]) if it is not inside.
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
        """(size,) bool: whether each token has its maximum context in this window."""
        return self.owners[self.first : self.first + self.size] == self.number


@dataclass(frozen=True, eq=False, kw_only=True)
class Paragraphs:
    """Questions, the windows of their paragraphs in the same order, and the tokens (`pieces`) of each paragraph."""

    questions: Sequence[Question]
    windows: list[Window]
    pieces: Mapping[str, Pieces]

    def text(self, row: int, start: int, end: int) -> str:
        """The paragraph's text at the positions `start` to `end` (included) of a row."""
        return self.questions[self.windows[row].question].context[slice(*self.characters(row, start, end))]

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """The start and end, in the paragraph, of the text that `text` returns."""
        window = self.windows[row]
        context, shift = self.questions[window.question].context, window.first - window.context
        (first, _), (_, last) = self.pieces[context].offsets[[start + shift, end + shift]].tolist()
        return first, _after_marks(context, last)


def cut(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return (first token, number of tokens) of each window over a paragraph.

    pieces: tokens of the paragraph; room: most tokens of a window; stride: tokens between the starts of two windows.
    """
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
    """(pieces,): for each token the index of the part that maximises min(left, right) + 0.01 · size; the first on ties.

    parts: as `cut` returns them; pieces: tokens of the paragraph; left, right: tokens of the part beside the token.
    """
    owners, score = np.zeros(pieces, np.int32), np.full(pieces, -1.0)
    for number, (first, size) in enumerate(parts):
        places = np.arange(size)
        here = np.minimum(places, places[::-1]) + 0.01 * size
        better = here > score[first : first + size]
        owners[first : first + size][better] = number
        score[first : first + size][better] = here[better]
    return owners


def _after_marks(text: str, end: int) -> int:
    """Move `end` past the combining marks that follow it, which tokens leave out."""
    return next((i for i in range(end, len(text)) if not unicodedata.combining(text[i])), len(text))
