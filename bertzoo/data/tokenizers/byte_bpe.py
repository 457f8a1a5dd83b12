"""Byte pair encoding over bytes (Sennrich et al. 2016, §3.2; GPT-2), from `tokenizers`: no text is unknown."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bertzoo.core.config import check_range
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import CorpusError
from bertzoo.data.tokenizers.vocabulary import LibraryTokenizer, cut, vocabulary_file

SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
_SPACE = "Ġ"  # the byte of a space


@dataclass(frozen=True, kw_only=True)
class ByteBpe:
    """A vocabulary of byte pairs over text in Unicode's NFC, loaded from the tokenizer.json at `path` or trained."""

    kind: Literal["byte_bpe"] = "byte_bpe"
    path: str = ""  # a tokenizer.json; empty: train on the source
    vocab_size: int = 50368  # size of a trained vocabulary, or largest size of a loaded one

    def __post_init__(self) -> None:
        advice = "The special tokens and the bytes need as many ids. Use a larger vocab_size."
        check_range(self, "vocab_size", least=len(SPECIALS) + len(_ALPHABET), advice=advice)

    @property
    def normalization(self) -> dict[str, bool]:
        """The options that change a text before it is split into tokens, by name: both off."""
        return {"lowercase": False, "strip_accents": False}

    def load(self) -> "ByteBpeTokenizer":
        """Read the vocabulary at `path`; raises CorpusError if it is missing or damaged."""
        return ByteBpeTokenizer(self, vocabulary_file(self.path).read_bytes(), self.path)

    def train(self, texts: Callable[[], Iterator[str]]) -> "ByteBpeTokenizer":
        """Train a vocabulary on texts; its first tokens are [PAD] [UNK] [CLS] [SEP] [MASK], then the bytes."""
        library = tokenizers.Tokenizer(models.BPE())
        library.normalizer = normalizers.NFC()
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        names = [spellings[0] for spellings in SPECIALS.values()]
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size, special_tokens=names, initial_alphabet=_ALPHABET, show_progress=False
        )
        library.train_from_iterator((chunk for text in texts() for chunk in cut(text)), trainer)
        return ByteBpeTokenizer(self, library.to_str(), "trained on the source")


class ByteBpeTokenizer(LibraryTokenizer):
    """Tokenizer of a tokenizer.json with a BPE model over bytes; the constructor raises CorpusError for other files."""

    file, spellings, mark = "tokenizer.json", SPECIALS, _SPACE
    mask_takes_space = True

    def __init__(self, config: ByteBpe, file: bytes | str, origin: str):
        try:
            table = parse_json(file)
            self.library = tokenizers.Tokenizer.from_str(file if isinstance(file, str) else file.decode())
        except Exception as error:  # the library raises no narrower class
            raise CorpusError(f"the vocabulary {origin} is no tokenizer.json: {error}. Name another file.") from error
        splitting = table.get("pre_tokenizer") or {}
        if table["model"].get("dropout"):
            raise CorpusError(f"the vocabulary {origin} has dropout, which changes the tokens of a text. Remove it.")
        if not isinstance(self.library.model, models.BPE) or splitting.get("type") != "ByteLevel":
            raise CorpusError(
                f"the vocabulary {origin} has the model {table['model'].get('type')} after "
                f"{splitting.get('type')}, not BPE after ByteLevel. Use a tokenizer of byte pairs."
            )
        vocabulary = self.library.get_vocab(with_added_tokens=True)
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
            raise CorpusError(f"the vocabulary {origin} skips a number of its {len(tokens):,}. Use an undamaged copy.")
        super().__init__(config, tokens, b"", origin)
        self.continuable = np.array([_in_word(token[-1:]) or token == _SPACE for token in tokens])
        names = {field: tokens[index] for field, index in vars(self.specials).items()}
        template = processors.TemplateProcessing(
            single=f"{names['cls']} $A {names['sep']}",
            pair=f"{names['cls']} $A {names['sep']} $B {names['sep']}",
            special_tokens=[(names[field], getattr(self.specials, field)) for field in ("cls", "sep")],
        )
        # A token's offsets leave out the space that it holds.
        self.library.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template])
        self.library.no_padding()
        self.library.no_truncation()
        self.contents = self.library.to_str(pretty=True).encode()
        self.library.encode_special_tokens = True  # their names in a text are text
        self._merges = {"".join(pair): pair for pair in map(_pair, table["model"]["merges"])}

    @staticmethod
    def _continues(token: str) -> bool:
        return _in_word(token[:1])

    @property
    def needed(self) -> set[int]:
        return super().needed | {index for index, token in enumerate(self._tokens) if token in _ALPHABET}

    def spelling(self, index: int) -> str:
        text = self.library.decode([index], skip_special_tokens=False)
        return self._tokens[index] if "\ufffd" in text else text

    def subset(self, ids: Sequence[int]) -> "ByteBpeTokenizer":
        table, new_ids = parse_json(self.contents), {self._tokens[index]: new for new, index in enumerate(ids)}
        model = table["model"]
        model["vocab"] = {token: new_ids[token] for token in model["vocab"] if token in new_ids}
        model["merges"] = [
            list(pair) for token, pair in self._merges.items() if token in new_ids and {*pair} <= new_ids.keys()
        ]
        table["added_tokens"] = [
            added | {"id": new_ids[added["content"]]} for added in table["added_tokens"] if added["content"] in new_ids
        ]
        table["post_processor"] = None
        return ByteBpeTokenizer(self.config, json.dumps(table), "of the remaining tokens")

    def occurring(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the ids of each text's tokens, and of the tokens that were merged to them."""
        ids = {token: index for index, token in enumerate(self._tokens)}
        for encoded in self.encode_batch(texts):
            tokens = [self._tokens[index] for index in encoded]
            for token in tokens:  # the list grows by the two tokens of each merge
                tokens += self._merges.get(token, ())
            yield np.array([ids[token] for token in tokens], np.int32)


def _in_word(byte: str) -> bool:
    """Return whether a byte, as tokens spell it, is a letter, a digit or a byte of a character beyond ASCII."""
    return byte.isalnum() if byte.isascii() else not "\u0100" <= byte <= "\u0121"  # the bytes 0 to 32 and 127


def _pair(merge: Any) -> tuple[str, str]:
    """Return the two tokens of a merge, which older files write as one text."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second
