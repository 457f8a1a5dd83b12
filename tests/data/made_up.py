"""Made-up English-like documents, and the settings of small corpora of them."""

import random
from pathlib import Path

from bertzoo.data.settings import Data
from bertzoo.data.tokenizers.wordpiece import WordPiece

SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu", "ing", "er"]


def made_up_documents(count: int, seed: int = 0, longest: int = 30) -> list[list[str]]:
    """Documents of 1 to `longest` sentences of 8 to 30 words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(400)]
    return [
        [" ".join(rng.choices(words, k=rng.randint(8, 30))).capitalize() + "." for _ in range(rng.randint(1, longest))]
        for _ in range(count)
    ]


def write_documents(path: Path, documents: list[list[str]]) -> Path:
    """A text file with one sentence a line and a blank line between documents."""
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


def contents(directory: Path) -> dict[str, bytes]:
    """The bytes of every file below a directory, by its path there."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def small(source: Path | str, **changes) -> Data:
    """The settings of small test corpora."""
    settings = {"heldout": 0.1, "piece_bytes": 40_000, "tokenizer": WordPiece(vocab_size=300), "sentences": "lines"}
    return Data(source=str(source), **{**settings, **changes})
