"""Convert the pieces and the normalisation of SentencePiece models to Hugging Face's `tokenizer.json`."""

from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.sentencepiece import ends_in_number_and_comma, message_fields, sentencepiece_library

# Field numbers and a value of sentencepiece_model.proto.
_TRAINER, _NORMALIZER = 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARACTER_MAP = 2


def build_albert_pipeline(
    model: bytes, lowercase: bool, strip_accents: bool, specials: dict[str, str]
) -> tokenizers.Tokenizer:
    """Return AlbertTokenizer's pipeline for a serialised SentencePiece model.

    specials: special tokens by name, such as {"pad_token": "<pad>"}. Raises UserError if the model is not unigram.
    """
    processor = sentencepiece_library().SentencePieceProcessor(model_proto=model)
    pieces = _pieces(processor)
    fields = _as_dict(model)
    trainer, normalizer = _as_dict(_bytes(fields, _TRAINER)), _as_dict(_bytes(fields, _NORMALIZER))
    if trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM:
        raise UserError(
            "Hugging Face's AlbertTokenizer reads only unigram SentencePiece models, not this one. Use --to=bertzoo."
        )
    library = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=processor.unk_id(), byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if strip_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if characters := _bytes(normalizer, _CHARACTER_MAP):
        steps.append(normalizers.Precompiled(characters))
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    library.decoder = decoders.Metaspace()
    library.post_processor = pair_template(processor.piece_to_id)
    library.add_special_tokens(list(dict.fromkeys(specials.values())))
    return library


def pair_template(token_to_id: Callable[[str], int | None]) -> processors.TemplateProcessing:
    """Return the templates of a single text, [CLS] A [SEP], and of a pair of texts, [CLS] A [SEP] B [SEP]."""
    return processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def describe_difference(model: bytes, theirs: list[tuple[str, float]]) -> str | None:
    """Describe the first difference between a SentencePiece model and tokenizer.json; None if they agree.

    model: the serialised SentencePiece model.
    theirs: (piece, score) of every entry of tokenizer.json.
    """
    ours = _pieces(sentencepiece_library().SentencePieceProcessor(model_proto=model))
    if len(ours) != len(theirs):
        return f"the SentencePiece model has {len(ours):,} entries and tokenizer.json has {len(theirs):,}"
    for index, ((piece, score), (their_piece, their_score)) in enumerate(zip(ours, theirs, strict=True)):
        if piece != their_piece:
            return f"entry {index} is {piece!r} in the SentencePiece model and {their_piece!r} in tokenizer.json"
        if abs(score - their_score) > 1e-4:
            return f"the score of {piece!r} is {score} in the SentencePiece model and {their_score} in tokenizer.json"
    return None


def _pieces(processor: Any) -> list[tuple[str, float]]:
    """Return pieces and scores as in the tokenizer.json of ALBERT's releases.

    ALBERT's code cuts a piece such as "9," in two. Such a piece gets a score lower by 100, so that `tokenizers` prefers
    the two parts.
    """
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    return [(piece, score - 100 * ends_in_number_and_comma(piece)) for piece, score in pieces]


def _as_dict(message: bytes) -> dict[int, int | bytes]:
    return {number: value for number, value, _ in message_fields(message)}


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    return value if isinstance(value, bytes) else b""
