"""Make rows of one segment, or of two segments for next sentence (BERT) or sentence order prediction (ALBERT)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Literal

import numpy as np

from bertzoo.data.rng import SplitMix

RowFields = tuple[int, int, int, int, int, int, int, int]  # fields of pack.ROW, then the number of dropped tokens


def single_rows(bounds: list[int], room: int, target: int, document: int) -> Iterator[RowFields]:
    """Yield rows that take whole sentences until they have `target` tokens, never more than `room`; no token is lost.

    bounds: index of each sentence's first token in the token stream, and the document's end. A sentence longer than
    `room` is cut, and its rest begins the next row.
    """
    start, end = bounds[0], bounds[-1]
    while start < end:
        first_after = bisect_right(bounds, start)  # index of the first bound after start
        fitting = bisect_right(bounds, start + room) - 1
        reaching = bisect_left(bounds, start + target)
        stop = bounds[min(fitting, reaching)] if fitting >= first_after else start + room
        yield start, 0, stop - start, 0, document, 0, 0, 0
        start = stop


def pair_rows(
    bounds: list[int],
    room: int,
    target: int,
    document: int,
    sentence: Literal["nsp", "sop"],
    random: SplitMix,
    offsets: np.ndarray,
    documents: np.ndarray,
) -> Iterator[RowFields]:
    """Yield rows of two segments, A and B, of a document, as BERT's and ALBERT's create_instances_from_document does.

    bounds: index of each sentence's first token in the token stream, and the document's end.
    room: largest number of tokens of a pair; longer pairs are cut.
    offsets, documents: as in the split's SplitIndex.

    A pair gathers sentences until they have `target` tokens. A takes a random number of these sentences, B the rest.

    With "nsp", half of the pairs get another B (label 1), which starts at a random sentence of another document; the
    unused sentences begin the next pair. With "sop", A and B are swapped in half of the pairs (label 1). A pair with
    only one sentence always gets a random B (label 1).
    """
    count = len(bounds) - 1
    first = 0
    while first < count:
        stop = min(max(bisect_left(bounds, bounds[first] + target, first), first + 1), count)
        sentences = stop - first
        middle = first + (random.integer(1, sentences - 1) if sentences > 1 else 1)
        a_start, a_end = bounds[first], bounds[middle]
        alone = sentences == 1
        if alone or (sentence == "nsp" and random.random() < 0.5):
            b_start, b_end = _random_segment(document, target - (a_end - a_start), random, offsets, documents)
            label, first = 1, middle
        else:
            b_start, b_end, label, first = bounds[middle], bounds[stop], 0, stop
            if sentence == "sop" and random.random() < 0.5:
                a_start, a_end, b_start, b_end, label = b_start, b_end, a_start, a_end, 1
        dropped = a_end - a_start + b_end - b_start - room
        if dropped > 0:
            a_start, a_end, b_start, b_end = _truncate(a_start, a_end, b_start, b_end, dropped, random)
        fallback = int(alone and sentence == "sop")
        yield a_start, b_start, a_end - a_start, b_end - b_start, document, label, fallback, max(dropped, 0)


def _random_segment(
    document: int, length: int, random: SplitMix, offsets: np.ndarray, documents: np.ndarray
) -> tuple[int, int]:
    """Return the start and end, in the token stream, of a random segment of another document than `document`.

    The segment begins at a random sentence and holds whole sentences. It has at least `length` tokens unless its
    document ends first. If ten draws give no other document, the segment comes from `document` itself.
    """
    other = document
    for _ in range(10):
        other = random.integer(0, len(documents) - 2)
        if other != document:
            break
    end = int(documents[other + 1])
    first = random.integer(int(documents[other]), end - 1)
    start = int(offsets[first])
    stop = int(offsets[first + 1 : end + 1].searchsorted(start + length))
    return start, int(offsets[min(first + 1 + stop, end)])


def _truncate(
    a_start: int, a_end: int, b_start: int, b_end: int, dropped: int, random: SplitMix
) -> tuple[int, int, int, int]:
    """Drop `dropped` tokens from two segments, A and B, and return their new bounds.

    Each token is dropped from the segment that is longer at this point, or from B if they are equally long. It is the
    segment's first or last token with equal probability.
    """
    a_length, b_length = a_end - a_start, b_end - b_start
    difference = min(dropped, abs(a_length - b_length))
    rest = dropped - difference
    from_a = (difference if a_length > b_length else 0) + rest // 2
    from_b = dropped - from_a
    a_front, b_front = random.heads(from_a), random.heads(from_b)
    return a_start + a_front, a_end - (from_a - a_front), b_start + b_front, b_end - (from_b - b_front)
