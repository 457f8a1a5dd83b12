"""Read and write the tokenizer files of Hugging Face directories; convert SentencePiece models to `tokenizer.json`."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertzoo.conversion.pretrained import fits
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.byte_bpe import ByteBpe, ByteBpeTokenizer
from bertzoo.data.tokenizers.sentencepiece import (
    SentencePiece,
    SentencePieceTokenizer,
    ends_in_number_and_comma,
    message_fields,
    sentencepiece_library,
)
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.data.tokenizers.wordpiece import LONGEST_WORD, WordPiece, WordPieceTokenizer

_LOG = logging.getLogger(__name__)
WHOLE, VOCABULARY, PIECES = ByteBpeTokenizer.file, "vocab.txt", "spiece.model"
_BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}

OPTIONS, SPECIALS, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
# These classes take all options from tokenizer.json; others read tokenizer_config.json and have the defaults below.
GENERIC = {"PreTrainedTokenizerFast", "PreTrainedTokenizer", "TokenizersBackend"}
CLASSES = {
    kind: {f"{family}Tokenizer{fast}" for family in families for fast in ("", "Fast")} | GENERIC
    for kind, families in (
        ("wordpiece", ("Bert", "ConvBert", "DistilBert", "Electra", "MobileBert", "SqueezeBert")),
        ("sentencepiece", ("Albert",)),
        ("byte_bpe", ()),
    )
}
# The options that are read, with the defaults of transformers' classes.
DEFAULTS: dict[str, dict[str, bool | None]] = {
    "wordpiece": {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True},
    "sentencepiece": {"do_lower_case": True, "keep_accents": False},
    "byte_bpe": {},
}
_NONE = (None, [], {})
_FIXED: dict[str, dict[str, tuple[Any, ...]]] = {
    "wordpiece": {
        "do_basic_tokenize": (True,),
        "never_split": _NONE,
        "clean_text": (True,),
        "wordpieces_prefix": ("##",),
    },
    "sentencepiece": {"remove_space": (True,), "sp_model_kwargs": _NONE, "add_prefix_space": (True,)},
    "byte_bpe": {"add_prefix_space": (False,)},
}
_NO_MORE = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_LISTS = {"added_tokens_decoder?": dict | None, **{f"{name}?": list | dict | None for name in _NO_MORE}}

_WHOLE = {
    "model?": {"type?": object},
    "normalizer?": dict | None,
    "pre_tokenizer?": dict | None,
    "added_tokens?": [dict],
}
_WORDPIECE = {
    "model": {"vocab": {str: int}},
    "normalizer": {"lowercase?": bool, "strip_accents?": bool | None, "handle_chinese_chars?": bool},
}

# Field numbers and a value of sentencepiece_model.proto.
_TRAINER, _NORMALIZER, _MODEL_TYPE, _CHARACTER_MAP = 2, 3, 3, 2
_UNIGRAM_MODEL = 1


def read_tokenizer(directory: Path) -> Tokenizer | None:
    """Return the tokenizer of a Hugging Face directory, or None without tokenizer files.

    As in transformers, tokenizer.json comes before vocab.txt; spiece.model comes before both. Raises UserError naming a
    file that is damaged or needs an unsupported tokenizer.
    """
    pieces, plain, path = directory / PIECES, directory / VOCABULARY, directory / WHOLE
    whole = read_table(path, _WHOLE)
    if pieces.is_file():
        tokenizer = _config(
            "sentencepiece", str(pieces), read_options(directory, "sentencepiece", _steps(whole))
        ).load()
    elif whole.get("model", {}).get("type") == "BPE":
        read_options(directory, "byte_bpe")
        tokenizer = ByteBpe(path=str(path), vocab_size=1 << 31).load()
    elif path.is_file():
        tokenizer = _read_wordpiece(directory, whole)
    elif plain.is_file():
        tokenizer = _config("wordpiece", str(plain), read_options(directory, "wordpiece")).load()
    else:
        for name in (OPTIONS, SPECIALS, ADDED):
            if (directory / name).is_file():
                raise UserError(
                    f"{directory} has {name}, but no {WHOLE}, {VOCABULARY} or {PIECES}. Add the vocabulary."
                )
        return None
    check_tokens(directory, tokenizer, whole)
    return tokenizer


def _read_wordpiece(directory: Path, whole: dict[str, Any]) -> Tokenizer:
    path = directory / WHOLE
    model, normalizer = whole.get("model", {}), whole.get("normalizer") or {}
    if model.get("type") == "Unigram":
        raise UserError(f"{path} describes a SentencePiece tokenizer, but {directory} has no {PIECES}. Add it.")
    supported = {
        "model.type": (model.get("type"), "WordPiece"),
        "model.unk_token": (model.get("unk_token"), "[UNK]"),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), "##"),
        "model.max_input_chars_per_word": (model.get("max_input_chars_per_word"), LONGEST_WORD),
        "normalizer.type": (normalizer.get("type"), "BertNormalizer"),
        "normalizer.clean_text": (normalizer.get("clean_text"), True),
        "pre_tokenizer.type": ((whole.get("pre_tokenizer") or {}).get("type"), "BertPreTokenizer"),
    }
    for name, (value, ours) in supported.items():
        if value != ours:
            raise UserError(f"{path}: {name} = {value!r} is not supported. Use a tokenizer with {name} = {ours!r}.")
    numbers = read_table(path, _WORDPIECE)["model"]["vocab"]
    tokens = sorted(numbers, key=numbers.__getitem__)
    if [numbers[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(
            f"{path} is damaged: its {len(tokens):,} tokens do not have the ids 0 to {len(tokens) - 1:,}, "
            "each once. Download it again."
        )
    options = {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
    }
    config = _config("wordpiece", "", read_options(directory, "wordpiece", options))
    assert isinstance(config, WordPiece)
    if config.normalization != _config("wordpiece", "", options).normalization:
        used = ", ".join(f"{name} = {value}" for name, value in config.normalization.items())
        _LOG.warning(f"warning: {OPTIONS} overrides {path}, as in transformers: {used}")
    return WordPieceTokenizer(replace(config, vocab_size=max(len(tokens), 6)), tokens, str(path))


def _config(kind: str, path: str, options: dict[str, Any]) -> WordPiece | SentencePiece:
    lowercase, size = options["do_lower_case"], 1 << 31
    if kind == "sentencepiece":
        return SentencePiece(path=path, vocab_size=size, lowercase=lowercase, strip_accents=not options["keep_accents"])
    strip, split = options["strip_accents"], options["tokenize_chinese_chars"]
    return WordPiece(path=path, vocab_size=size, lowercase=lowercase, strip_accents=strip, split_cjk=split)


def read_table(path: Path, pattern: Any = _LISTS) -> dict[str, Any]:
    """Return the object in a JSON file, or {} without the file; raises DocumentError unless it fits `pattern`."""
    return read_json(path, pattern, "Download it again.") if path.is_file() else {}


def read_options(directory: Path, kind: str, whole: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options in `DEFAULTS[kind]`: those of tokenizer_config.json, else the defaults of its tokenizer_class.

    whole: options of tokenizer.json, which a class in GENERIC takes alone. Raises UserError naming an option whose
    value is not supported; other options are ignored.
    """
    path = directory / OPTIONS
    options = read_table(path)
    check_class(options.get("tokenizer_class"), kind, path)
    if classes := options.get("auto_map"):
        raise UserError(
            f"{path}: auto_map = {classes} names code in the directory, which bertzoo does not run. Use a tokenizer "
            f"of a class in {', '.join(sorted(CLASSES[kind]))}."
        )
    for setting, value in options.items():
        fixed = _FIXED[kind].get(setting)
        if fixed and not any(value is only or value == only for only in fixed):
            raise UserError(
                f"{path}: {setting} = {value!r} is not supported. Use a tokenizer with {setting} = {fixed[0]!r}."
            )
        if setting in DEFAULTS[kind] and not (
            isinstance(value, bool) or (value is None and setting == "strip_accents")
        ):
            raise UserError(f"{path}: {setting} = {value!r} is neither true nor false. Use true or false.")
    if whole and options.get("tokenizer_class") in GENERIC:
        return {**whole}
    return {**DEFAULTS[kind], **{setting: options[setting] for setting in DEFAULTS[kind] if setting in options}}


def _steps(whole: Mapping[str, Any]) -> dict[str, bool]:
    """Return the options of ALBERT's tokenizer that the normalizer in a tokenizer.json stands for; {} without it."""
    kinds, normalizers = set(), [whole.get("normalizer")]
    while normalizers:
        if isinstance(step := normalizers.pop(), dict):
            kinds.add(step.get("type"))
            normalizers += step.get("normalizers") or []
    return {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds} if whole else {}


def check_class(name: Any, kind: str | None, path: Path) -> None:
    """Raise UserError if a tokenizer_class is not in `CLASSES[kind]` or, if there is no vocabulary, in CLASSES."""
    classes = CLASSES[kind] if kind else {*chain(*CLASSES.values())}
    if name is not None and (not isinstance(name, str) or name not in classes):
        where = f"for a {kind} vocabulary" if kind else "here"
        raise UserError(
            f"{path}: tokenizer_class = {name!r} is not supported {where}. Use one of {', '.join(sorted(classes))}."
        )


def check_tokens(directory: Path, tokenizer: Tokenizer, whole: dict[str, Any]) -> None:
    """Raise UserError if a file beside the vocabulary adds tokens, or names special tokens that `tokenizer` lacks.

    whole: contents of tokenizer.json. Added tokens are rejected because transformers finds them in the
    raw text, before it splits the text, and our tokenizers cannot.
    """
    special = {token: getattr(tokenizer.specials, token) for token in ("pad", "unk", "cls", "sep", "mask")}
    names = {f"{token}_token": tokenizer.token(index) for token, index in special.items()}
    names |= {"bos_token": names["cls_token"], "eos_token": names["sep_token"]}
    for path in (directory / OPTIONS, directory / SPECIALS):
        for setting, value in read_table(path).items():
            ours, content = names.get(setting), _content(value)
            more = value.values() if isinstance(value, dict) else value
            if setting in _NO_MORE and value not in _NONE and not {*map(str, map(_content, more))} <= {*names.values()}:
                raise UserError(
                    f"{path}: {setting} must be empty, not {value!r}. Use a tokenizer without these tokens."
                )
            if ours is not None and value is not None and content != ours:
                raise UserError(f"{path}: {setting} must be {ours!r}, not {content!r}. Use another tokenizer.")
            if path.name == SPECIALS and ours is None and setting not in _NO_MORE:
                raise UserError(f"{path}: the setting {setting} = {value!r} is unknown. Use a tokenizer without it.")
    if isinstance(tokenizer, ByteBpeTokenizer):
        return  # it reads the added tokens
    ids = {tokenizer.token(index): index for index in special.values()}
    options, added = directory / OPTIONS, directory / ADDED
    decoder = read_table(options).get("added_tokens_decoder") or {}
    tokens = [
        *((options, _content(value), index) for index, value in decoder.items()),
        *((added, content, index) for content, index in read_table(added).items()),
        *((directory / WHOLE, token.get("content"), token.get("id")) for token in whole.get("added_tokens") or []),
    ]
    for path, content, index in tokens:
        if not isinstance(content, str) or content not in ids or str(ids[content]) != str(index):
            pairs = ", ".join(f"{token} = {number}" for token, number in ids.items())
            raise UserError(
                f"{path}: the added token {content!r} with id {index} is none of the supported ones: {pairs}. Use a "
                "tokenizer without this added token."
            )


def _content(value: Any) -> Any:
    """Return a token's text; files store a token either as this text or as a table with its text and options."""
    return value.get("content") if isinstance(value, dict) else value


def write_tokenizer(tokenizer: Tokenizer, directory: Path, model: Any, beside_file: bool = False) -> None:
    """Write the files that `AutoTokenizer.from_pretrained` reads.

    If the model's word embeddings have more rows than a WordPiece vocabulary has tokens, and not just rounded up as
    `pretrained.fits` allows, tokens [unused0], [unused1] and so on fill the vocabulary up.

    beside_file: whether the files belong to a model's file for phones. Its vocabulary is not filled up, and a
    SentencePiece model that is not unigram has no tokenizer.json.
    """
    inputs = ["input_ids", "token_type_ids", "attention_mask"] if model.token_types else ["input_ids", "attention_mask"]
    options: dict[str, Any] = {"model_max_length": model.max_positions, "model_input_names": inputs}
    config = tokenizer.config
    match tokenizer:
        case WordPieceTokenizer():
            names, tokenizer = _BERT, tokenizer if beside_file else _fill_up(tokenizer, model.vocab_size)
            library = tokenizer.library
            library.post_processor = pair_template(library.token_to_id)
            library.add_special_tokens(list(names.values()))
            options |= {
                "tokenizer_class": "BertTokenizer",
                "do_lower_case": config.lowercase,
                "strip_accents": config.strip_accents,
                "tokenize_chinese_chars": config.split_cjk,
            }
        case SentencePieceTokenizer():
            pad, unk = (tokenizer.token(index) for index in (tokenizer.specials.pad, tokenizer.specials.unk))
            names = _BERT | {"pad_token": pad, "unk_token": unk, "bos_token": "[CLS]", "eos_token": "[SEP]"}
            library = None
            if not beside_file or is_unigram(tokenizer.contents):
                library = build_albert_pipeline(tokenizer.contents, config.lowercase, config.strip_accents, names)
            options |= {
                "tokenizer_class": "AlbertTokenizer",
                "do_lower_case": config.lowercase,
                "keep_accents": not config.strip_accents,
            }
        case ByteBpeTokenizer():
            names = {f"{field}_token": tokenizer.token(index) for field, index in vars(tokenizer.specials).items()}
            library = tokenizer.library
            options |= {"tokenizer_class": "PreTrainedTokenizerFast"}
        case _:
            raise ValueError(f"{type(tokenizer).__name__} has no Hugging Face format")
    if library is not None:
        library.save(str(directory / WHOLE))
    tokenizer.save(directory)
    for name, table in ((OPTIONS, options | names), (SPECIALS, names)):
        (directory / name).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def _fill_up(tokenizer: WordPieceTokenizer, rows: int) -> WordPieceTokenizer:
    tokens = [tokenizer.token(index) for index in range(tokenizer.vocab_size)]
    if not fits(len(tokens), rows):
        unused = [f"[unused{number}]" for number in range(rows + len(tokens))]
        used = set(tokens)
        tokens += [name for name in unused if name not in used][: max(0, rows - len(tokens))]
    return WordPieceTokenizer(replace(tokenizer.config, vocab_size=len(tokens)), tokens, "of the model")


def build_albert_pipeline(
    model: bytes, lowercase: bool, strip_accents: bool, specials: dict[str, str]
) -> tokenizers.Tokenizer:
    """Return AlbertTokenizer's pipeline for a serialised unigram model. specials: such as {"pad_token": "<pad>"}."""
    processor = sentencepiece_library().SentencePieceProcessor(model_proto=model)
    # ALBERT's code cuts a piece such as "9," in two. With a score lower by 100, `tokenizers` prefers the two pieces, as
    # in the tokenizer.json of ALBERT's releases.
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    pieces = [(piece, score - 100 * ends_in_number_and_comma(piece)) for piece, score in pieces]
    normalizer = _as_dict(_bytes(_as_dict(model), _NORMALIZER))
    if not is_unigram(model):
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


def is_unigram(model: bytes) -> bool:
    """Return whether a serialised SentencePiece model is unigram, which tokenizer.json can express."""
    return _as_dict(_bytes(_as_dict(model), _TRAINER)).get(_MODEL_TYPE, _UNIGRAM_MODEL) == _UNIGRAM_MODEL


def pair_template(token_to_id: Callable[[str], int | None]) -> processors.TemplateProcessing:
    """Return the templates of a single text, [CLS] A [SEP], and of a pair of texts, [CLS] A [SEP] B [SEP]."""
    return processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def _as_dict(message: bytes) -> dict[int, int | bytes]:
    return {number: value for number, value, _ in message_fields(message)}


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    return value if isinstance(value, bytes) else b""
