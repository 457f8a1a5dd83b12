"""Tokenizers as frozen configs, and tokenizers in a directory."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from bertzoo.data.sentencepiece import SentencePiece, SentencePieceTokenizer
from bertzoo.data.vocabulary import TRAIN_BYTES, Specials, Tokenizer, write_atomically
from bertzoo.data.wordpiece import WordPiece, WordPieceTokenizer
from bertzoo.errors import CorpusError

__all__ = [
    "SentencePiece",
    "Specials",
    "Tokenizer",
    "TokenizerConfig",
    "WordPiece",
    "build",
    "fingerprint",
    "load",
    "save",
]

TokenizerConfig = WordPiece | SentencePiece
_KINDS = {"wordpiece": (WordPiece, "vocab.txt"), "sentencepiece": (SentencePiece, "spiece.model")}


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
    write_atomically(directory / "settings.json", (json.dumps(settings, indent=1) + "\n").encode())


def load(directory: Path) -> WordPieceTokenizer | SentencePieceTokenizer:
    """Reads what `save` wrote; raises CorpusError naming the file that is missing or damaged."""
    settings_file = directory / "settings.json"
    try:
        settings = json.loads(settings_file.read_text(encoding="utf-8"))
        kind, file = _KINDS[settings["kind"]]
        config = kind(**{**settings, "path": str(directory / file)})
    except FileNotFoundError as error:
        raise CorpusError(f"the tokenizer's {settings_file} does not exist: tokenise the source again") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"the tokenizer's {settings_file} is damaged ({error}): tokenise the source again") from error
    return config.load()


def fingerprint(directory: Path) -> str:
    """The sha256 of a saved tokenizer: its vocabulary and its options."""
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.name in ("settings.json", *(file for _, file in _KINDS.values())):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
