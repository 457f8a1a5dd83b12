"""Plan which sentences fill each training row. A plan depends on corpus, split, packing, objective, length and seed.

A row is a sequence: one or two ranges of the split's flat token stream. Sentence pairs follow BERT's (google-research/
bert create_pretraining_data.py: next sentence prediction) or ALBERT's (google-research/albert: sentence order).
Rows without pairs are consecutive sentences of one document (RoBERTa's DOC-SENTENCES, Liu et al. 2019, section 4.2).
ELECTRA's rows have one or two segments and no label.
"""

import contextlib
import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.config import check_range
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus.reader import Corpus, Split, SplitIndex
from bertzoo.data.rng import SplitMix, fold

RowFields = tuple[int, int, int, int, int, int, int]  # fields of ROW
SHORTEST = 5  # tokens of the shortest row, [CLS] A [SEP] B [SEP]
Sentence = Literal["none", "nsp", "sop"]
ROW = np.dtype(
    [
        ("a_start", "<i8"),
        ("b_start", "<i8"),
        ("a_length", "<i4"),
        ("b_length", "<i4"),
        ("document", "<i4"),
        ("label", "i1"),
        ("fallback", "i1"),
    ]
)
_FORMAT = 1  # in the key of saved plans; raise it when new code changes the rows


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
        yield start, 0, stop - start, 0, document, 0, 0
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
        yield a_start, b_start, a_end - a_start, b_end - b_start, document, label, fallback


def _random_segment(
    document: int, length: int, random: SplitMix, offsets: np.ndarray, documents: np.ndarray
) -> tuple[int, int]:
    """Return the start and end, in the token stream, of a random segment of another document than `document`.

    The segment begins at a random sentence and holds whole sentences. It has at least `length` tokens unless its
    document ends first. If ten draws all choose `document`, the segment comes from `document` itself.
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


def electra_rows(
    bounds: list[int], max_length: int, document: int, single_share: float, short_share: float, random: SplitMix
) -> Iterator[RowFields]:
    """Yield the rows of one document, following google-research/electra's build_pretraining_dataset.py.

    Every row gathers sentences until they have its target length: `max_length` tokens or a random number up to it.
    Segment A holds at least one sentence, and more while their sum stays below half the target length; if A is still
    below half, it takes one more with probability 1/2. B holds the rest. Tokens that do not fit into `max_length` are
    cut off. Sentences keep their order. In ELECTRA's code, a short sentence may join A after B has begun.

    bounds: index of each sentence's first token in the token stream, and the document's end.
    single_share: share of the rows with only one segment, A.
    short_share: share of the rows with a random target length.
    """
    count = len(bounds) - 1
    first = 0
    while first < count:
        target = random.integer(SHORTEST, max_length) if random.random() < short_share else max_length
        stop = min(bisect_left(bounds, bounds[first] + target, first), count)
        middle = stop
        if random.random() >= single_share:
            middle, half = first + 1, (target - 3) // 2  # A has at least one sentence
            while middle < stop and bounds[middle + 1] - bounds[first] < half:
                middle += 1
            if middle < stop and bounds[middle] - bounds[first] < half and random.random() < 0.5:
                middle += 1
        start, split, end = bounds[first], bounds[middle], bounds[stop]
        a_length = min(split - start, max_length - 2)
        b_length = min(end - split, max(0, max_length - a_length - 3))
        yield start, split if b_length else 0, a_length, b_length, document, 0, 0
        first = stop


@dataclass(frozen=True, kw_only=True)
class SentencePacking:
    """Rows of whole sentences, with a sentence label if the objective needs it; defaults as in BERT."""

    kind: Literal["sentences"] = "sentences"
    short_share: float = 0.1  # share of the documents (per pass) that are packed to a random shorter length
    passes: int = 1  # how often every document is packed, each time with new randomness (BERT's dupe_factor)

    def __post_init__(self) -> None:
        check_range(self, "short_share", least=0, most=1, advice="Use a share in that range.")
        check_range(self, "passes", least=1, advice="Use 1 or more.")

    def shortest(self, sentence: Sentence) -> int:
        """Return the fewest tokens that a row can have: the special tokens and one token for each segment."""
        return SHORTEST if sentence != "none" else 3


@dataclass(frozen=True, kw_only=True)
class ElectraPacking:
    """ELECTRA's rows: one or two segments, without a label."""

    kind: Literal["electra"] = "electra"
    single_share: float = 0.1  # share of the rows with one segment, as in tasks on single texts
    short_share: float = 0.05  # share of the rows with a random shorter length
    passes: int = 1  # how often every document is packed, each time with new randomness

    def __post_init__(self) -> None:
        check_range(self, "single_share", "short_share", least=0, most=1, advice="Use a share in that range.")
        check_range(self, "passes", least=1, advice="Use 1 or more.")

    def shortest(self, sentence: Sentence) -> int:
        """Return the fewest tokens that a row can have; raises ConfigError unless `sentence` is "none"."""
        if sentence != "none":
            raise ConfigError(
                f'packing.kind = "electra" has no labels for sentence = "{sentence}". Use kind = "sentences".'
            )
        return SHORTEST


Packing = SentencePacking | ElectraPacking


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    rows: np.ndarray  # (R,) of dtype ROW
    sentence: Sentence
    max_length: int

    @property
    def warning(self) -> str:
        """A warning to the user if over 10 % of the rows for sentence order prediction hold one sentence, or ""."""
        share = float(np.mean(self.rows["fallback"])) if self.sentence == "sop" else 0.0
        if share <= 0.1:
            return ""
        return (
            f"{share:.0%} of the rows of {self.max_length} tokens hold one sentence, so their"
            " second segment comes from a random document instead of their own. Use longer rows, join paragraphs into"
            " longer documents, or set --objective.sentence=none."
        )


def plan_rows(
    corpus: Corpus, split: Split, packing: Packing, *, sentence: Sentence, max_length: int, seed: int, directory: Path
) -> RowPlan:
    """Return the rows of a split: computed and saved in `directory`, or memory-mapped if it already holds them.

    Raises CorpusError if the split has too few documents for sentence pairs, ConfigError if no row fits max_length.
    """
    if max_length < packing.shortest(sentence):
        raise ConfigError(
            f"max_length = {max_length} leaves no room for text beside the special tokens. Use a larger max_length."
        )
    key = {
        "format": _FORMAT,
        "corpus": corpus.hash,
        "split": split,
        "packing": asdict(packing),
        "sentence": sentence,
        "max_length": max_length,
        "seed": seed,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = directory / f"plan-{split}-{sentence}-{max_length}-{digest}.npy"
    rows = None
    with contextlib.suppress(FileNotFoundError, ValueError, EOFError):  # missing or cut short
        rows = np.load(path, mmap_mode="r")
    if rows is None:
        directory.mkdir(parents=True, exist_ok=True)
        index = corpus.split(split)
        if sentence != "none" and index.record.documents < 2:
            raise CorpusError(
                f"the {split} split of the corpus holds one document, but sentence pairs need two. Add documents, "
                "separated by blank lines, or start again in a new directory with another --data.heldout, such as 0.1."
            )
        computed = np.fromiter(_rows(index, packing, sentence, max_length, seed), ROW)
        with atomic.replacing(path) as temporary, open(temporary, "wb") as file:
            np.save(file, computed)
        rows = np.load(path, mmap_mode="r")
    return RowPlan(rows=rows, sentence=sentence, max_length=max_length)


def _rows(index: SplitIndex, packing: Packing, sentence: Sentence, max_length: int, seed: int) -> Iterator[RowFields]:
    """Yield the rows of all documents, pass after pass; random draws depend only on (seed, pass, document)."""
    offsets, documents = index.offsets, index.documents
    for number in range(packing.passes):
        for document in range(index.record.documents):
            random = SplitMix(fold(seed, number, document))
            bounds = offsets[documents[document] : documents[document + 1] + 1].tolist()
            if isinstance(packing, ElectraPacking):
                shares = packing.single_share, packing.short_share
                yield from electra_rows(bounds, max_length, document, *shares, random)
                continue
            room = max_length - (2 if sentence == "none" else 3)
            short = random.random() < packing.short_share
            target = random.integer(2, room) if short and room > 2 else room
            if sentence == "none":
                yield from single_rows(bounds, room, target, document)
            else:
                yield from pair_rows(bounds, room, target, document, sentence, random, offsets, documents)
