"""ALBERT's SentencePiece tokenizer (Lan et al. 2020; google-research/albert tokenization.py), from `sentencepiece`."""

import functools
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertzoo.core.config import check_range
from bertzoo.core.errors import CorpusError, needs_extra
from bertzoo.data.tokenizers.vocabulary import WORD, Tokenizer, cut, paragraphs, vocabulary_file

SPECIALS = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]",),
    "sep": ("[SEP]",),
    "mask": ("[MASK]",),
}
_LONGEST = 1 << 16  # bytes of a training text; the library drops longer texts without a message
_PIECE = 1  # field number of sentencepiece_model.proto; the package's pb2 module needs a newer protobuf
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # the library marks the beginning of a word with it


def sentencepiece_library() -> Any:
    """Import the package; raises UserError if it is not installed."""
    with needs_extra("a SentencePiece vocabulary", "sentencepiece"):
        import sentencepiece
    return sentencepiece


@dataclass(frozen=True, kw_only=True)
class SentencePiece:
    """A SentencePiece model, loaded from the .model at `path` or, if path is empty, trained on the source."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    path: str = ""  # a .model file; empty: train on the source
    vocab_size: int = 30000  # pieces of a trained model, or the most pieces of a loaded one
    lowercase: bool = True  # lower-case the text
    strip_accents: bool = True  # remove accents
    algorithm: Literal["unigram", "bpe"] = "unigram"  # kind of model to train

    def __post_init__(self) -> None:
        advice = f"The {len(SPECIALS)} special tokens leave no room for others. Use a larger vocab_size."
        check_range(self, "vocab_size", above=len(SPECIALS), advice=advice)

    @property
    def normalization(self) -> dict[str, bool]:
        """The options that change a text before it is split into pieces, by name."""
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents}

    def load(self) -> "SentencePieceTokenizer":
        """Read the model at `path`; raises CorpusError if it is missing or damaged."""
        return SentencePieceTokenizer(self, vocabulary_file(self.path).read_bytes(), self.path)

    def train(self, texts: Callable[[], Iterator[str]]) -> "SentencePieceTokenizer":
        """Train a model on texts, deterministically; its first pieces are <pad> <unk> [CLS] [SEP] [MASK]."""
        model = io.BytesIO()
        try:
            sentencepiece_library().SentencePieceTrainer.train(
                sentence_iterator=(
                    chunk
                    for text in texts()
                    for line in map(self.normalize, paragraphs(text))
                    for chunk in cut(line, _LONGEST // 4)
                ),
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
                num_threads=1,  # the result depends on this number
                max_sentence_length=_LONGEST,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise CorpusError(
                f"a SentencePiece model of {self.vocab_size:,} pieces cannot be trained on the source: {error}. "
                "Use more text or a smaller vocab_size."
            ) from error
        return SentencePieceTokenizer(self, model.getvalue(), "trained on the source")

    def normalize(self, text: str) -> str:
        """Unify quotation marks and, if the options are set, remove case and accents (ALBERT's preprocess_text)."""
        text = text.replace("``", '"').replace("''", '"')
        if self.strip_accents:
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text.lower() if self.lowercase else text

    def source_spans(self, text: str) -> list[tuple[int, int]]:
        """Return, for every character of `normalize(text)`, its source in `text` as a span (start, end)."""
        spans: list[tuple[int, int]] = []
        start = 0
        while start < len(text):
            end = start + (2 if text[start : start + 2] in ("``", "''") else 1)
            spans += [(start, end)] * len(self.normalize(text[start:end]))
            start = end
        return spans


class SentencePieceTokenizer(Tokenizer):
    """Tokenizer of a serialised SentencePiece model; the constructor raises CorpusError if the model is damaged."""

    file, spellings, mark = "spiece.model", SPECIALS, _SPACE

    def __init__(self, config: SentencePiece, model: bytes, origin: str):
        try:
            self._processor = sentencepiece_library().SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise CorpusError(
                f"the vocabulary {origin} is not a SentencePiece model: {error}. Name another data.tokenizer.path."
            ) from error
        pieces = [self._processor.id_to_piece(index) for index in range(self._processor.get_piece_size())]
        super().__init__(config, pieces, model, origin)
        self._apart = {i: self._cut(piece) for i, piece in enumerate(pieces) if ends_in_number_and_comma(piece)}

    @staticmethod
    def _continues(token: str) -> bool:
        return token[:1].isalnum()

    @functools.cached_property
    def _joined(self) -> np.ndarray:
        """Whether each piece begins and ends within a word, (2,V): with a letter, mark or digit, not Chinese."""

        def inside(character: str) -> bool:
            letter = character.isalnum() or unicodedata.category(character or " ").startswith("M")
            return letter and re.match(WORD, character) is not None

        ends = [inside(token[-1:]) or token == _SPACE for token in self._tokens]
        return np.array([[inside(token[:1]) for token in self._tokens], ends])

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        starts = ~self._joined[0, ids]
        starts[1:] |= ~self._joined[1, ids[:-1]]
        starts[:1] = True
        return starts

    def subset(self, ids: Sequence[int]) -> "SentencePieceTokenizer":
        fields = list(message_fields(self.contents))
        pieces = [raw for number, _, raw in fields if number == _PIECE]
        rest = [raw for number, _, raw in fields if number != _PIECE]
        model = b"".join([*(pieces[index] for index in ids), *rest])
        return SentencePieceTokenizer(self.config, model, "of the remaining pieces")

    def occurring(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        for text in texts:
            ids = self._processor.encode(self.config.normalize(text))
            yield np.array([*ids, *(new for index in ids for new in self._apart.get(index, ()))], np.int32)

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self._processor.encode([self.config.normalize(text) for text in texts], num_threads=1)
        return [np.array(self._split(ids), np.int32) for ids in encoded]

    def _encode_offsets(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        normal = [self.config.normalize(text) for text in texts]
        protos = self._processor.encode(normal, return_type="proto", num_threads=1)
        return [
            self._offsets(proto.pieces, text, self.config.source_spans(source))
            for proto, text, source in zip(protos, normal, texts, strict=True)
        ]

    def _offsets(self, pieces: Any, text: str, sources: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids (n,) of `pieces` of the normalised `text`, and their offsets (n,2) in the original text.

        sources: span in the original text of each character of `text`. A piece that only marks the beginning of a word
        gets an empty span before the word. If a character, such as a ligature, becomes several pieces, the library
        assigns it to the last of these.
        """
        length = sources[-1][1] if sources else 0
        starts = [*(first for first, _ in sources), length]
        ends = [0, *(last for _, last in sources)]
        characters = np.cumsum([0, *(len(character.encode()) for character in text)])  # the library counts bytes
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for piece in pieces:
            start, end = np.searchsorted(characters, (piece.begin, piece.end)).tolist()
            replacements = self._apart.get(piece.id, (piece.id,))
            for position, index in enumerate(replacements, 1):
                rest = sum(len(self._tokens[later].lstrip(_SPACE)) for later in replacements[position:])
                ids.append(index)
                offsets.append((starts[start], max(starts[start], ends[end - rest])))
                start = end - rest
        return np.array(ids, np.int32), np.array(offsets, np.int32).reshape(-1, 2)

    def _split(self, ids: list[int]) -> list[int]:
        """Replace the id of a piece such as "19," by the ids of "19" and of ",", as ALBERT's encode_pieces does."""
        if self._apart.keys().isdisjoint(ids):
            return ids
        return [new for index in ids for new in self._apart.get(index, (index,))]

    def _cut(self, piece: str) -> list[int]:
        """Return the ids that replace a piece such as "▁19,": the ids of the number, then of the comma."""
        pieces = self._processor.encode(piece[:-1].replace(_SPACE, ""), out_type=str)
        if not piece.startswith(_SPACE):  # the library adds a _SPACE to every text
            pieces[0] = pieces[0].removeprefix(_SPACE)
        return [self._processor.piece_to_id(text) for text in (*pieces, ",") if text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self._tokens[int(index)] for index in ids).replace(_SPACE, " ").strip()


def ends_in_number_and_comma(piece: str) -> bool:
    """Return whether a piece ends in a digit and a comma; ALBERT's code cuts such a piece in two."""
    return piece[-1:] == "," and piece[-2:-1].isdigit()


def message_fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield number, value (an integer or bytes) and serialised form of each field of a protocol buffer."""
    offset = 0

    def varint() -> int:
        nonlocal offset
        value = shift = 0
        while True:
            byte = message[offset]
            offset += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while offset < len(message):
        start = offset
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            value: int | bytes = varint()
        else:
            size = {1: 8, 5: 4}.get(wire) or varint()
            value = message[offset : offset + size]
            offset += size
        yield number, value, message[start:offset]
