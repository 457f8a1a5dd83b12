"""SentencePiece as ALBERT has it (Lan et al. 2020; google-research/albert tokenization.py), through `sentencepiece`."""

import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sentencepiece

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.tokenizers.vocabulary import Specials, check_size, existing, find_specials

SPECIALS = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
    "mask": ("[MASK]",),
}
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # the library's mark of a word's beginning


@dataclass(frozen=True, kw_only=True)
class SentencePiece:
    """A SentencePiece model: loaded from the .model at `path`, or trained on the source where path is empty."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    path: str = ""
    vocab_size: int = 30000  # the largest allowed for a loaded one, the number asked for of a trained one
    lowercase: bool = True
    strip_accents: bool = True
    algorithm: Literal["unigram", "bpe"] = "unigram"  # of a trained one

    def __post_init__(self) -> None:
        if self.vocab_size < len(SPECIALS) + 1:
            raise ConfigError(
                f"vocab_size = {self.vocab_size} leaves no room beside the {len(SPECIALS)} special tokens"
            )

    @property
    def normalization(self) -> dict[str, bool]:
        """What becomes of text before it is cut into pieces."""
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents}

    def load(self) -> "SentencePieceTokenizer":
        """Reads the model at `path`; raises CorpusError naming what is wrong with it."""
        return SentencePieceTokenizer(self, existing(self.path).read_bytes(), self.path)

    def train(self, texts: Callable[[], Iterator[str]]) -> "SentencePieceTokenizer":
        """Learns a model from texts: <pad> <unk> [CLS] [SEP] [MASK] first, the same for the same texts."""
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line for text in texts() for line in self.normalize(text).splitlines()),
                model_writer=model,
                vocab_size=self.vocab_size,
                hard_vocab_limit=False,
                model_type=self.algorithm,
                pad_id=0,
                pad_piece=SPECIALS["pad"][0],
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                control_symbols=[SPECIALS[name][0] for name in ("cls", "sep", "mask")],
                character_coverage=0.9995,
                num_threads=1,  # the result depends on it
                max_sentence_length=1 << 16,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise CorpusError(
                f"a SentencePiece model of {self.vocab_size:,} entries cannot be trained on the source: {error}"
            ) from error
        return SentencePieceTokenizer(self, model.getvalue(), "trained on the source")

    def normalize(self, text: str) -> str:
        """One kind of quotation mark; lower case and no accents, where the options ask for it (preprocess_text)."""
        text = text.replace("``", '"').replace("''", '"')
        if self.strip_accents:
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text.lower() if self.lowercase else text

    def sources(self, text: str) -> list[tuple[int, int]]:
        """For every character of `normalize(text)`, from where to where it stood in the text."""
        found: list[tuple[int, int]] = []
        start = 0
        while start < len(text):
            end = start + (2 if text[start : start + 2] in ("``", "''") else 1)
            found += [(start, end)] * len(self.normalize(text[start:end]))
            start = end
        return found


class SentencePieceTokenizer:
    """A Tokenizer over a serialised SentencePiece model."""

    def __init__(self, config: SentencePiece, model: bytes, origin: str):
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise CorpusError(f"the vocabulary {origin} is not a SentencePiece model: {error}") from error
        self._model = model
        self._pieces: list[str] = [
            self._processor.id_to_piece(index) for index in range(self._processor.get_piece_size())
        ]
        check_size(len(self._pieces), config.vocab_size, origin)
        self.config = config
        self._apart = {i: self._cut(piece) for i, piece in enumerate(self._pieces) if ends_in_number_and_comma(piece)}
        self.specials: Specials = find_specials({piece: i for i, piece in enumerate(self._pieces)}, SPECIALS, origin)
        self.continuation = np.array([piece[:1].isalnum() for piece in self._pieces])

    @property
    def vocab_size(self) -> int:
        """The number of entries, special ones included."""
        return len(self._pieces)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The int32 ids of every text, without special tokens (text such as "[MASK]" is spelt out)."""
        encoded = self._processor.encode([self.config.normalize(text) for text in texts], num_threads=1)
        return [np.array(self._split(ids), np.int32) for ids in encoded]

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every text the ids as from `encode_batch`, and offsets (n,2) int32: the characters that each stands for,
        from the first to past the last.
        """
        normal = [self.config.normalize(text) for text in texts]
        protos = self._processor.encode(normal, return_type="proto", num_threads=1)
        return [
            self._offsets(proto.pieces, text, self.config.sources(source))
            for proto, text, source in zip(protos, normal, texts, strict=True)
        ]

    def _offsets(self, pieces: Any, text: str, sources: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """The ids and offsets of the pieces of a normalised text, whose characters stood at `sources`."""
        characters = np.cumsum([0, *(len(character.encode()) for character in text)])  # the library counts bytes
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for piece in pieces:
            start, end = np.searchsorted(characters, (piece.begin, piece.end)).tolist()
            parts = self._apart.get(piece.id, (piece.id,))
            for place, part in enumerate(parts):
                rest = sum(len(self._pieces[other].lstrip(_SPACE)) for other in parts[place + 1 :])
                ids.append(part)
                offsets.append((start, end - rest))
                start = end - rest
        return np.array(ids, np.int32), np.array(_outside(offsets, sources), np.int32).reshape(-1, 2)

    def _split(self, ids: list[int]) -> list[int]:
        """Numbers apart from the commas after them, as ALBERT's code has them (encode_pieces)."""
        if self._apart.keys().isdisjoint(ids):
            return ids
        return [part for index in ids for part in self._apart.get(index, (index,))]

    def _cut(self, piece: str) -> list[int]:
        """What stands for a piece such as "▁19,": those of its number, and the comma."""
        pieces = self._processor.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
        if not piece.startswith(_SPACE):  # which the library puts before every text
            pieces[0] = pieces[0].removeprefix(_SPACE)
        return [self._processor.piece_to_id(part) for part in (*pieces, ",") if part]

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text; special tokens stay visible."""
        return "".join(self._pieces[int(index)] for index in ids).replace(_SPACE, " ").strip()

    def token(self, index: int) -> str:
        """The entry with this id as the vocabulary spells it."""
        return self._pieces[index]

    def save(self, directory: Path) -> None:
        """Writes spiece.model."""
        atomic.write_bytes(directory / "spiece.model", self.contents)

    @property
    def contents(self) -> bytes:
        """The model as its file has it."""
        return self._model


def _outside(offsets: list[tuple[int, int]], sources: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets in the text, from those in what it was normalised to.

    A piece that is nothing but the mark of a word's beginning stands before its word; of the pieces of one character,
    such as a ligature, the library gives it to the last.
    """
    length = sources[-1][1] if sources else 0
    starts = [first for first, _ in sources] + [length]
    ends = [0] + [last for _, last in sources]
    return [(starts[start], max(starts[start], ends[end])) for start, end in offsets]


def ends_in_number_and_comma(piece: str) -> bool:
    """Whether ALBERT's code cuts this piece in two."""
    return piece[-1:] == "," and piece[-2:-1].isdigit()
