"""The base class of tokenizers, and checks of their vocabularies."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.core.paths import on_disk

_LOG = logging.getLogger(__name__)

UNKNOWN_WARNING, UNKNOWN_ERROR = 0.01, 0.2  # shares of [UNK] above which check_unknown warns and raises
TRAIN_BYTES = 64 << 20  # bytes of text, from the source's start, that train a vocabulary
_LARGEST_FILE = 64 << 20  # bytes of a vocabulary; those of 250,000 tokens have 5 MB
LONGEST_SENTENCE = 1 << 16  # characters; longer ones have no sentence breaks and are cut at white space
# A character that is not white space, punctuation, Chinese or Japanese.
WORD = "[^\\s!-/:-@[-`{-~\u2000-\u206f\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
_PARAGRAPH = re.compile("[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")  # what str.splitlines separates
_TOGETHER = 1 << 18  # characters encoded at once: the library needs 300 bytes for each mark of punctuation


@dataclass(frozen=True, kw_only=True)
class Specials:
    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


class Tokenizer(ABC):
    """A trained or loaded tokenizer over a list of tokens, where a token's id is its index.

    config: the WordPiece, SentencePiece or ByteBpe config; its vocab_size is the largest number of tokens.
    contents: the bytes of the vocabulary file.
    continuation: (V,) bool, whether a token continues the word before it.
    continuable: (V,) bool, False if the token after it always begins a word.
    """

    file: ClassVar[str]  # name of the vocabulary file
    spellings: ClassVar[Mapping[str, Sequence[str]]]  # possible spellings of each field of Specials
    mark: ClassVar[str]  # prefix of the tokens that begin a word or, in WordPiece, of those that continue one
    mask_takes_space: ClassVar[bool] = False  # whether a word's token, and so [MASK], holds the space before the word

    def __init__(self, config: Any, tokens: list[str], contents: bytes, origin: str):
        """Raise CorpusError naming `origin` if the vocabulary is too large for the config or lacks a special token."""
        check_size(len(tokens), config.vocab_size, origin)
        self.config, self.contents, self._tokens = config, contents, tokens
        self.continuation = np.array([self._continues(token) for token in tokens])
        self.continuable = np.ones(len(tokens), bool)
        ids = {token: index for index, token in enumerate(tokens)}
        spellings = {field: [name for name in names if name in ids] for field, names in self.spellings.items()}
        if missing := [self.spellings[field][0] for field, names in spellings.items() if not names]:
            raise CorpusError(
                f"the vocabulary {origin} has no {', '.join(missing)}. Add these tokens or train a new vocabulary."
            )
        self.specials = Specials(**{field: ids[names[0]] for field, names in spellings.items()})

    @property
    def vocab_size(self) -> int:
        """The number of tokens, special tokens included."""
        return len(self._tokens)

    def token(self, index: int) -> str:
        """Return the token with the id `index`, as the vocabulary spells it."""
        return self._tokens[index]

    def spelling(self, index: int) -> str:
        """Return the token with the id `index` as people read it."""
        return self._tokens[index]

    @property
    def needed(self) -> set[int]:
        """The ids of the tokens without which some text cannot be encoded."""
        return {*asdict(self.specials).values()}

    def unknown_share(self, texts: Sequence[str]) -> float:
        """Return the share of [UNK] among the tokens of `texts`; 0 if there are no tokens."""
        ids = np.concatenate([np.zeros(0, np.int32), *self.encode_batch(texts)])
        return float(np.mean(ids == self.specials.unk)) if len(ids) else 0.0

    def save(self, directory: Path) -> None:
        """Write the vocabulary file into a directory."""
        atomic.write_bytes(directory / self.file, self.contents)

    def encode_batch(self, texts: Sequence[str], specials: bool = False) -> list[np.ndarray]:
        """Return the int32 ids (n,) of every text, without adding special tokens.

        A special token's name in a text, such as "[MASK]", is tokenised like other text; with `specials`, it becomes
        the token's id. Never set `specials` for text that you did not write. Raises UserError if `texts` is a string.
        """
        if isinstance(texts, str):
            raise UserError(f"texts is a single text that begins with {texts[:40]!r}. Give a list of texts.")
        if not specials:
            return [ids for batch in _batches(texts) for ids in self._encode(batch)]
        ids = {self._tokens[index]: [index] for index in asdict(self.specials).values()}
        names = re.compile(f"({'|'.join(map(re.escape, ids))})")
        splits = [names.split(text) for text in texts]
        pieces = iter(self._encode([span for split in splits for span in split if span not in ids]))
        return [
            np.concatenate([ids[s] if s in ids else next(pieces) for s in split]).astype(np.int32) for split in splits
        ]

    @abstractmethod
    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the int32 ids (n,) of every text; names of special tokens are tokenised like other text."""

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return each text's ids, and the start and end of each token in the text as character offsets (n,2) int32."""
        return [pair for batch in _batches(texts) for pair in self._encode_offsets(batch)]

    @abstractmethod
    def _encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return what `encode_offsets` returns, at once for all texts."""

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        """Return whether each token (n,) of a text begins a word."""
        starts = ~self.continuation[ids]
        starts[1:] |= ~self.continuable[ids[:-1]]
        starts[:1] = True
        return starts

    def after_space(self, text: str) -> str:
        """Return what to encode for a text that follows a space in its document."""
        return f" {text}" if self.mask_takes_space else text

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Return ids as readable text; special tokens stay visible."""

    @abstractmethod
    def subset(self, ids: Sequence[int]) -> "Tokenizer":
        """Return a tokenizer of the tokens `ids` alone, in this order; raises CorpusError without a special token."""

    def occurring(self, texts: Sequence[str]) -> Iterable[np.ndarray]:
        """Yield the ids (n,) that tokenising each text chooses, replaced ones (ALBERT's "19,") included."""
        return self.encode_batch(texts)

    def plain(self, index: int) -> str:
        """Return the token with the id `index` without the mark of a word's beginning or continuation."""
        return self._tokens[index].removeprefix(self.mark)

    @staticmethod
    @abstractmethod
    def _continues(token: str) -> bool:
        """Return whether a token continues the word before it."""


class LibraryTokenizer(Tokenizer):
    """A tokenizer that the package `tokenizers` runs."""

    library: Any  # tokenizers.Tokenizer

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encodings = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def _encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        encodings = self.library.encode_batch(list(texts), add_special_tokens=False)
        return [
            (np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int32).reshape(-1, 2))
            for encoding in encodings
        ]

    def decode(self, ids: Iterable[int]) -> str:
        return self.library.decode([int(index) for index in ids], skip_special_tokens=False)


def cut(text: str, longest: int = LONGEST_SENTENCE) -> Iterator[str]:
    """Cut a text into chunks of at most `longest` characters, at white space or, without any, inside a word."""
    start = 0
    while len(text) - start > longest:
        space = max(text.rfind(mark, start + 1, start + longest) for mark in " \n")
        end = space if space > 0 else start + longest
        yield text[start:end]
        start = end
        while start < len(text) and text[start].isspace():
            start += 1
    yield text[start:]


def paragraphs(text: str) -> Iterator[str]:
    """Yield the non-empty lines of `text`, split as by str.splitlines, but without building a list."""
    return (match[0] for match in _PARAGRAPH.finditer(text))


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts into lists of about _TOGETHER characters."""
    start = size = 0
    for index, text in enumerate(texts):
        if size and size + len(text) > _TOGETHER:
            yield texts[start:index]
            start, size = index, 0
        size += len(text)
    if start < len(texts):
        yield texts[start:]


def describe_unknown(share: float, source: str) -> str:
    """Return a sentence that reports the share of [UNK] among the tokens of `source`."""
    return f"{share:.1%} of the tokens of {source} are [UNK], because the vocabulary has no tokens for these words"


def check_unknown(share: float, source: str, inherited: bool = False) -> None:
    """Warn if the share (0 to 1) of [UNK] among a text's tokens exceeds 1 %; raise CorpusError above 20 %.

    source: noun phrase for the text in messages. inherited: whether the vocabulary is that of the run's initial model.
    """
    if share > UNKNOWN_ERROR:
        mend = (
            "Start from a model whose vocabulary covers this text, or use text in the model's language."
            if inherited
            else "Set data.tokenizer.path to a vocabulary of the text's language, or leave it empty to train one on "
            "the text."
        )
        raise CorpusError(f"{describe_unknown(share, source)} (limit: {UNKNOWN_ERROR:.0%}). {mend}")
    if share > UNKNOWN_WARNING:
        _LOG.warning(describe_unknown(share, source))


def check_size(size: int, limit: int, origin: str) -> None:
    """Raise CorpusError if a vocabulary has more tokens than `limit`, the config's vocab_size."""
    if size > limit:
        raise CorpusError(
            f"the vocabulary {origin} has {size:,} tokens, more than vocab_size = {limit:,}. Set vocab_size = {size}."
        )


def vocabulary_file(path: str) -> Path:
    """Return the path of a vocabulary file; raises CorpusError unless it is an existing file."""
    file = on_disk(path, "the vocabulary file", "Copy it to this machine and name the copy.")
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.suffix in (".txt", ".model")) or ["vocab.txt"]
        raise CorpusError(f"the vocabulary file {path} is a directory. Name the file in it, such as {file / names[0]}.")
    if not file.is_file():
        raise CorpusError(f"the vocabulary file {path} does not exist. Correct data.tokenizer.path.")
    if (size := file.stat().st_size) > _LARGEST_FILE:
        raise CorpusError(
            f"the vocabulary file {path} has {size:,} bytes, more than {_LARGEST_FILE:,}. Correct data.tokenizer.path."
        )
    return file
