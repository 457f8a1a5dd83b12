"""Rows of one segment: consecutive sentences of a document, every token kept."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from bertzoo.data.pairs import Row


def single_rows(bounds: list[int], room: int, target: int, document: int) -> Iterator[Row]:
    """Fills rows with whole sentences until they hold `target` tokens, never more than `room`.

    `bounds` are the addresses at which the document's sentences begin, and its end. A sentence that is longer than the
    room is cut; what is left of it begins the next row.
    """
    start, end = bounds[0], bounds[-1]
    while start < end:
        first_after = bisect_right(bounds, start)  # the first sentence boundary behind the start
        fitting = bisect_right(bounds, start + room) - 1
        reaching = bisect_left(bounds, start + target)
        stop = bounds[min(fitting, reaching)] if fitting >= first_after else start + room
        yield start, 0, stop - start, 0, document, 0, 0, 0
        start = stop
