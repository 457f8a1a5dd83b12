"""WordPiece as BERT has it (Devlin et al. 2019; google-research/bert tokenization.py), through `tokenizers`."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.tokenizers.vocabulary import Specials, check_size, existing, find_specials

SPECIALS = {"pad": ("[PAD]",), "unk": ("[UNK]",), "cls": ("[CLS]",), "sep": ("[SEP]",), "mask": ("[MASK]",)}
LONGEST_WORD = 100  # characters; longer words become [UNK]


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """A WordPiece vocabulary: loaded from the vocab.txt at `path`, or trained on the source where path is empty."""

    kind: Literal["wordpiece"] = "wordpiece"
    path: str = ""
    vocab_size: int = 30522  # the largest allowed for a loaded one, the number asked for of a trained one
    lowercase: bool = True
    strip_accents: bool | None = None  # unset: as lowercase
    split_cjk: bool = True

    def __post_init__(self) -> None:
        if self.vocab_size < len(SPECIALS) + 1:
            raise ConfigError(
                f"vocab_size = {self.vocab_size} leaves no room beside the {len(SPECIALS)} special tokens"
            )

    @property
    def normalization(self) -> dict[str, bool]:
        """What becomes of text before it is cut into entries."""
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        return {"lowercase": self.lowercase, "strip_accents": strip, "split_cjk": self.split_cjk}

    def load(self) -> "WordPieceTokenizer":
        """Reads the vocabulary at `path`; raises CorpusError naming what is wrong with it."""
        try:
            entries = existing(self.path).read_text(encoding="utf-8").rstrip("\n").split("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(f"the vocabulary {self.path} is not UTF-8 text: {error.reason}") from error
        return WordPieceTokenizer(self, [entry.rstrip("\r") for entry in entries], self.path)

    def train(self, texts: Callable[[], Iterator[str]]) -> "WordPieceTokenizer":
        """Learns a vocabulary from texts: [PAD] [UNK] [CLS] [SEP] [MASK] first, the same for the same texts.

        The library numbers the characters inside words in the order of a hash table, which differs from run to run
        and decides between equal counts. So a first pass finds those characters, and a second learns with their
        order fixed.
        """
        parallel, os.environ["TOKENIZERS_PARALLELISM"] = os.environ.get("TOKENIZERS_PARALLELISM"), "true"
        try:
            names = [spellings[0] for spellings in SPECIALS.values()]
            characters = self._learn(texts(), names, 0)
            vocabulary = self._learn(texts(), [*names, *sorted(set(characters) - set(names))], self.vocab_size)
        finally:
            if parallel is None:
                del os.environ["TOKENIZERS_PARALLELISM"]
            else:
                os.environ["TOKENIZERS_PARALLELISM"] = parallel
        return WordPieceTokenizer(self, vocabulary, "trained on the source")

    def _learn(self, texts: Iterator[str], first: list[str], size: int) -> list[str]:
        learner = _library(self, models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        learner.train_from_iterator(texts, trainer)
        vocabulary = learner.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


class WordPieceTokenizer:
    """A Tokenizer over a list of entries, the id of an entry being its place in the list."""

    def __init__(self, config: WordPiece, entries: list[str], origin: str):
        self._ids = {entry: index for index, entry in enumerate(entries)}
        if len(self._ids) != len(entries):
            twice = next(entry for index, entry in enumerate(entries) if self._ids[entry] != index)
            raise CorpusError(f"the vocabulary {origin} holds {twice!r} more than once: remove one of the lines")
        check_size(len(entries), config.vocab_size, origin)
        self._entries = entries
        self.config = config
        self.specials: Specials = find_specials(self._ids, SPECIALS, origin)
        self.continuation = np.array([entry.startswith("##") for entry in entries])
        self._library = _library(
            config, models.WordPiece(self._ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
        )
        self._library.decoder = decoders.WordPiece()

    @property
    def vocab_size(self) -> int:
        """The number of entries, special ones included."""
        return len(self._entries)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The int32 ids of every text, without special tokens (text such as "[MASK]" is spelt out)."""
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every text the ids as from `encode_batch`, and offsets (n,2) int32: the characters that each stands for,
        from the first to past the last.
        """
        encodings = self._library.encode_batch(list(texts), add_special_tokens=False)
        return [
            (np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
            for encoding in encodings
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text; special tokens stay visible."""
        return self._library.decode([int(index) for index in ids], skip_special_tokens=False)

    def token(self, index: int) -> str:
        """The entry with this id as the vocabulary spells it."""
        return self._entries[index]

    def save(self, directory: Path) -> None:
        """Writes vocab.txt."""
        atomic.write_bytes(directory / "vocab.txt", self.contents)

    @property
    def contents(self) -> bytes:
        """The vocabulary as its file has it."""
        return ("\n".join(self._entries) + "\n").encode()


def _library(config: WordPiece, model: models.WordPiece) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(model)
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.split_cjk,
        strip_accents=config.strip_accents,
        lowercase=config.lowercase,
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library
