"""Tokens of paragraphs, sliding windows over them (BERT §4.2, run_squad.py), and the text at a window's positions."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.tasks.squad import Question


class Pieces(NamedTuple):
    """A paragraph's n tokens and w words; starts and ends are in characters of the text.

    ids: (n,), token ids.
    offsets: (n,2), each token's start and end.
    words: (w + 1,), index of each word's first token, and n.
    places: (w,2), each word's start and end.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    places: np.ndarray


class Window(NamedTuple):
    """One row: `[CLS] question [SEP]`, `size` tokens of the paragraph from token `first` on, and `[SEP]`.

    question: index of the question.
    context: position in the row at which the paragraph's tokens begin.
    number: the window's index among the paragraph's windows.
    owners: for each token of the whole paragraph, the `number` of the window with most context around it
    (`max_context`).
    start, end: positions in the row of the answer's first and last token, both 0 ([CLS]) if the answer is not in the
    window.
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
        """Number of tokens in the row, without padding."""
        return self.context + self.size + 1

    @property
    def best(self) -> np.ndarray:
        """For each paragraph token in this window, whether it has more context here than in any other: (size,) bool."""
        return self.owners[self.first : self.first + self.size] == self.number


@dataclass(frozen=True, eq=False, kw_only=True)
class Paragraphs:
    """Questions and the windows over their paragraphs.

    windows: in the order of the questions.
    pieces: {text of a paragraph: its tokens}.
    """

    questions: Sequence[Question]
    windows: list[Window]
    pieces: Mapping[str, Pieces]

    def text(self, row: int, start: int, end: int) -> str:
        """Return the paragraph's text at the positions `start` to `end` (included) of the window with index `row`."""
        return self.questions[self.windows[row].question].context[slice(*self.characters(row, start, end))]

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """Return the offsets in the paragraph at which `text(row, start, end)` begins and ends (exclusive)."""
        window = self.windows[row]
        context, shift = self.questions[window.question].context, window.first - window.context
        (first, _), (_, last) = self.pieces[context].offsets[[start + shift, end + shift]].tolist()
        return first, _after_marks(context, last)


def cut(pieces: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return (first token, number of tokens) of each window over a paragraph.

    pieces: number of tokens of the paragraph.
    room: maximum number of tokens of a window.
    stride: number of tokens from one window's start to the next one's.
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
    """Return, for each token of a paragraph, the index of the window in which it has most context, (pieces,).

    In a window of `size` tokens, a token with `left` tokens before it and `right` after it has the context
    min(left, right) + 0.01 · size. If several windows give a token equal context, the first window counts.

    parts: the windows, as `cut` returns them.
    pieces: number of tokens of the paragraph.
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
    """Return `end` moved past the combining marks that follow it in `text`, since tokens leave them out."""
    return next((i for i in range(end, len(text)) if not unicodedata.combining(text[i])), len(text))
