"""Tokenizer files of a Hugging Face directory <-> our tokenizers."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertzoo.convert import unigram
from bertzoo.convert.pretrained import fits
from bertzoo.data import tokenizer as saved
from bertzoo.data.sentencepiece import SentencePiece, SentencePieceTokenizer
from bertzoo.data.vocabulary import Tokenizer, existing
from bertzoo.data.wordpiece import LONGEST_WORD, WordPiece, WordPieceTokenizer
from bertzoo.errors import CorpusError, UserError

WHOLE, OPTIONS, VOCABULARY, PIECES = "tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model"
_BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
_ALBERT = {**_BERT, "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "[CLS]", "eos_token": "[SEP]"}


def read(directory: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face directory, or None where it has none.

    Raises UserError naming the file that is damaged, contradicts another one, or asks for what ours does not do.
    """
    options = _json(directory / OPTIONS) if (directory / OPTIONS).is_file() else {}
    whole = _json(directory / WHOLE) if (directory / WHOLE).is_file() else None
    if (directory / PIECES).is_file():
        return _sentencepiece(directory, options, whole)
    if whole is not None:
        return _wordpiece(directory, options, whole)
    if (directory / VOCABULARY).is_file():
        config = WordPiece(
            path=str(directory / VOCABULARY),
            vocab_size=1 << 31,
            lowercase=options.get("do_lower_case", True),
            strip_accents=options.get("strip_accents"),
            split_cjk=options.get("tokenize_chinese_chars", True),
        )
        return config.load()
    return None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
        raise ValueError("not a table")
    except ValueError as error:
        raise CorpusError(f"{path} is damaged: {error}") from error


def _wordpiece(directory: Path, options: dict[str, Any], whole: dict[str, Any]) -> Tokenizer:
    path = directory / WHOLE
    model, normalizer = whole.get("model") or {}, whole.get("normalizer") or {}
    if model.get("type") == "Unigram":
        raise UserError(f"{path} is of a SentencePiece model, which is read from {PIECES}, but {directory} has none")
    asked = {
        "model.type": (model.get("type"), "WordPiece"),
        "model.unk_token": (model.get("unk_token"), "[UNK]"),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), "##"),
        "model.max_input_chars_per_word": (model.get("max_input_chars_per_word"), LONGEST_WORD),
        "normalizer.type": (normalizer.get("type"), "BertNormalizer"),
        "normalizer.clean_text": (normalizer.get("clean_text"), True),
        "pre_tokenizer.type": ((whole.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer"),
    }
    for name, (value, ours) in asked.items():
        if value != ours:
            raise UserError(f"{path}: {name} = {value!r} is not supported, only {ours!r} is")
    numbers: dict[str, int] = model["vocab"]
    entries = sorted(numbers, key=numbers.__getitem__)
    if [numbers[entry] for entry in entries] != list(range(len(entries))):
        raise UserError(f"{path}: the numbers of its {len(entries):,} entries have gaps")
    for token in whole.get("added_tokens") or []:
        if numbers.get(token["content"]) != token["id"]:
            raise UserError(f"{path}: the added token {token['content']!r} is not an entry of the vocabulary")
    lowercase = normalizer.get("lowercase", True)
    if options.get("do_lower_case", lowercase) != lowercase:
        raise UserError(f"{path} and {OPTIONS} disagree on whether text is put into lower case")
    config = WordPiece(
        vocab_size=max(len(entries), 6),
        lowercase=lowercase,
        strip_accents=normalizer.get("strip_accents"),
        split_cjk=normalizer.get("handle_chinese_chars", True),
    )
    if (directory / VOCABULARY).is_file():
        plain = existing(str(directory / VOCABULARY)).read_text(encoding="utf-8").rstrip("\n").split("\n")
        if [entry.rstrip("\r") for entry in plain] != entries:
            raise UserError(
                f"{directory / VOCABULARY} has {len(plain):,} entries and {WHOLE} {len(entries):,}: they disagree"
            )
    return WordPieceTokenizer(config, entries, str(path))


def _sentencepiece(directory: Path, options: dict[str, Any], whole: dict[str, Any] | None) -> Tokenizer:
    config = SentencePiece(
        path=str(directory / PIECES),
        vocab_size=1 << 31,
        lowercase=options.get("do_lower_case", True),
        strip_accents=not options.get("keep_accents", False),
    )
    tokenizer = config.load()
    if whole is not None and len(whole["model"]["vocab"]) != tokenizer.vocab_size:
        raise UserError(
            f"{directory / PIECES} has {tokenizer.vocab_size:,} entries and {WHOLE} "
            f"{len(whole['model']['vocab']):,}: they disagree"
        )
    return tokenizer


def write(tokenizer: Tokenizer, directory: Path, model: Any) -> None:
    """Write the files that `AutoTokenizer.from_pretrained` reads.

    A vocabulary with far fewer entries than the model's table has rows is filled up with entries [unused0] and so on,
    as BERT's own is, so that its size fits; no text ever becomes one of them.
    """
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if model.token_types else ["input_ids", "attention_mask"]
    options: dict[str, Any] = {"model_max_length": model.max_positions, "model_input_names": inputs}
    match tokenizer:
        case WordPieceTokenizer():
            names = _BERT
            entries = [tokenizer.token(index) for index in range(tokenizer.vocab_size)]
            if not fits(len(entries), model.vocab_size):
                unused = (f"[unused{number}]" for number in range(model.vocab_size + len(entries)))
                taken = set(entries)
                fresh = (name for name in unused if name not in taken)
                entries += [next(fresh) for _ in range(model.vocab_size - len(entries))]
            tokenizer = WordPieceTokenizer(
                WordPiece(
                    vocab_size=len(entries),
                    lowercase=tokenizer.config.lowercase,
                    strip_accents=tokenizer.config.strip_accents,
                    split_cjk=tokenizer.config.split_cjk,
                ),
                entries,
                str(directory),
            )
            options |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": tokenizer.config.lowercase,
                "strip_accents": tokenizer.config.strip_accents,
                "tokenize_chinese_chars": tokenizer.config.split_cjk,
            }
            _library(entries, tokenizer).save(str(directory / WHOLE))
        case SentencePieceTokenizer():
            names = _ALBERT
            options |= {
                "tokenizer_class": "AlbertTokenizer",
                "do_lower_case": tokenizer.config.lowercase,
                "keep_accents": not tokenizer.config.strip_accents,
            }
            tokenizer.save(directory)
            pieces, kept = (directory / PIECES).read_bytes(), tokenizer.config
            unigram.library(pieces, kept.lowercase, kept.strip_accents, names).save(str(directory / WHOLE))
        case _:
            raise ValueError(f"no Hugging Face files for {tokenizer}")
    tokenizer.save(directory)
    _dump(directory / OPTIONS, options | names)
    _dump(directory / "special_tokens_map.json", names)


def _dump(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def _library(entries: list[str], tokenizer: WordPieceTokenizer) -> tokenizers.Tokenizer:
    """The whole pipeline of BERT's tokenizer, special tokens included."""
    numbers = {entry: index for index, entry in enumerate(entries)}
    config = tokenizer.config
    library = tokenizers.Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.split_cjk,
        strip_accents=config.strip_accents,
        lowercase=config.lowercase,
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, numbers[name]) for name in ("[CLS]", "[SEP]")],
    )
    library.add_special_tokens(list(_BERT.values()))
    return library


def keep(tokenizer: Tokenizer, directory: Path) -> None:
    """Write a tokenizer as a directory of our own has it."""
    if not isinstance(tokenizer, WordPieceTokenizer | SentencePieceTokenizer):
        raise ValueError(f"no files for {tokenizer}")
    saved.save(tokenizer, tokenizer.config, directory)
