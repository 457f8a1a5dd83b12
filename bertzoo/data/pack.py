"""Packs the sentences of a split into rows: an index computed once per (corpus, split, length, objective, seed),
memory-mapped.

A row is two ranges of the split's flat stream of tokens. Rows with sentence pairs are BERT's (google-research/bert
create_pretraining_data.py: next sentence prediction) or ALBERT's (google-research/albert: sentence order prediction);
rows without are consecutive sentences of one document (RoBERTa's DOC-SENTENCES, Liu et al. 2019, section 4.2) and lose
no token, or ELECTRA's (electra.py), which have two segments and no label.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data import electra
from bertzoo.data.corpus.corpus import Corpus, Split, SplitIndex
from bertzoo.data.corpus.shard import sha256
from bertzoo.data.pairs import Row, pair_rows
from bertzoo.data.rng import SplitMix, fold
from bertzoo.data.single import single_rows

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
FALLBACK_LIMIT = (
    0.1  # above this share of random fallbacks, sentence order prediction is mostly next sentence prediction
)
_FORMAT = 1
_ROWS_TOGETHER = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SentencePacking:
    """Rows of whole sentences, with a label where the objective wants one; defaults as in BERT."""

    kind: Literal["sentences"] = "sentences"
    short_share: float = (
        0.1  # documents (per pass) that are packed to a random shorter length, so that short inputs are seen
    )
    passes: int = 1  # times every document is packed, each with its own randomness (BERT's dupe_factor)

    def __post_init__(self) -> None:
        _check(self.passes, short_share=self.short_share)

    def shortest(self, sentence: Sentence) -> int:
        """The fewest tokens of a row that leave room for text: the special tokens, and a token for each segment."""
        return 5 if sentence != "none" else 3


@dataclass(frozen=True, kw_only=True)
class ElectraPacking:
    """Rows of two segments without a label, as ELECTRA's (data/electra.py)."""

    kind: Literal["electra"] = "electra"
    single_share: float = 0.1  # rows of one segment, as in tasks that have but one
    short_share: float = 0.05  # rows of a random shorter length
    passes: int = 1  # times every document is packed, each with its own randomness

    def __post_init__(self) -> None:
        _check(self.passes, single_share=self.single_share, short_share=self.short_share)

    def shortest(self, sentence: Sentence) -> int:
        """The fewest tokens of a row; raises ConfigError where rows should have a label."""
        if sentence != "none":
            raise ConfigError(
                f'packing.kind = "electra" makes no labels for sentence = "{sentence}": use kind = "sentences"'
            )
        return electra.SHORTEST


Packing = SentencePacking | ElectraPacking


def _check(passes: int, **shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"{name} = {share} must lie between 0 and 1")
    if passes < 1:
        raise ConfigError(f"passes = {passes} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The rows of a split, (R,) records of dtype ROW, and what is worth knowing of them."""

    rows: np.ndarray
    sentence: Sentence
    max_length: int
    positives: int  # rows with label 1
    fallbacks: (
        int  # rows with one sentence, given a random second segment where sentence order prediction wanted a swap
    )
    truncated_tokens: int  # tokens that the truncation of pairs dropped

    @property
    def fallback_share(self) -> float:
        """The share of rows that sentence order prediction made from a random document."""
        return self.fallbacks / len(self.rows)

    @property
    def warnings(self) -> list[str]:
        """Sentences that a caller should show."""
        if self.sentence != "sop" or self.fallback_share <= FALLBACK_LIMIT:
            return []
        return [
            f"{self.fallback_share:.0%} of the sentence-order rows at length {self.max_length} have a"
            " second segment from a random document, because their chunk was one sentence: split the text into"
            " shorter sentences or use another objective"
        ]


@dataclass(frozen=True, kw_only=True)
class PlanFile:
    """A plan as what is small of it: the file of its rows, and the rest."""

    file: str
    sentence: Sentence
    max_length: int
    positives: int
    fallbacks: int
    truncated_tokens: int

    @classmethod
    def of(cls, plan: Plan) -> "PlanFile":
        """The file of a plan that `plan` gave."""
        assert isinstance(plan.rows, np.memmap) and plan.rows.filename is not None
        return cls(file=str(plan.rows.filename), **{name: getattr(plan, name) for name in _BESIDES})

    def open(self) -> Plan:
        """Maps the rows again."""
        return Plan(rows=np.load(self.file, mmap_mode="r"), **{name: getattr(self, name) for name in _BESIDES})


_BESIDES = ("sentence", "max_length", "positives", "fallbacks", "truncated_tokens")


def plan(
    corpus: Corpus,
    split: Split,
    packing: Packing,
    *,
    sentence: Sentence,
    max_length: int,
    seed: int,
    directory: Path,
) -> Plan:
    """Computes the rows of a split, or maps them from `directory` where the same plan was computed before.

    Raises CorpusError when the split cannot be packed and ConfigError when no row fits max_length.
    """
    if max_length < packing.shortest(sentence):
        raise ConfigError(f"max_length = {max_length} leaves no room for text beside the special tokens")
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
    counts = {name: summary[name] for name in ("positives", "fallbacks", "truncated_tokens")}
    return Plan(rows=rows, sentence=sentence, max_length=max_length, **counts)


def _cached(stem: Path) -> dict[str, Any] | None:
    """The summary of a plan on disk; None where there is none, or where it is damaged and must be computed again."""
    rows, summary_file = stem.with_suffix(".npy"), stem.with_suffix(".json")
    if not (rows.exists() and summary_file.exists()):
        return None
    try:
        summary = json.loads(summary_file.read_text(encoding="utf-8"))
        return summary if summary["sha256"] == sha256(rows) else None
    except (ValueError, KeyError):
        return None


def _compute(
    index: SplitIndex, split: Split, packing: Packing, sentence: Sentence, max_length: int, seed: int, stem: Path
) -> dict[str, Any]:
    if sentence != "none" and index.record.documents < 2:
        raise CorpusError(f"the {split} part holds one document: sentence pairs need a second one to draw from")
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


def _chunks(rows: Iterator[Row]) -> Iterator[tuple[np.ndarray, int]]:
    """Rows as arrays of some size, each with the number of tokens that truncation dropped."""
    waiting: list[tuple[int, ...]] = []
    truncated = 0
    for *row, dropped in rows:
        waiting.append(tuple(row))
        truncated += dropped
        if len(waiting) == _ROWS_TOGETHER:
            yield np.array(waiting, ROW), truncated
            waiting, truncated = [], 0
    yield np.array(waiting, ROW), truncated


def _rows(index: SplitIndex, packing: Packing, sentence: Sentence, max_length: int, seed: int) -> Iterator[Row]:
    """Every document's rows, pass after pass; a document's randomness depends on (seed, pass, document) alone."""
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
