"""Build, save, load and compare tokenizers."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from bertzoo.core import atomic
from bertzoo.core.config import from_dict
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.tokenizers.byte_bpe import ByteBpe, ByteBpeTokenizer
from bertzoo.data.tokenizers.sentencepiece import SentencePiece, SentencePieceTokenizer
from bertzoo.data.tokenizers.vocabulary import Specials, Tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer

__all__ = ["ByteBpe", "SentencePiece", "Specials", "Tokenizer", "TokenizerConfig", "WordPiece"]

TokenizerConfig = WordPiece | SentencePiece | ByteBpe
AnyTokenizer = WordPieceTokenizer | SentencePieceTokenizer | ByteBpeTokenizer
_KINDS = {
    "wordpiece": (WordPiece, WordPieceTokenizer.file),
    "sentencepiece": (SentencePiece, SentencePieceTokenizer.file),
    "byte_bpe": (ByteBpe, ByteBpeTokenizer.file),
}
ALL_FILES = ("settings.json", *(file for _, file in _KINDS.values()))  # possible files of a saved tokenizer


def build(config: TokenizerConfig, texts: Callable[[], Iterator[str]]) -> AnyTokenizer:
    """Load the vocabulary at `config.path` or, if that is empty, train one on `texts()`."""
    if config.path:
        return config.load()
    if next(texts(), None) is None:
        raise CorpusError("the source has no text to train a vocabulary on. Check data.source.")
    return config.train(texts)


def save(tokenizer: Tokenizer, config: TokenizerConfig, directory: Path) -> None:
    """Write a tokenizer's vocabulary file and, last, its options as settings.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(directory)
    atomic.write_json(directory / "settings.json", asdict(replace(config, path="")))


def load(directory: Path) -> AnyTokenizer:
    """Load the tokenizer that `save` wrote; raises CorpusError naming a missing or damaged file."""
    settings_file = directory / "settings.json"
    try:
        settings = read_json(settings_file, {"kind": Literal["wordpiece", "sentencepiece", "byte_bpe"]})
        kind, file = _KINDS[settings["kind"]]
        config = from_dict(kind, {**settings, "path": str(directory / file)})
    except FileNotFoundError as error:
        raise CorpusError(f"the tokenizer's {settings_file} does not exist. Tokenise the source again.") from error
    except (ConfigError, ValueError) as error:
        raise CorpusError(
            f"the tokenizer's {settings_file} is damaged ({error}). Tokenise the source again."
        ) from error
    return config.load()


def files(kind: str) -> tuple[str, ...]:
    """Return the file names of a saved tokenizer of a `kind`, such as "wordpiece"."""
    return "settings.json", _KINDS[kind][1]


def label(tokenizer: Tokenizer) -> str:
    """Return the name and the SHA-256 of a tokenizer's vocabulary file."""
    return f"{tokenizer.file} sha256:{hashlib.sha256(tokenizer.contents).hexdigest()}"


def unlike(ours: TokenizerConfig, theirs: TokenizerConfig) -> str | None:
    """Return a phrase on how two configs differ in kind or normalisation, or None if they agree."""
    if ours.kind != theirs.kind:
        return f"kind is {theirs.kind} there and {ours.kind} here"
    pairs = zip(ours.normalization.items(), theirs.normalization.values(), strict=True)
    return next((f"{name} is {there} there and {here} here" for (name, here), there in pairs if here != there), None)


def difference(ours: Tokenizer, theirs: Tokenizer) -> str | None:
    """Return a phrase on how two tokenizers differ, or None if they give every text the same ids."""
    if (different := unlike(ours.config, theirs.config)) is not None:
        return different
    here, there = ([t.token(i) for i in range(t.vocab_size)] for t in (ours, theirs))
    if len(here) != len(there):
        return f"it has {len(there):,} tokens there and {len(here):,} here"
    for index, (mine, other) in enumerate(zip(here, there, strict=True)):
        if mine != other:
            return f"token {index} is {other!r} there and {mine!r} here"
    return None if ours.contents == theirs.contents else "the pieces have other scores there than here"


def fingerprint(directory: Path) -> str:
    """Return the SHA-256, in hex, of a saved tokenizer's vocabulary and options."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.name in ALL_FILES:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
