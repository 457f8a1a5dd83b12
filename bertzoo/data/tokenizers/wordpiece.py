"""BERT's WordPiece tokenizer (Devlin et al. 2019; google-research/bert tokenization.py), from `tokenizers`."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bertzoo.core.child import set_environment
from bertzoo.core.config import check_range
from bertzoo.core.errors import CorpusError
from bertzoo.data.tokenizers.vocabulary import WORD, LibraryTokenizer, cut, vocabulary_file

SPECIALS = {"pad": ("[PAD]",), "unk": ("[UNK]",), "cls": ("[CLS]",), "sep": ("[SEP]",), "mask": ("[MASK]",)}
LONGEST_WORD = 100  # characters; longer words become [UNK]
# A word that training skips, because the time of training grows with the square of its length.
_LONG = re.compile(rf"(?<!{WORD}){WORD}{{{10 * LONGEST_WORD},}}")


@dataclass(frozen=True, kw_only=True)
class WordPiece:
    """A WordPiece vocabulary, loaded from the vocab.txt at `path` or, if path is empty, trained on the source."""

    kind: Literal["wordpiece"] = "wordpiece"
    path: str = ""  # a vocab.txt; empty: train on the source
    vocab_size: int = 30522  # size of a trained vocabulary, or largest size of a loaded one
    lowercase: bool = True  # lower-case the text
    strip_accents: bool | None = None  # remove accents; "none": the value of lowercase
    split_cjk: bool = True  # make each Chinese character a word

    def __post_init__(self) -> None:
        advice = f"The {len(SPECIALS)} special tokens leave no room for others. Use a larger vocab_size."
        check_range(self, "vocab_size", above=len(SPECIALS), advice=advice)

    @property
    def normalization(self) -> dict[str, bool]:
        """The options that change a text before it is split into tokens, by name."""
        strip = self.lowercase if self.strip_accents is None else self.strip_accents
        return {"lowercase": self.lowercase, "strip_accents": strip, "split_cjk": self.split_cjk}

    def load(self) -> "WordPieceTokenizer":
        """Read the vocabulary at `path`; raises CorpusError if it is missing or damaged."""
        try:
            tokens = vocabulary_file(self.path).read_bytes().decode().rstrip("\n").split("\n")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"the vocabulary {self.path} is not UTF-8 text: {error.reason}. Convert it to UTF-8."
            ) from error
        if tokens[0].endswith("\r"):  # a file of Windows
            tokens = [token.removesuffix("\r") for token in tokens]
        return WordPieceTokenizer(self, tokens, self.path)

    def train(self, texts: Callable[[], Iterator[str]]) -> "WordPieceTokenizer":
        """Train a vocabulary on texts, deterministically; its first tokens are [PAD] [UNK] [CLS] [SEP] [MASK].

        The library orders the characters inside words by a hash table, which decides between candidates of equal count.
        So a first pass collects these characters, and a second pass trains with a fixed order of them.
        """
        names = [spellings[0] for spellings in SPECIALS.values()]
        with set_environment(TOKENIZERS_PARALLELISM="true"):
            characters = self._learn(texts(), names, 0)
            vocabulary = self._learn(texts(), [*names, *sorted(set(characters) - set(names))], self.vocab_size)
        return WordPieceTokenizer(self, vocabulary, "trained on the source")

    def _learn(self, texts: Iterator[str], first: list[str], size: int) -> list[str]:
        learner = _library(self, models.WordPiece(unk_token="[UNK]"))
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        learner.train_from_iterator((chunk for text in texts for chunk in cut(_LONG.sub(" ", text))), trainer)
        vocabulary = learner.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)


class WordPieceTokenizer(LibraryTokenizer):
    """Tokenizer of a list of tokens; raises CorpusError for a token that repeats or that no vocab.txt can hold."""

    file, spellings, mark = "vocab.txt", SPECIALS, "##"

    def __init__(self, config: WordPiece, tokens: list[str], origin: str):
        ids = {token: index for index, token in enumerate(tokens)}
        if len(ids) != len(tokens):
            twice = next(token for index, token in enumerate(tokens) if ids[token] != index)
            raise CorpusError(f"the vocabulary {origin} holds {twice!r} more than once. Remove one of the lines.")
        if (wrong := next((token for token in tokens if not {*"\0\r\n"}.isdisjoint(token)), None)) is not None:
            raise CorpusError(
                f"the vocabulary {origin} has the token {wrong!r} (number {ids[wrong]}), with a NUL byte or a line "
                "break. Use an undamaged copy."
            )
        super().__init__(config, tokens, ("\n".join(tokens) + "\n").encode(), origin)
        model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
        self.library = _library(config, model)
        self.library.decoder = decoders.WordPiece()

    @staticmethod
    def _continues(token: str) -> bool:
        return token.startswith(WordPieceTokenizer.mark)

    def subset(self, ids: Sequence[int]) -> "WordPieceTokenizer":
        return WordPieceTokenizer(self.config, [self._tokens[index] for index in ids], "of the remaining tokens")


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
