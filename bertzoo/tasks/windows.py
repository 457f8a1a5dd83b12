"""Encode questions on long paragraphs as sliding windows of limited length (BERT §4.2, run_squad.py)."""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.tokenizers.tokenizer import Tokenizer
from bertzoo.tasks.rows import Rows, Slot, join_rows, padded
from bertzoo.tasks.squad import Question

_WORD = re.compile("[^ \t\r\n\u202f]+")  # a word: characters that are not spaces in BERT's code
_NO_IDS = np.zeros(0, np.int32)
_NOWHERE = (-1, -1)  # stands for "no answer" instead of the first and last token


class Pieces(NamedTuple):
    """A paragraph's n tokens and w words; starts and ends are in characters of the text.

    ids: (n,), token ids.
    offsets: (n,2), each token's start and end.
    words: (w + 1,), index of each word's first token, and n.
    spans: (w,2), each word's start and end.
    """

    ids: np.ndarray
    offsets: np.ndarray
    words: np.ndarray
    spans: np.ndarray


class Window(NamedTuple):
    """One row: `[CLS] question [SEP]`, `size` tokens of the paragraph from token `first` on, and `[SEP]`.

    question: index of the question.
    context: position in the row at which the paragraph's tokens begin.
    best: for each paragraph token in this window, whether it has more context here than in any other: (size,) bool.
    start, end: positions in the row of the answer's first and last token, both 0 ([CLS]) if the answer is not in the
    window.
    """

    question: int
    context: int
    first: int
    best: np.ndarray
    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of tokens in the row, without padding."""
        return self.context + self.size + 1

    @property
    def size(self) -> int:
        """Number of the paragraph's tokens in the row."""
        return len(self.best)


def cut(pieces: int, room: int, stride: int) -> list[tuple[int, np.ndarray]]:
    """Cut a paragraph of `pieces` tokens into windows of at most `room`, which start `stride` tokens apart.

    Return for each window its first token and, for each of its tokens, whether it has more context here than in any
    other window, (size,) bool. In a window of `size` tokens, a token with `left` tokens before it and `right` after it
    has the context min(left, right) + 0.01 · size. If several windows give a token equal context, the first one counts.
    """
    owners, highest = np.zeros(pieces, np.int32), np.full(pieces, -1.0)
    slices, first = [], 0
    while first < pieces:
        size = min(pieces - first, room)
        span, positions = slice(first, first + size), np.arange(size)
        context = np.minimum(positions, positions[::-1]) + 0.01 * size
        better = context > highest[span]
        owners[span][better] = len(slices)
        highest[span][better] = context[better]
        slices.append(span)
        if span.stop == pieces:
            break
        first += min(size, stride)
    return [(span.start, owners[span] == number) for number, span in enumerate(slices)]


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """Options for cutting paragraphs into windows `[CLS] question [SEP] text [SEP]`, `stride` tokens apart."""

    max_length: int = 384  # maximum number of tokens of a window
    stride: int = 128
    max_question: int = 64  # maximum number of tokens of a question; further tokens are dropped

    def __post_init__(self) -> None:
        check_range(self, "stride", "max_question", least=1, advice="Use 1 or more.")
        if self.max_length < self.max_question + 4:
            raise ConfigError(
                f"max_length = {self.max_length} leaves no room for the paragraph beside max_question = "
                f"{self.max_question} and the 3 special tokens. Raise max_length or lower max_question."
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Windows:
    """Questions and the windows over their paragraphs, encoded.

    windows: in the order of the questions.
    pieces: {text of a paragraph: its tokens}.
    rows: token ids of the windows, in the order of `windows`.
    cut: (Q,) bool, whether the question itself was cut.
    skipped: {reason: number of questions that have no window for this reason}.
    unknown: indices of the questions without a usable answer, whose windows have weight 0 in batches; None without
    labels.
    """

    questions: Sequence[Question]
    windows: list[Window]
    pieces: Mapping[str, Pieces]
    rows: Rows
    cut: np.ndarray
    skipped: Counter[str]
    unknown: frozenset[int] | None

    def text(self, row: int, start: int, end: int) -> str:
        """Return the paragraph's text at the positions `start` to `end` (included) of the window with index `row`."""
        return self.questions[self.windows[row].question].context[slice(*self.characters(row, start, end))]

    def characters(self, row: int, start: int, end: int) -> tuple[int, int]:
        """Return the offsets in the paragraph at which `text(row, start, end)` begins and ends (exclusive)."""
        window = self.windows[row]
        context, shift = self.questions[window.question].context, window.first - window.context
        (first, _), (_, last) = self.pieces[context].offsets[[start + shift, end + shift]].tolist()
        # Tokens leave out the combining marks that follow them.
        return first, next(
            (i for i in range(last, len(context)) if not unicodedata.combining(context[i])), len(context)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of the rows, the answers and the answers' positions, in hexadecimal."""
        answers = [(question.impossible, *(answer.text for answer in question.answers)) for question in self.questions]
        spans = [(window.question, window.start, window.end) for window in self.windows]
        return hashlib.sha256(json.dumps([self.rows.digest, answers, spans]).encode()).hexdigest()

    def batch(self, slot: Slot, batch_size: int) -> dict[str, np.ndarray]:
        """Return the arrays of `Rows.batch`. With labels, add the answers' positions `start` and `end`, (B,) int32, and
        `answerable` (B,) float32: whether the question has an answer, in this window or another.
        """
        batch = self.rows.batch(slot, batch_size)
        if self.unknown is not None:
            windows = [self.windows[row] for row in slot.rows]
            possible = [not self.questions[window.question].impossible for window in windows]
            batch["start"] = padded(np.array([window.start for window in windows], np.int32), batch_size)
            batch["end"] = padded(np.array([window.end for window in windows], np.int32), batch_size)
            batch["answerable"] = padded(np.array(possible, np.float32), batch_size)
            batch["row_weight"][: len(windows)] = [window.question not in self.unknown for window in windows]
        return batch

    def restore(
        self, slots: Sequence[Slot], outputs: Sequence[Mapping[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        """Return batches' outputs (B,...) as a dict per window, in order; raises ValueError if a window is missing."""
        positions = self.rows.restore(slots, [np.arange(len(slot.rows)) for slot in slots])
        batches = self.rows.restore(slots, [np.full(len(slot.rows), i) for i, slot in enumerate(slots)])
        return [
            {name: array[position] for name, array in outputs[batch].items()}
            for position, batch in zip(positions.tolist(), batches.tolist(), strict=True)
        ]


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    windowing: Windowing,
    labels: bool,
    every: bool = False,
    padding: int = 0,
) -> Windows:
    """Return questions encoded as windows.

    labels: whether windows have the answers' positions as targets.
    every: with labels, whether to keep questions without a usable answer, with weight 0. If not, they are skipped and
    counted.
    padding: as in Rows.

    With labels, raises UserError naming a question whose answer starts outside of the paragraph, or that has no answer
    and is not marked as impossible.
    """
    pieces = _pieces([question.context for question in questions], tokenizer)
    answers = _encode([_first_answer(q, tokenizer) for q in questions if q.answers], tokenizer) if labels else {}
    cls, sep = (np.array([special], np.int32) for special in (tokenizer.specials.cls, tokenizer.specials.sep))
    encoded = _encode([question.text for question in questions], tokenizer)
    heads = {text: np.concatenate([cls, ids[: windowing.max_question], sep]) for text, ids in encoded.items()}
    windows, ids, skipped, layouts, unknown = [], [], Counter(), {}, set()
    for index, question in enumerate(questions):
        paragraph, head = pieces[question.context], heads[question.text]
        ids_of_answer = answers[_first_answer(question, tokenizer)] if labels and question.answers else _NO_IDS
        span = align(question, paragraph, ids_of_answer) if labels else _NOWHERE
        if isinstance(span, str) and every:
            unknown.add(index)
            span = _NOWHERE
        elif isinstance(span, str):
            skipped[span] += 1
            continue
        context, count = len(head), len(paragraph.ids)
        if (context, count) not in layouts:
            layouts[context, count] = cut(count, windowing.max_length - context - 1, windowing.stride)
        if not layouts[context, count]:
            skipped["the paragraph has no token"] += 1
        for first, best in layouts[context, count]:
            inside = first <= span[0] and span[1] < first + len(best)
            start, end = (position - first + context if inside else 0 for position in span)
            windows.append(Window(index, context, first, best, start, end))
            ids.append(np.concatenate([head, paragraph.ids[first : first + len(best)], sep]))
    rows = join_rows(
        (questions[window.question].key for window in windows),
        ids,
        tokenizer,
        windowing.max_length,
        padding,
        middle=np.array([window.context for window in windows], np.int64),
        cut=np.array([w.size < len(pieces[questions[w.question].context].ids) for w in windows], bool),
    )
    return Windows(
        questions=questions,
        windows=windows,
        pieces=pieces,
        rows=rows,
        cut=np.array([len(encoded[question.text]) > windowing.max_question for question in questions], bool),
        skipped=skipped,
        unknown=frozenset(unknown) if labels else None,
    )


def align(question: Question, pieces: Pieces, ids: np.ndarray) -> tuple[int, int] | str:
    """Return the indices of the first and last token of a question's first answer, or the reason why it is unusable.

    As in BERT's code, the result spans every word that the answer overlaps. If the tokens of the answer's text occur
    within these words, the result spans only these tokens. An impossible question has (-1, -1).

    pieces: the paragraph's tokens.
    ids: token ids of the answer, (n,).
    """
    if question.impossible:
        return _NOWHERE
    if not question.answers:
        raise UserError(
            f"{question.location} has no answer, but is not marked is_impossible. Add an answer, or set is_impossible."
        )
    answer = question.answers[0]
    if answer.start is None:
        return "the answer is not in the paragraph"
    if not 0 <= answer.start < len(question.context):
        raise UserError(
            f"{question.location} has an answer at character {answer.start}, but the paragraph has "
            f"{len(question.context)} characters. Correct answer_start."
        )
    last = answer.start + len(answer.text) - 1
    if not (target := " ".join(answer.text.split())):
        return "the answer has no text"
    if last >= len(question.context):
        return "the answer ends beyond the paragraph"
    # A space belongs to the word before it.
    word, final = np.searchsorted(pieces.spans[:, 0], (answer.start, last), side="right").tolist()
    covered = " ".join(question.context[a:b] for a, b in pieces.spans[max(word - 1, 0) : final].tolist())
    if word == 0 or target.lower() not in covered.lower():
        return "the answer is not in the paragraph where it should start"
    start, end = int(pieces.words[word - 1]), int(pieces.words[final]) - 1
    if end < start:
        return "the answer has no token"
    if size := len(ids):
        for first in start + np.flatnonzero(pieces.ids[start : end + 2 - size] == ids[0]):
            if first + size <= end + 1 and np.array_equal(pieces.ids[first : first + size], ids):
                return int(first), int(first) + size - 1
    return start, end


def _first_answer(question: Question, tokenizer: Tokenizer) -> str:
    """Return what to encode for a question's first answer, which may follow a space in the paragraph."""
    answer = question.answers[0].text
    start = (question.answers[0].start or 0) + len(answer) - len(answer.lstrip())
    begins_word = start > 0 and not _WORD.fullmatch(question.context[start - 1 : start])
    return tokenizer.after_space(" ".join(answer.split())) if begins_word else " ".join(answer.split())


def _pieces(contexts: Sequence[str], tokenizer: Tokenizer) -> dict[str, Pieces]:
    """Return {paragraph: its tokens}. Words are encoded one by one, since BERT's code splits at spaces first."""

    def word(text: str, start: int, end: int) -> str:
        return tokenizer.after_space(text[start:end]) if start else text[start:end]

    word_spans = {text: [match.span() for match in _WORD.finditer(text)] for text in dict.fromkeys(contexts)}
    words = list(dict.fromkeys(word(text, a, b) for text, spans in word_spans.items() for a, b in spans))
    encoded = dict(zip(words, tokenizer.encode_offsets(words), strict=True))
    paragraphs = {}
    for text, spans in word_spans.items():
        pieces = [encoded[word(text, a, b)] for a, b in spans]
        counts = [len(ids) for ids, _ in pieces]
        begins = np.repeat(np.array([a for a, _ in spans], np.int32), counts)
        shifts = np.repeat(np.array([b - len(word(text, a, b)) for a, b in spans], np.int32), counts)
        offsets = np.concatenate([np.zeros((0, 2), np.int32), *(offsets for _, offsets in pieces)])
        paragraphs[text] = Pieces(
            np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in pieces)]),
            np.maximum(offsets + shifts[:, None], begins[:, None]),
            np.cumsum([0, *counts]),
            np.array(spans, np.int64).reshape(-1, 2),
        )
    return paragraphs


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    distinct = list(dict.fromkeys(texts))
    return dict(zip(distinct, tokenizer.encode_batch(distinct), strict=True))
