"""Plan which sentences fill each training row. A plan depends on corpus, split, packing, objective, length and seed.

A row is one or two ranges of the split's flat token stream. Sentence pairs follow BERT (google-research/bert
create_pretraining_data.py: next sentence prediction) or ALBERT (google-research/albert: sentence order prediction).
Rows without pairs are consecutive sentences of one document (RoBERTa's DOC-SENTENCES, Liu et al. 2019, section 4.2).
ELECTRA's rows (electra.py) have one or two segments and no label.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data import electra
from bertzoo.data.corpus.reader import Corpus, Split, SplitIndex
from bertzoo.data.corpus.shard import sha256
from bertzoo.data.pairs import RowFields, pair_rows, single_rows
from bertzoo.data.rng import SplitMix, fold

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
FALLBACK_LIMIT = 0.1  # RowPlan.warnings warns above this share of fallbacks
_FORMAT = 1  # part of the key of saved plans; raise it when new code changes the rows
_ROWS_TOGETHER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SentencePacking:
    """Rows of whole sentences, with a sentence label if the objective needs it; defaults as in BERT."""

    kind: Literal["sentences"] = "sentences"
    short_share: float = 0.1  # share of the documents (per pass) that are packed to a random shorter length
    passes: int = 1  # how often every document is packed, each time with new randomness (BERT's dupe_factor)

    def __post_init__(self) -> None:
        _check_packing(self.passes, short_share=self.short_share)

    def shortest(self, sentence: Sentence) -> int:
        """Return the fewest tokens that a row can have: the special tokens and one token for each segment."""
        return 5 if sentence != "none" else 3


@dataclass(frozen=True, kw_only=True)
class ElectraPacking:
    """ELECTRA's rows: one or two segments, without a label (data/electra.py)."""

    kind: Literal["electra"] = "electra"
    single_share: float = 0.1  # share of the rows with one segment, as in tasks on single texts
    short_share: float = 0.05  # share of the rows with a random shorter length
    passes: int = 1  # how often every document is packed, each time with new randomness

    def __post_init__(self) -> None:
        _check_packing(self.passes, single_share=self.single_share, short_share=self.short_share)

    def shortest(self, sentence: Sentence) -> int:
        """Return the fewest tokens that a row can have; raises ConfigError unless `sentence` is "none"."""
        if sentence != "none":
            raise ConfigError(
                f'packing.kind = "electra" has no labels for sentence = "{sentence}". Use kind = "sentences".'
            )
        return electra.SHORTEST


Packing = SentencePacking | ElectraPacking


def _check_packing(passes: int, **shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"{name} = {share} is not between 0 and 1. Use a share in that range.")
    if passes < 1:
        raise ConfigError(f"passes = {passes} is less than 1. Use 1 or more.")


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """The plan of a split's rows.

    rows: (R,) records of dtype ROW.
    positives: number of rows with label 1.
    fallbacks: number of rows for sentence order prediction with a random second segment, because only one sentence was
    left.
    truncated_tokens: number of tokens dropped from rows that were too long.
    """

    rows: np.ndarray
    sentence: Sentence
    max_length: int
    positives: int
    fallbacks: int
    truncated_tokens: int

    @property
    def fallback_share(self) -> float:
        """Share (0 to 1) of `fallbacks` among the rows."""
        return self.fallbacks / len(self.rows)

    @property
    def warnings(self) -> list[str]:
        """Warnings to the user: one if `fallback_share` exceeds FALLBACK_LIMIT, else none."""
        if self.sentence != "sop" or self.fallback_share <= FALLBACK_LIMIT:
            return []
        return [
            f"warning: {self.fallback_share:.0%} of the rows of {self.max_length} tokens hold one sentence, so their"
            " second segment comes from a random document instead of their own. Use longer rows, join paragraphs into"
            " longer documents, or set --objective.sentence=none."
        ]


def plan_rows(
    corpus: Corpus,
    split: Split,
    packing: Packing,
    *,
    sentence: Sentence,
    max_length: int,
    seed: int,
    directory: Path,
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
    stem = directory / f"plan-{split}-{sentence}-{max_length}-{digest}"
    summary = _cached(stem)
    if summary is None:
        directory.mkdir(parents=True, exist_ok=True)
        summary = _compute(corpus.split(split), split, packing, sentence, max_length, seed, stem)
    rows = np.load(stem.with_suffix(".npy"), mmap_mode="r")
    counts = {name: summary[name] for name in _COUNTS}
    return RowPlan(rows=rows, sentence=sentence, max_length=max_length, **counts)


_COUNTS = ("positives", "fallbacks", "truncated_tokens")


def _cached(stem: Path) -> dict[str, Any] | None:
    """Return the counts and the hash of the plan that is saved in `stem`.npy; None if it is missing or damaged."""
    rows, summary_file = stem.with_suffix(".npy"), stem.with_suffix(".json")
    if not (rows.exists() and summary_file.exists()):
        return None
    try:
        summary = read_json(summary_file, {**dict.fromkeys(_COUNTS, int), "sha256": str})
        return summary if summary["sha256"] == sha256(rows) else None
    except ValueError:
        return None


def _compute(
    index: SplitIndex, split: Split, packing: Packing, sentence: Sentence, max_length: int, seed: int, stem: Path
) -> dict[str, Any]:
    if sentence != "none" and index.record.documents < 2:
        raise CorpusError(
            f"the {split} part of the corpus holds one document, but sentence pairs need two. Add documents, "
            "separated by blank lines, or start again in a new directory with another --data.heldout, such as 0.1."
        )
    chunks = list(_chunks(_rows(index, packing, sentence, max_length, seed)))
    truncated = sum(dropped for _, dropped in chunks)
    count = sum(len(chunk) for chunk, _ in chunks)
    with atomic.replacing(stem.with_suffix(".npy")) as temporary:
        rows = np.lib.format.open_memmap(temporary, "w+", ROW, (count,))
        position = 0
        for chunk, _ in chunks:
            rows[position : position + len(chunk)] = chunk
            position += len(chunk)
        rows.flush()
    summary = {
        "rows": count,
        "positives": int(rows["label"].sum()),
        "fallbacks": int(rows["fallback"].sum()),
        "truncated_tokens": truncated,
        "sha256": sha256(stem.with_suffix(".npy")),
    }
    atomic.write_bytes(stem.with_suffix(".json"), json.dumps(summary, indent=1).encode())
    return summary


def _chunks(rows: Iterator[RowFields]) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (array of up to _ROWS_TOGETHER rows, number of tokens that were dropped from these rows)."""
    waiting: list[tuple[int, ...]] = []
    truncated = 0
    for *row, dropped in rows:
        waiting.append(tuple(row))
        truncated += dropped
        if len(waiting) == _ROWS_TOGETHER:
            yield np.array(waiting, ROW), truncated
            waiting, truncated = [], 0
    yield np.array(waiting, ROW), truncated


def _rows(index: SplitIndex, packing: Packing, sentence: Sentence, max_length: int, seed: int) -> Iterator[RowFields]:
    """Yield the rows of all documents, pass after pass; random draws depend only on (seed, pass, document)."""
    offsets, documents = index.offsets, index.documents
    for number in range(packing.passes):
        for document in range(index.record.documents):
            random = SplitMix(fold(seed, number, document))
            bounds = offsets[documents[document] : documents[document + 1] + 1].tolist()
            if isinstance(packing, ElectraPacking):
                shares = packing.single_share, packing.short_share
                yield from electra.electra_rows(bounds, max_length, document, *shares, random)
                continue
            room = max_length - (2 if sentence == "none" else 3)
            short = random.random() < packing.short_share
            target = random.integer(2, room) if short and room > 2 else room
            if sentence == "none":
                yield from single_rows(bounds, room, target, document)
            else:
                yield from pair_rows(bounds, room, target, document, sentence, random, offsets, documents)
