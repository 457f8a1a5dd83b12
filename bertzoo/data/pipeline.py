"""Batches as a pure function of (seed, step), and what a run needs around them.

Sample i = step * batch_size + r of a run belongs to epoch i // R and is the row that a pseudo-random permutation of
that epoch puts at i % R: a resume is arithmetic, any host computes any rows of any batch, and a global shuffle needs no
memory.
"""

import functools
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from grain.experimental import index_shuffle

from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.core.paths import is_url
from bertzoo.data.batch import assemble
from bertzoo.data.corpus import remote
from bertzoo.data.corpus.corpus import Corpus, Split
from bertzoo.data.corpus.manifest import NAME, differences
from bertzoo.data.corpus.tokenize import Progress, corpus_settings, tokenize, tokenize_to
from bertzoo.data.mask import Masking, mask
from bertzoo.data.pack import Plan, PlanFile
from bertzoo.data.rng import fold
from bertzoo.data.settings import Data
from bertzoo.data.sources.mixture import MIXTURE
from bertzoo.data.tokenizers.tokenizer import difference, label
from bertzoo.data.tokenizers.vocabulary import Tokenizer

Batch = dict[str, np.ndarray]
Rows = slice | np.ndarray  # of a batch
T = TypeVar("T")
_SHUFFLE, _MASK = 0, 1  # independent streams of the seed


def open_corpus(
    data: Data,
    directory: Path | str,
    *,
    workers: int = 0,
    progress: Progress | None = None,
    vocabulary: Tokenizer | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """The corpus that `data.source` names: opened where the source is a tokenised corpus, copied here first where it is
    behind a URL; else tokenised into `directory`, which may be a URL too.

    vocabulary: the tokenizer that it must have. Raises ConfigError when an existing corpus was made with other settings
    than `data` has, or with another tokenizer.
    """
    corpus = _existing(data, vocabulary, tell)
    if corpus is None:
        options: dict[str, Any] = {"workers": workers, "progress": progress, "vocabulary": vocabulary}
        if isinstance(directory, Path):
            corpus = tokenize(data, directory, **options)
        else:
            tokenize_to(data, directory, **options, tell=tell)
            corpus = remote.open_corpus(directory, tell)
    if vocabulary is not None:
        check_words(corpus, vocabulary)
    return corpus


def check_words(corpus: Corpus, vocabulary: Tokenizer) -> None:
    """Raise ConfigError where a corpus was tokenised with another tokenizer than a model's."""
    if (found := difference(vocabulary, corpus.tokenizer)) is not None:
        raise ConfigError(
            f"the corpus {corpus.address} was tokenised with another tokenizer than the model's, whose words would "
            f"be taken for others: {found}"
        )


def _existing(data: Data, vocabulary: Tokenizer | None, tell: Callable[[str], None]) -> Corpus | None:
    """The tokenised corpus that the source is; None where it is text."""
    if data.source == MIXTURE or (corpus := _found(data.source, tell)) is None:
        return None
    origin = {name: corpus.manifest.settings[name] for name in ("source", "text_field", "piece_bytes")}
    if not data.mixture and "mixture" in corpus.manifest.settings:
        origin["mixture"] = corpus.manifest.settings["mixture"]
    if vocabulary is not None and not data.tokenizer.path:  # compared itself, not how it came to be
        origin["tokenizer"] = corpus.manifest.settings["tokenizer"]
    if found := differences({**corpus_settings(data), **origin}, corpus.manifest.settings):
        kept = corpus.tokenizer.config.path
        same = corpus.manifest.settings["tokenizer"]["path"] == label(corpus.tokenizer)
        hint = (
            f" (data.tokenizer.path = {kept})" if same and any(line.startswith("tokenizer.") for line in found) else ""
        )
        raise ConfigError(
            f"the corpus {data.source} was tokenised with other settings: {'; '.join(found)}; "
            f"make the config agree with it{hint}"
        )
    return corpus


def _found(name: str, tell: Callable[[str], None]) -> Corpus | None:
    if is_url(name):
        return remote.open_corpus(name, tell) if remote.is_corpus(name) else None
    source = Path(name).expanduser()
    if (source / NAME).is_file():
        return Corpus.open(source)
    if (source / "settings.json").is_file():
        raise CorpusError(
            f"{source} is a tokenised corpus without its {NAME}, so unfinished or damaged: "
            "run the `bertzoo tokenize` that began it again"
        )
    return None


class Batches:
    """The batches of a plan: arrays as docs/formats.md has them, and `row_weight` (B,) float32, 0 for rows that
    only pad.
    """

    def __init__(
        self,
        corpus: Corpus,
        split: Split,
        plan: Plan,
        masking: Masking,
        *,
        max_length: int,
        max_predictions: int,
        seed: int,
    ):
        if max_length < plan.max_length:
            raise ConfigError(f"max_length = {max_length} is shorter than the plan's rows of {plan.max_length}")
        if max_predictions < 1:
            raise ConfigError(f"max_predictions = {max_predictions} must be at least 1")
        self._corpus, self._plan, self._masking = corpus, plan, masking
        self._split: Split = split
        self._max_length, self._max_predictions, self._seed = max_length, max_predictions, seed
        self.rows = len(plan.rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process opens its own corpus and plan by."""
        plan = PlanFile.of(self._plan)
        sizes = self._max_length, self._max_predictions, self._seed
        return _reopened, (self._corpus.directory, self._split, plan, self._masking, *sizes)

    def batch(self, step: int, batch_size: int, rows: Rows | None = None) -> Batch:
        """The training batch at a step, or only these rows of it; raises CorpusError when the split cannot fill one
        batch.
        """
        epochs, records = self._shuffled(step, batch_size, rows)
        return self._make(epochs, records)

    def sequential(self, step: int, batch_size: int, rows: Rows | None = None) -> Batch:
        """Batch `step` of one pass in the plan's order, masked as in epoch 0; rows behind the end have row_weight 0.

        There are `steps(batch_size)` of them; raises IndexError beyond.
        """
        if not 0 <= step < self.steps(batch_size):
            raise IndexError(f"batch {step} of {self.steps(batch_size)}")
        index = _chosen(step, batch_size, rows)
        real = index < self.rows
        batch = self._make(np.zeros(len(index), np.int64), np.where(real, index, 0))
        return {name: _blank(name, array, real) for name, array in batch.items()}

    def steps(self, batch_size: int) -> int:
        """The number of sequential batches, the last one perhaps partly padding."""
        return -(-self.rows // batch_size)

    def describe(self, step: int, batch_size: int) -> list[str]:
        """One line for every row of the training batch at a step, naming where it comes from."""
        epochs, records = self._shuffled(step, batch_size, None)
        lines = []
        for place, (epoch, record) in enumerate(zip(epochs.tolist(), records.tolist(), strict=True)):
            row = self._plan.rows[record]
            a, b = (f"{row[s]}-{row[s] + row[n]}" for s, n in (("a_start", "a_length"), ("b_start", "b_length")))
            tokens = a + (f" and {b}" if row["b_length"] else "")
            document = f"{self._split} document {row['document']}"
            lines.append(f"row {place}: epoch {epoch}, record {record}, {document}, tokens {tokens}")
        return lines

    def check(self, batch_size: int) -> None:
        """Raises CorpusError unless the rows fill at least one batch."""
        if self.rows < batch_size:
            raise CorpusError(
                f"the {self._split} part of {self._corpus.directory} gives {self.rows:,} rows of"
                f" {self._plan.max_length} tokens, too few for one batch of {batch_size:,}: give more text or a"
                " smaller batch"
            )

    def _shuffled(self, step: int, batch_size: int, rows: Rows | None) -> tuple[np.ndarray, np.ndarray]:
        self.check(batch_size)
        samples = _chosen(step, batch_size, rows).tolist()
        epochs = [sample // self.rows for sample in samples]
        seeds = {epoch: fold(self._seed, _SHUFFLE, epoch) >> 32 for epoch in set(epochs)}
        records = [
            index_shuffle(sample % self.rows, max_index=self.rows - 1, seed=seeds[epoch], rounds=4)
            for sample, epoch in zip(samples, epochs, strict=True)
        ]
        return np.array(epochs, np.int64), np.array(records, np.int64)

    def _make(self, epochs: np.ndarray, records: np.ndarray) -> Batch:
        rows = self._plan.rows[records]
        batch = mask(
            assemble(self._corpus, self._split, rows, self._max_length),
            self._masking,
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


def _chosen(step: int, batch_size: int, rows: Rows | None) -> np.ndarray:
    """The samples of a batch, or only these of them."""
    return np.arange(step * batch_size, (step + 1) * batch_size)[slice(None) if rows is None else rows]


@functools.lru_cache(maxsize=1)
def _reopened(
    directory: Path, split: Split, plan: PlanFile, masking: Masking, max_length: int, max_predictions: int, seed: int
) -> Batches:
    sizes = {"max_length": max_length, "max_predictions": max_predictions, "seed": seed}
    return Batches(Corpus.open(directory), split, plan.open(), masking, **sizes)


def _blank(name: str, array: np.ndarray, real: np.ndarray) -> np.ndarray:
    """Rows that only pad: [CLS] alone is attended to, so that no softmax is empty, and every weight is 0."""
    shape = (len(real),) + (1,) * (array.ndim - 1)
    blank = np.where(real.reshape(shape), array, 0)
    if name in ("input_ids", "attention_mask"):
        blank[~real, 0] = array[~real, 0]
    return blank.astype(array.dtype)


def prefetch(make: Callable[[int], T], start: int, stop: int, depth: int = 2) -> Iterator[T]:
    """`make(step)` for every step in [start, stop), computed up to `depth` ahead by a thread; its exceptions are raised
    here.
    """
    results: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: tuple[T | None, BaseException | None]) -> None:
        while not stopped.is_set():
            try:
                return results.put(item, timeout=0.1)
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for step in range(start, stop):
                if stopped.is_set():
                    return
                put((make(step), None))
        except BaseException as error:
            put((None, error))

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        for _ in range(start, stop):
            result, error = results.get()
            if error is not None:
                raise error
            yield result  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
