"""Choose answers from start and end scores in paragraph windows, as BERT (§4.2, §4.3, run_squad.py) and ELECTRA do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import UserError
from bertzoo.tasks.decision import softmax
from bertzoo.tasks.windows import Window, Windows

Output = Mapping[str, np.ndarray]
NEVER = 1e6  # null odds of a question without candidate answers; finite, since JSON has no infinity


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """Options for choosing answers from a model's scores.

    With `nulls` (SQuAD 2.0), a question gets no answer if its null odds, a score of "no answer", exceed `threshold`.
    BERT's null odds are the score of [CLS] minus the best answer's, with threshold 0. ELECTRA's null odds are an output
    of its joint head, with threshold -2.75.
    """

    candidates: int = 20  # maximum of starts per window, ends per window (joint head: per start), answers per question
    longest: int = 30  # maximum number of tokens of an answer
    nulls: bool = False
    threshold: float = 0.0

    def __post_init__(self) -> None:
        check_range(self, "candidates", "longest", least=1, advice="Use 1 or more, so that an answer remains.")
        check_range(self, "threshold", advice="Use a number such as 0.")


class Candidate(NamedTuple):
    """A possible answer to a question.

    text: the answer; empty for "no answer".
    start, end: scores of the answer's first and last token; candidates are ranked by the sum of both.
    probability: softmax of these sums over the question's candidates.
    at: offset of the answer's first character in the paragraph; None for "no answer".
    """

    text: str
    start: float
    end: float
    probability: float
    at: int | None = None


class Answered(NamedTuple):
    """The answer to a question.

    key: id of the question.
    text: the answer; empty for "no answer".
    best: text of the best candidate other than "no answer", even if `text` is empty; empty if there is none.
    null_odds: score of "no answer"; None without `Decoding.nulls`.
    candidates: possible answers, best first.
    """

    key: str
    text: str
    best: str
    null_odds: float | None
    candidates: list[Candidate]

    @property
    def selected(self) -> Candidate | None:
        """The candidate whose text is the answer, or None."""
        return next((candidate for candidate in self.candidates if candidate.text == self.text), None)


class Pairs(NamedTuple):
    """N possible answers in one window.

    row: index of the window.
    starts, ends: positions in the row of each answer's first and last token, (N,).
    start_scores, end_scores: scores of these positions, (N,).
    null: the window's score of "no answer".
    null_pair: start logit and end logit of [CLS], which sum to `null`; None for a joint head.
    """

    row: int
    starts: np.ndarray
    ends: np.ndarray
    start_scores: np.ndarray
    end_scores: np.ndarray
    null: float
    null_pair: tuple[float, float] | None


def decode(windows: Windows, outputs: Sequence[Output], decoding: Decoding) -> list[Answered]:
    """Return the answers to `windows.questions`, in order, from a model's output for every window.

    An output has `start_logits` and `end_logits` (L,). A joint head's output has instead:
    starts, start_scores: K start positions and their scores, (K,).
    ends, end_scores: M end positions for each start and their scores, (K,M).
    null_score: score of "no answer", ().

    A question without a window gets an empty answer. Raises UserError if an output is not finite.
    """
    by_question: list[list[Pairs]] = [[] for _ in windows.questions]
    for row, (window, output) in enumerate(zip(windows.windows, outputs, strict=True)):
        if not all(np.all(np.isfinite(array)) for array in output.values()):
            raise UserError(
                f"the model's output for {windows.questions[window.question].location} is not finite. Use a checkpoint "
                "from before training diverged."
            )
        by_question[window.question].append(_possible(row, window, output, decoding))
    return [
        _answer(question.key, pairs, windows, decoding)
        for question, pairs in zip(windows.questions, by_question, strict=True)
    ]


def _possible(row: int, window: Window, output: Output, decoding: Decoding) -> Pairs:
    """Return a window's possible answers.

    They are a joint head's `starts`, each with the `ends` for that start, or else every pair of a start and an end
    among those with the highest logits. An answer is impossible if it is not inside the paragraph, ends before it
    starts, has over `decoding.longest` tokens, or starts at a token that has more context in another window
    (`Window.best`).
    """
    most = decoding.candidates
    if "starts" in output:
        ends, end_scores = (output[name][:most, :most] for name in ("ends", "end_scores"))
        starts, start_scores = (np.repeat(output[name][:most], ends.shape[1]) for name in ("starts", "start_scores"))
        ends, scores = ends.ravel(), (start_scores.astype(np.float64), end_scores.ravel().astype(np.float64))
        null, null_pair = float(output["null_score"]), None
    else:
        start, end = (output[name][: window.length].astype(np.float64) for name in ("start_logits", "end_logits"))
        firsts, lasts = (np.argsort(-scores, kind="stable")[:most] for scores in (start, end))
        starts, ends = np.repeat(firsts, len(lasts)), np.tile(lasts, len(firsts))
        scores, null_pair = (start[starts], end[ends]), (float(start[0]), float(end[0]))
        null = sum(null_pair)
    first, last = starts - window.context, ends - window.context
    inside = (first >= 0) & (first <= last) & (last < window.size) & (last - first < decoding.longest)
    inside[inside] = window.best[first[inside]]
    starts, ends, first_scores, last_scores = (array[inside] for array in (starts, ends, *scores))
    return Pairs(row, starts, ends, first_scores, last_scores, null, null_pair)


def _answer(key: str, by_window: list[Pairs], windows: Windows, decoding: Decoding) -> Answered:
    ranked = _ranked(by_window, windows, decoding)
    best = next((candidate for candidate in ranked if candidate.text), None)
    text = best.text if best else ""
    if not decoding.nulls:
        return Answered(key, text, text, None, ranked)
    odds = NEVER
    if best and (null := _null(by_window)).null_pair is None:
        odds = null.null
    elif best:
        odds = null.null - best.start - best.end
    return Answered(key, "" if odds > decoding.threshold else text, text, odds, ranked)


def _null(by_window: list[Pairs]) -> Pairs:
    """Return the Pairs of the window whose score of "no answer" is lowest; of equal windows, the first."""
    return min(by_window, key=lambda pairs: pairs.null)


def _ranked(by_window: list[Pairs], windows: Windows, decoding: Decoding) -> list[Candidate]:
    """Return a question's best candidates with distinct texts, best first, from the Pairs of its windows.

    With `decoding.nulls` and without a joint head, "no answer" (an empty text) is always among them.
    """
    if not by_window:
        return []
    ranked: dict[str, tuple[float, float, int | None]] = {}
    rows, *columns = (
        np.concatenate(column)
        for column in zip(*([np.full(len(p.starts), p.row), *p[1:5]] for p in by_window), strict=True)
    )
    pair = _null(by_window).null_pair if decoding.nulls else None
    if pair is not None:  # "no answer" comes last, so that an answer of equal score ranks above it
        rows = np.append(rows, -1)
        columns = [np.append(column, value) for column, value in zip(columns, (0, 0, *pair), strict=True)]
    starts, ends, start_scores, end_scores = columns
    for index in np.argsort(-(start_scores + end_scores), kind="stable").tolist():
        if len(ranked) == decoding.candidates:
            break
        row, span = int(rows[index]), (int(starts[index]), int(ends[index]))
        text = windows.text(row, *span) if row >= 0 else ""
        if text or row < 0:  # the text is empty if the tokens cover no characters
            at = windows.characters(row, *span)[0] if text else None
            ranked.setdefault(text, (float(start_scores[index]), float(end_scores[index]), at))
    if pair is not None:
        ranked.setdefault("", (*pair, None))
    shares = softmax(np.array([start + end for start, end, _ in ranked.values()])).tolist() if ranked else []
    return [
        Candidate(text, start, end, share, at)
        for (text, (start, end, at)), share in zip(ranked.items(), shares, strict=True)
    ]
