"""Tokenizer files of a Hugging Face directory <-> our tokenizers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertzoo.conversion import settings, unigram
from bertzoo.conversion.pretrained import fits
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers import tokenizer as saved
from bertzoo.data.tokenizers.sentencepiece import SentencePiece, SentencePieceTokenizer
from bertzoo.data.tokenizers.vocabulary import Tokenizer, existing
from bertzoo.data.tokenizers.wordpiece import LONGEST_WORD, WordPiece, WordPieceTokenizer

WHOLE, VOCABULARY, PIECES = "tokenizer.json", "vocab.txt", "spiece.model"
_BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
_ALBERT = {**_BERT, "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "[CLS]", "eos_token": "[SEP]"}


def read(directory: Path) -> Tokenizer | None:
    """The tokenizer of a Hugging Face directory, or None where it has none.

    Raises UserError naming the file that is damaged, contradicts another one, or asks for what ours does not do.
    """
    settings.check_foreign(directory)
    pieces, plain, path = directory / PIECES, directory / VOCABULARY, directory / WHOLE
    if pieces.is_file() and plain.is_file():
        raise UserError(f"{directory} holds both {PIECES} and {VOCABULARY}: remove the one that is not its vocabulary")
    whole = settings.table(path)
    if pieces.is_file():
        tokenizer = _sentencepiece(directory, whole)
    elif path.is_file():
        tokenizer = _wordpiece(directory, whole)
    elif plain.is_file():
        options = settings.READ["wordpiece"] | settings.read(directory, "wordpiece")
        tokenizer = _config("wordpiece", str(plain), options).load()
    else:
        for name in (settings.OPTIONS, settings.SPECIALS, settings.ADDED):
            if (directory / name).is_file():
                raise UserError(f"{directory} has {name}, but neither {WHOLE}, {VOCABULARY} nor {PIECES}")
        return None
    settings.check_tokens(directory, tokenizer, whole, path)
    return tokenizer


def _wordpiece(directory: Path, whole: dict[str, Any]) -> Tokenizer:
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
    numbers = model.get("vocab")
    if not isinstance(numbers, dict) or not all(isinstance(number, int) for number in numbers.values()):
        raise UserError(f"{path} is damaged: its vocabulary is no table of numbers")
    entries = sorted(numbers, key=numbers.__getitem__)
    if [numbers[entry] for entry in entries] != list(range(len(entries))):
        raise UserError(f"{path}: the numbers of its {len(entries):,} entries have gaps")
    own = {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }
    config = _agreed(directory, "wordpiece", "", own)
    if (directory / VOCABULARY).is_file():
        plain = existing(str(directory / VOCABULARY)).read_text(encoding="utf-8").rstrip("\n").split("\n")
        _check_same([entry.rstrip("\r") for entry in plain], entries, directory / VOCABULARY)
    return WordPieceTokenizer(replace(config, vocab_size=max(len(entries), 6)), entries, str(path))


def _check_same(plain: list[str], entries: list[str], path: Path) -> None:
    if len(plain) != len(entries):
        raise UserError(f"{path} has {len(plain):,} entries and {WHOLE} {len(entries):,}: they disagree")
    for index, (entry, other) in enumerate(zip(plain, entries, strict=True)):
        if entry != other:
            raise UserError(f"{path} and {WHOLE} disagree: entry {index} is {entry!r} and {other!r}")


def _config(kind: str, path: str, options: dict[str, Any]) -> WordPiece | SentencePiece:
    lowercase, size = options["do_lower_case"], 1 << 31
    if kind == "sentencepiece":
        return SentencePiece(path=path, vocab_size=size, lowercase=lowercase, strip_accents=not options["keep_accents"])
    strip, split = options["strip_accents"], options["tokenize_chinese_chars"]
    return WordPiece(path=path, vocab_size=size, lowercase=lowercase, strip_accents=strip, split_cjk=split)


def _agreed(directory: Path, kind: str, path: str, own: dict[str, Any]) -> Any:
    """The config of what tokenizer.json does to text, `own`; raises UserError where the options ask for other things.

    In transformers the options have the last word, with their defaults too, unless the class has no options.
    """
    said = settings.read(directory, kind)
    generic = said.pop("tokenizer_class", None) in settings.GENERIC
    config, other = _config(kind, path, own), _config(kind, path, (own if generic else settings.READ[kind]) | said)
    for name, here in config.normalization.items():
        if other.normalization[name] != here:
            there = f"{settings.OPTIONS} (or its default)"
            raise UserError(f"{directory / WHOLE} and {there} disagree: {name} is {here} in the first one alone")
    return config


def _sentencepiece(directory: Path, whole: dict[str, Any]) -> Tokenizer:
    path, pieces = directory / WHOLE, directory / PIECES
    if not path.is_file():
        options = settings.READ["sentencepiece"] | settings.read(directory, "sentencepiece")
        return _config("sentencepiece", str(pieces), options).load()
    model, normalizer = whole.get("model") or {}, whole.get("normalizer") or {}
    if model.get("type") != "Unigram":
        raise UserError(f"{path}: model.type = {model.get('type')!r} is not supported beside {PIECES}, only 'Unigram'")
    steps = {step.get("type") for step in [normalizer, *(normalizer.get("normalizers") or ())]}
    own = {"do_lower_case": "Lowercase" in steps, "keep_accents": "StripAccents" not in steps}
    tokenizer = _agreed(directory, "sentencepiece", str(pieces), own).load()
    try:
        theirs = [(str(piece), float(score)) for piece, score in model["vocab"]]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: its vocabulary is no list of pieces with their scores") from error
    if (found := unigram.difference(tokenizer.contents, theirs)) is not None:
        raise UserError(f"{pieces} and {WHOLE} disagree: {found}")
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
            names = names | {"pad_token": tokenizer.token(tokenizer.specials.pad)}
            names |= {"unk_token": tokenizer.token(tokenizer.specials.unk)}
            tokenizer.save(directory)
            pieces, kept = (directory / PIECES).read_bytes(), tokenizer.config
            unigram.library(pieces, kept.lowercase, kept.strip_accents, names).save(str(directory / WHOLE))
        case _:
            raise ValueError(f"no Hugging Face files for {tokenizer}")
    tokenizer.save(directory)
    _dump(directory / settings.OPTIONS, options | names)
    _dump(directory / settings.SPECIALS, names)


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
