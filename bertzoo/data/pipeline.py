"""Open or write a corpus, and build batches that depend only on (seed, step).

Row r of the batch at a step is sample i = step * batch_size + r. With R rows in the plan, sample i belongs to epoch
i // R. Every epoch has a pseudo-random permutation of the rows, and sample i is the row at its position i % R. So a run
can resume at any step, any host can compute any rows of a batch, and a global shuffle needs no memory.
"""

import glob
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from grain.experimental import index_shuffle

from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.core.paths import is_url
from bertzoo.core.remote import RemoteFolder
from bertzoo.data.corpus import remote
from bertzoo.data.corpus.manifest import NAME, SETTINGS, differences
from bertzoo.data.corpus.reader import Corpus, Split
from bertzoo.data.corpus.tokenize import Progress, corpus_settings, tokenize, tokenize_to_url
from bertzoo.data.mask import LinearShare, Masking, mask
from bertzoo.data.pack import RowPlan
from bertzoo.data.rng import fold
from bertzoo.data.settings import MIXTURE, Data
from bertzoo.data.sources.files import SourceFile
from bertzoo.data.tokenizers.tokenizer import difference, label
from bertzoo.data.tokenizers.vocabulary import Tokenizer

_LOG = logging.getLogger(__name__)

Batch = dict[str, np.ndarray]
Rows = slice | np.ndarray  # indices of rows in a batch
T = TypeVar("T")
_SHUFFLE, _MASK = 0, 1  # independent streams of the seed: `mask` gets fold(seed, _MASK)


def open_corpus(
    data: Data,
    directory: Path | str,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    vocabulary: Tokenizer | None = None,
) -> Corpus:
    """Open the corpus of `data.source`: download a remote corpus first, or tokenise text into `directory`.

    directory: a path or a URL. vocabulary: tokenizer that the corpus must have. Raises ConfigError if an existing
    corpus has other settings than `data`, or another tokenizer.
    """
    corpus = _open_existing(data, vocabulary)
    if corpus is None:
        options: dict[str, Any] = {"workers": workers, "progress": progress, "vocabulary": vocabulary}
        if isinstance(directory, Path):
            if not (directory / NAME).exists():
                _LOG.info(f"reading and tokenising {data.source} into {directory} ...")
            corpus = tokenize(data, directory, **options)
        else:
            tokenize_to_url(data, directory, **options)
            corpus = remote.open_remote_corpus(directory)
    if vocabulary is not None:
        check_tokenizer(corpus, vocabulary)
    return corpus


def check_tokenizer(corpus: Corpus, vocabulary: Tokenizer) -> None:
    """Raise ConfigError unless the corpus has the model's tokenizer, `vocabulary`."""
    if (different := difference(vocabulary, corpus.tokenizer)) is not None:
        raise ConfigError(
            f"the corpus {corpus.address} (there) has another tokenizer than the model (here): {different}. Tokenise "
            "the text with the model's tokenizer."
        )


def _open_existing(data: Data, vocabulary: Tokenizer | None) -> Corpus | None:
    """Return the corpus at `data.source`, or None if the source is text; raises ConfigError if settings differ."""
    if data.source == MIXTURE or not is_corpus(data.source):
        return None
    url = is_url(data.source)
    corpus = remote.open_remote_corpus(data.source) if url else Corpus.open(Path(data.source).expanduser())
    existing = corpus.manifest.settings
    free = ["source", "text_field", "piece_bytes"]
    if not data.mixture and "mixture" in existing:
        free.append("mixture")
    if vocabulary is not None and not data.tokenizer.path:  # the tokenizers themselves are compared later
        free.append("tokenizer")
    if different := differences({**corpus_settings(data), **{name: existing[name] for name in free}}, existing):
        path = corpus.tokenizer.config.path
        saved = existing["tokenizer"]["path"] == label(corpus.tokenizer)
        hint = (
            f" (data.tokenizer.path = {path})" if saved and any(s.startswith("tokenizer.") for s in different) else ""
        )
        raise ConfigError(
            f"the corpus {data.source} was tokenised with other settings: {'; '.join(different)}. "
            f"Make the config agree with the corpus{hint}."
        )
    return corpus


def is_corpus(name: str) -> bool:
    """Return whether a source names a tokenised corpus and not text; raises CorpusError if the corpus is unfinished."""
    url = is_url(name)
    if url and ("," in name or glob.has_magic(name) or SourceFile(name).is_text):
        return False

    def has(file: str) -> bool:
        return RemoteFolder.at(name).has_file(file) if url else (Path(name).expanduser() / file).is_file()

    if has(NAME):
        return True
    if has(SETTINGS):
        raise CorpusError(
            f"{name} is an unfinished corpus without {NAME}. Repeat the `bertzoo tokenize` that started it."
        )
    return False


class Batches:
    """Builds batches from the rows of a RowPlan, with the arrays of `array_shapes`.

    max_predictions: most tokens to predict per row.
    share: share of tokens to predict by training step; None, and held-out batches (`sequential`), take masking.share.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: Split,
        plan: RowPlan,
        masking: Masking,
        *,
        max_predictions: int,
        seed: int,
        share: LinearShare | None = None,
    ):
        self._corpus, self._plan, self._masking, self._share = corpus, plan, masking, share
        self._split: Split = split
        self._max_predictions, self._seed = max_predictions, seed
        self.rows = len(plan.rows)

    def batch(self, step: int, batch_size: int, rows: Rows | None = None) -> Batch:
        """Return the training batch at a step, or only `rows` of it; raises CorpusError for a split with fewer rows."""
        share = self._masking.share if self._share is None else self._share.at(step)
        return self._make(*self._shuffled(step, batch_size, rows), replace(self._masking, share=share))

    def sequential(self, step: int, batch_size: int, rows: Rows | None = None) -> Batch:
        """Return batch `step` of a pass over the rows in the plan's order, masked as in epoch 0.

        Rows past the plan's end are padding with `row_weight` 0. Raises IndexError for a step outside
        [0, steps(batch_size)).
        """
        if not 0 <= step < self.steps(batch_size):
            raise IndexError(f"step = {step} is outside [0, {self.steps(batch_size)})")
        index = _samples(step, batch_size, rows)
        real = index < self.rows
        batch = self._make(np.zeros(len(index), np.int64), np.where(real, index, 0), self._masking)
        for name, array in batch.items():
            blank = np.where(real.reshape(-1, *(1,) * (array.ndim - 1)), array, 0).astype(array.dtype)
            if name in ("input_ids", "attention_mask"):  # keep [CLS], so that every softmax covers a token
                blank[:, 0] = array[:, 0]
            batch[name] = blank
        return batch

    def steps(self, batch_size: int) -> int:
        """Return the number of `sequential` batches; the last batch may be partly padding."""
        return -(-self.rows // batch_size)

    def check_batch_size(self, batch_size: int) -> None:
        """Raise CorpusError if there are fewer rows than `batch_size`."""
        if self.rows < batch_size:
            raise CorpusError(
                f"the {self._split} split of {self._corpus.directory} has {self.rows:,} rows of"
                f" {self._plan.max_length} tokens, too few for one batch of {batch_size:,}. Use more text or a"
                " smaller batch."
            )

    def _shuffled(self, step: int, batch_size: int, rows: Rows | None) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each row of the training batch at a step, the epoch and the index in the plan; both (B,)."""
        self.check_batch_size(batch_size)
        samples = _samples(step, batch_size, rows).tolist()
        epochs = [sample // self.rows for sample in samples]
        seeds = {epoch: fold(self._seed, _SHUFFLE, epoch) >> 32 for epoch in set(epochs)}
        records = [
            index_shuffle(sample % self.rows, max_index=self.rows - 1, seed=seeds[epoch], rounds=4)
            for sample, epoch in zip(samples, epochs, strict=True)
        ]
        return np.array(epochs, np.int64), np.array(records, np.int64)

    def _make(self, epochs: np.ndarray, records: np.ndarray, masking: Masking) -> Batch:
        rows = self._plan.rows[records]
        batch = mask(
            assemble(self._corpus, self._split, rows, self._plan.max_length),
            masking,
            self._corpus.tokenizer,
            max_predictions=self._max_predictions,
            seed=fold(self._seed, _MASK),
            epochs=epochs,
            records=records,
        )
        if self._plan.sentence != "none":
            batch["sentence_label"] = rows["label"].astype(np.int32)
        batch["row_weight"] = np.ones(len(rows), np.float32)
        return batch


def _samples(step: int, batch_size: int, rows: Rows | None) -> np.ndarray:
    """Return the sample numbers of a batch, or of its `rows` only; samples are numbered over all steps."""
    return np.arange(step * batch_size, (step + 1) * batch_size)[slice(None) if rows is None else rows]


def prefetch(make: Callable[[int], T], start: int, stop: int, depth: int = 2) -> Iterator[T]:
    """Yield `make(step)` for steps in [start, stop), or raise its error; a thread is up to `depth` steps ahead."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as thread:
        pending: deque[Future[T]] = deque()
        try:
            for step in range(start, stop):
                pending.append(thread.submit(make, step))
                if len(pending) > depth:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            thread.shutdown(cancel_futures=True)


def assemble(corpus: Corpus, split: Split, rows: np.ndarray, max_length: int) -> dict[str, np.ndarray]:
    """Return a batch: `input_ids`, `token_type_ids` and `attention_mask`, each (B, max_length) int32.

    rows: (B,) of dtype `pack.ROW`. Raises CorpusError for a damaged shard, ValueError for a row of more than
    `max_length` tokens.
    """
    specials = corpus.tokenizer.specials
    a_length, b_length = rows["a_length"].astype(np.int64), rows["b_length"].astype(np.int64)
    has_b = b_length > 0
    length = 2 + a_length + np.where(has_b, b_length + 1, 0)
    if int(length.max(initial=0)) > max_length:
        raise ValueError(f"a row of {int(length.max())} tokens does not fit max_length = {max_length}")
    starts = np.concatenate([rows["a_start"], rows["b_start"][has_b]])
    tokens = corpus.tokens(split, starts, np.concatenate([a_length, b_length[has_b]]))
    ids = np.full((len(rows), max_length), specials.pad, np.int32)
    every = np.arange(len(rows))
    _write_tokens(ids, every, 1, tokens[: len(rows)], a_length)
    second = np.flatnonzero(has_b)
    _write_tokens(ids, second, a_length[second] + 2, tokens[len(rows) :], b_length[second])
    ids[:, 0] = specials.cls
    ids[every, a_length + 1] = specials.sep
    ids[every, length - 1] = specials.sep
    columns = np.arange(max_length)
    attention = columns < length[:, None]
    types = attention & (columns > a_length[:, None] + 1)
    return {"input_ids": ids, "token_type_ids": types.astype(np.int32), "attention_mask": attention.astype(np.int32)}


def array_shapes(
    rows: int, max_length: int, max_predictions: int, *, sentence: bool
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of every array in a batch of `Batches`, by name: B rows, L tokens, P predictions.

    sentence: whether to add `sentence_label` (B,), 1 for a random next sentence (NSP) or a swapped pair (SOP).

    Two arrays are weights, 1 or 0. `masked_weights` (B,P) is 0 for unused predictions. `row_weight` (B,) is 0 for rows
    that pad the last held-out batch.
    """
    tokens, slots = (rows, max_length), (rows, max_predictions)
    shapes = {name: (tokens, "int32") for name in ("input_ids", "token_type_ids", "attention_mask")}
    shapes |= {name: (slots, "int32") for name in ("masked_positions", "masked_ids")}
    shapes |= {"masked_weights": (slots, "float32"), "row_weight": ((rows,), "float32")}
    return shapes | ({"sentence_label": ((rows,), "int32")} if sentence else {})


def _write_tokens(
    ids: np.ndarray, rows: np.ndarray, columns: np.ndarray | int, tokens: np.ndarray, lengths: np.ndarray
) -> None:
    """For each i, write the first `lengths[i]` elements of `tokens[i]` to `ids[rows[i]]`, from `columns[i]` on."""
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    row, column = np.nonzero(inside)
    offset = np.broadcast_to(columns, rows.shape)
    ids[rows[row], offset[row] + column] = tokens[inside]
