"""Read a tokenizer's options from tokenizer_config.json and the files beside it; reject unsupported options."""

from itertools import chain
from pathlib import Path
from typing import Any

from bertzoo.core.documents import read_json
from bertzoo.core.errors import CorpusError, UserError
from bertzoo.data.tokenizers.byte_bpe import ByteBpeTokenizer
from bertzoo.data.tokenizers.vocabulary import Tokenizer

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
_SAME = {"bos": "cls", "eos": "sep"}
_TOKENS = ("pad", "unk", "cls", "sep", "mask")


def read_table(path: Path, pattern: Any = _LISTS) -> dict[str, Any]:
    """Return the object in a JSON file, or {} without the file; raises CorpusError unless it fits `pattern`."""
    if not path.is_file():
        return {}
    try:
        return read_json(path, pattern)
    except ValueError as error:
        raise CorpusError(f"{path} is damaged: {error}. Download it again.") from error


def read_options(directory: Path, kind: str) -> dict[str, Any]:
    """Return tokenizer_class and the supported options of tokenizer_config.json; others are ignored.

    kind: a key of `CLASSES`. Raises UserError naming an option whose value is not supported.
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
        if fixed and not any(value is one or value == one for one in fixed):
            raise UserError(
                f"{path}: {setting} = {value!r} is not supported. Use a tokenizer with {setting} = {fixed[0]!r}."
            )
        if setting in DEFAULTS[kind] and not (
            isinstance(value, bool) or (value is None and setting == "strip_accents")
        ):
            raise UserError(f"{path}: {setting} = {value!r} is neither true nor false. Use true or false.")
    return {setting: options[setting] for setting in (*DEFAULTS[kind], "tokenizer_class") if setting in options}


def check_class(name: Any, kind: str | None, path: Path) -> None:
    """Raise UserError if a tokenizer_class is not in `CLASSES[kind]` or, if there is no vocabulary, in CLASSES."""
    known = CLASSES[kind] if kind else {*chain(*CLASSES.values())}
    if name is not None and (not isinstance(name, str) or name not in known):
        place = f"for a {kind} vocabulary" if kind else "here"
        raise UserError(
            f"{path}: tokenizer_class = {name!r} is not supported {place}. Use one of {', '.join(sorted(known))}."
        )


def check_tokens(directory: Path, tokenizer: Tokenizer, whole: dict[str, Any], entire: Path) -> None:
    """Raise UserError if a file beside the vocabulary adds tokens, or names special tokens that `tokenizer` lacks.

    whole, entire: contents and path of tokenizer.json. Added tokens are rejected because transformers finds them in the
    raw text, before it splits the text, and our tokenizers cannot.
    """
    special = {token: getattr(tokenizer.specials, token) for token in _TOKENS}
    names = {f"{token}_token": tokenizer.token(index) for token, index in special.items()}
    names |= {f"{token}_token": names[f"{same}_token"] for token, same in _SAME.items()}
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
        *((entire, token.get("content"), token.get("id")) for token in whole.get("added_tokens") or []),
    ]
    for path, content, index in tokens:
        if not isinstance(content, str) or content not in ids or str(ids[content]) != str(index):
            known = ", ".join(f"{token} = {number}" for token, number in ids.items())
            raise UserError(
                f"{path}: the added token {content!r} with id {index} is none of the supported ones: {known}. Use a "
                "tokenizer without this added token."
            )


def _content(value: Any) -> Any:
    """Return a token's text; files store a token either as this text or as a table with its text and options."""
    return value.get("content") if isinstance(value, dict) else value
