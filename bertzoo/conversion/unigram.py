"""SentencePiece models as Hugging Face has them: `tokenizer.json` with the pieces and what the library normalises."""

from collections.abc import Iterator

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.sentencepiece import ends_in_number_and_comma

# Of sentencepiece_model.proto: where a message holds another one, or what is wanted of it.
_TRAINER, _NORMALIZER = 2, 3
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARACTER_MAP = 2


def library(model: bytes, lowercase: bool, strip_accents: bool, specials: dict[str, str]) -> tokenizers.Tokenizer:
    """AlbertTokenizer's pipeline for a serialised SentencePiece model; raises UserError where it is not unigram."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = _pieces(processor)
    fields = dict(_fields(model))
    trainer, normalizer = dict(_fields(_bytes(fields, _TRAINER))), dict(_fields(_bytes(fields, _NORMALIZER)))
    if trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM:
        raise UserError("Hugging Face's AlbertTokenizer reads unigram SentencePiece models only, but this is another")
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=processor.unk_id(), byte_fallback=False))
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if strip_accents:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase:
        steps.append(normalizers.Lowercase())
    if characters := _bytes(normalizer, _CHARACTER_MAP):
        steps.append(normalizers.Precompiled(characters))
    made.normalizer = normalizers.Sequence(steps)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, processor.piece_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    made.add_special_tokens(list(dict.fromkeys(specials.values())))
    return made


def difference(model: bytes, theirs: list[tuple[str, float]]) -> str | None:
    """In words, where the pieces of a serialised model differ from tokenizer.json's; None where they do not."""
    ours = _pieces(sentencepiece.SentencePieceProcessor(model_proto=model))
    if len(ours) != len(theirs):
        return f"{len(ours):,} entries and {len(theirs):,}"
    for index, ((piece, score), (other, given)) in enumerate(zip(ours, theirs, strict=True)):
        if piece != other:
            return f"entry {index} is {piece!r} and {other!r}"
        if abs(score - given) > 1e-4:
            return f"the score of {piece!r} is {score} and {given}"
    return None


def _pieces(processor: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    """Pieces and scores as the releases' tokenizer.json has them: lower by 100 where ALBERT's code cuts a piece in two,
    so that the library takes the two parts instead.
    """
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    return [(piece, score - 100 * ends_in_number_and_comma(piece)) for piece, score in pieces]


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    found = fields.get(number, b"")
    return found if isinstance(found, bytes) else b""


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a serialised protocol buffer, by number: integers and bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}.get(wire) or varint()
        yield number, message[place : place + size]
        place += size
