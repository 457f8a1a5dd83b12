"""Tokenizers as frozen configs, and tokenizers in a directory."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bertzoo.core import atomic
from bertzoo.core.errors import CorpusError
from bertzoo.data.tokenizers.sentencepiece import SentencePiece, SentencePieceTokenizer
from bertzoo.data.tokenizers.vocabulary import TRAIN_BYTES, Specials, Tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer

__all__ = [
    "ALL_FILES",
    "SentencePiece",
    "Specials",
    "Tokenizer",
    "TokenizerConfig",
    "WordPiece",
    "build",
    "difference",
    "files",
    "fingerprint",
    "label",
    "load",
    "save",
    "unlike",
]

TokenizerConfig = WordPiece | SentencePiece
_KINDS = {"wordpiece": (WordPiece, "vocab.txt"), "sentencepiece": (SentencePiece, "spiece.model")}
ALL_FILES = ("settings.json", *(file for _, file in _KINDS.values()))  # of any kind


def build(config: TokenizerConfig, texts: Callable[[], Iterator[str]]) -> WordPieceTokenizer | SentencePieceTokenizer:
    """Loads the vocabulary at the config's path, or trains one on the first TRAIN_BYTES of what `texts()` gives."""
    if config.path:
        return config.load()
    if next(texts(), None) is None:
        raise CorpusError("no text was found to train a vocabulary on: check the source")
    return config.train(lambda: _limited(texts()))


def _limited(texts: Iterator[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        yield text
        size += len(text.encode())
        if size >= TRAIN_BYTES:
            return


def save(tokenizer: Tokenizer, config: TokenizerConfig, directory: Path) -> None:
    """Writes a tokenizer and its options; the directory is complete once settings.json is there."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(directory)
    settings = asdict(replace(config, path=""))
    atomic.write_json(directory / "settings.json", settings)


def load(directory: Path) -> WordPieceTokenizer | SentencePieceTokenizer:
    """Reads what `save` wrote; raises CorpusError naming the file that is missing or damaged."""
    settings_file = directory / "settings.json"
    try:
        settings = json.loads(settings_file.read_text(encoding="utf-8"))
        kind, file = _KINDS[settings["kind"]]
        config = kind(**{**settings, "path": str(directory / file)})
    except FileNotFoundError as error:
        raise CorpusError(f"the tokenizer's {settings_file} does not exist: tokenise the source again") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorpusError(f"the tokenizer's {settings_file} is damaged ({error}): tokenise the source again") from error
    return config.load()


def files(kind: str) -> tuple[str, ...]:
    """What a saved tokenizer of a kind consists of."""
    return "settings.json", _KINDS[kind][1]


def label(tokenizer: Tokenizer) -> str:
    """The name and the hash of a tokenizer's vocabulary file."""
    _, file = _KINDS[tokenizer.config.kind]
    return f"{file} sha256:{hashlib.sha256(tokenizer.contents).hexdigest()}"


def unlike(ours: TokenizerConfig, theirs: TokenizerConfig) -> str | None:
    """In words, how two configs differ in what becomes of a text; None where they do not, vocabularies apart."""
    if ours.kind != theirs.kind:
        return f"kind is {theirs.kind} there and {ours.kind} here"
    pairs = zip(ours.normalization.items(), theirs.normalization.values(), strict=True)
    return next((f"{name} is {there} there and {here} here" for (name, here), there in pairs if here != there), None)


def difference(ours: Tokenizer, theirs: Tokenizer) -> str | None:
    """In words, how two tokenizers differ; None where they give any text the same ids."""
    if (found := unlike(ours.config, theirs.config)) is not None:
        return found
    here, there = ([t.token(i) for i in range(t.vocab_size)] for t in (ours, theirs))
    if len(here) != len(there):
        return f"it has {len(there):,} entries there and {len(here):,} here"
    for index, (entry, other) in enumerate(zip(here, there, strict=True)):
        if entry != other:
            return f"entry {index} is {other!r} there and {entry!r} here"
    return None if ours.contents == theirs.contents else "the pieces have other scores there than here"


def fingerprint(directory: Path) -> str:
    """The sha256 of a saved tokenizer: its vocabulary and its options."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.name in ALL_FILES:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
