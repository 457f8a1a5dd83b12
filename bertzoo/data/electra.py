"""ELECTRA's rows: one or two segments of consecutive sentences, without a sentence label."""

from bisect import bisect_left
from collections.abc import Iterator

from bertzoo.data.pairs import RowFields
from bertzoo.data.rng import SplitMix

SHORTEST = 5  # tokens of the shortest row, [CLS] A [SEP] B [SEP]


def electra_rows(
    bounds: list[int], max_length: int, document: int, single_share: float, short_share: float, random: SplitMix
) -> Iterator[RowFields]:
    """Yield the rows of one document, following google-research/electra's build_pretraining_dataset.py.

    Every row gathers sentences until they have its target length: `max_length` tokens or a random number up to it.
    Segment A holds the sentences up to about half the target length, B the rest. Tokens that do not fit into
    `max_length` are cut off. Sentences keep their order. In ELECTRA's code, a short sentence may join A after B has
    begun.

    bounds: index of each sentence's first token in the token stream, and the document's end.
    single_share: share of the rows with only one segment, A.
    short_share: share of the rows with a random target length.
    """
    count = len(bounds) - 1
    first = 0
    while first < count:
        target = random.integer(SHORTEST, max_length) if random.random() < short_share else max_length
        stop = min(bisect_left(bounds, bounds[first] + target, first), count)
        middle = stop if random.random() < single_share else _middle(bounds, first, stop, (target - 3) // 2, random)
        start, split, end = bounds[first], bounds[middle], bounds[stop]
        a_length = min(split - start, max_length - 2)
        b_length = min(end - split, max(0, max_length - a_length - 3))
        yield start, split if b_length else 0, a_length, b_length, document, 0, 0, end - start - a_length - b_length
        first = stop


def _middle(bounds: list[int], first: int, stop: int, half: int, random: SplitMix) -> int:
    """Return the index of the first sentence of segment B; segment A begins with sentence `first`.

    A takes one sentence, then adds the next as long as the sum stays below `half` tokens. If A has fewer than `half`
    tokens at the end, it adds one more sentence with probability 1/2.

    bounds: as in `electra_rows`. stop: index of the sentence after the row's last one.
    """
    middle = first + 1  # A has at least one sentence
    while middle < stop and bounds[middle + 1] - bounds[first] < half:
        middle += 1
    if middle < stop and bounds[middle] - bounds[first] < half and random.random() < 0.5:
        middle += 1
    return middle
