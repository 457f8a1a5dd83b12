"""Build config dataclasses from mappings, and check every value against the annotation of its field."""

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Literal

from bertzoo.core.errors import ConfigError, shorten

NONE = "none"
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
_TYPES = {bool: "a boolean", int: "an integer", float: "a number", str: "text", list: "a list", dict: "a table"}
_MISMATCH = object()


@functools.cache  # resolving annotations takes most of the time of loading a config
def hints(cls: type) -> dict[str, Any]:
    """Return the annotation of each init field of `cls`, by name."""
    annotations = typing.get_type_hints(cls)
    return {f.name: annotations[f.name] for f in dataclasses.fields(cls) if f.init}


def members(tp: Any) -> tuple[Any, ...]:
    """Return the members of a union `tp`, or a tuple with only `tp` for any other type."""
    return typing.get_args(tp) if typing.get_origin(tp) in (typing.Union, types.UnionType) else (tp,)


def tables(tp: Any) -> list[type]:
    """Return the config classes in a union `tp`."""
    return [m for m in members(tp) if isinstance(m, type) and dataclasses.is_dataclass(m)]


def item(tp: Any) -> Any:
    """Return X if `tp` is `tuple[X, ...]` or a union with it, else None."""
    return next((typing.get_args(m)[0] for m in members(tp) if typing.get_origin(m) is tuple), None)


def literals(tp: Any) -> list[Any]:
    """Return the values of all Literals in a union `tp`."""
    return [value for m in members(tp) if typing.get_origin(m) is Literal for value in typing.get_args(m)]


def _kinds(tp: Any) -> list[str]:
    return [kind for cls in tables(tp) for kind in literals(hints(cls).get("kind"))]


def pick(tp: Any, table: Mapping[str, Any], base: Any) -> type | None:
    """Return the config class in the union `tp` that describes `table`.

    If `tp` has one class, return that class. Otherwise, return the class that the table's `kind` names, or None for an
    unknown `kind`. Without a `kind`, return the class of the table's default `base`, or None if `tp` lacks that class.
    """
    classes = tables(tp)
    if "kind" in table and len(classes) > 1:
        return next((cls for cls in classes if table["kind"] in _kinds(cls)), None)
    if type(base) in classes:
        return type(base)
    return classes[0] if len(classes) == 1 else None


def member(tp: Any, table: Mapping[str, Any], base: Any, path: str) -> type:
    """Return the config class in `tp` for a table, as `pick` does; raises ConfigError where `pick` returns None."""
    cls, kinds = pick(tp, table, base), _kinds(tp)
    if cls is not None:
        return cls
    if "kind" not in table:
        raise ConfigError(f"{path}.kind is missing. Set it to one of {', '.join(kinds)}.")
    raise ConfigError(f"{path}.kind = {show(table['kind'])} is unknown{nearest(str(table['kind']), kinds)}")


def default(cls: type, base: Any, name: str) -> Any:
    """Return the field `name` of `base` if `base` is a `cls`, else the default that `cls` declares, or None."""
    if type(base) is cls:
        return getattr(base, name)
    field = next(f for f in dataclasses.fields(cls) if f.name == name)
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def build(cls: type, table: Mapping[str, Any], path: str = "", base: Any = None) -> Any:
    """Return the instance of `cls` that a table describes; raises ConfigError naming the key.

    base: instance whose values fill missing keys. `RETIRED` of a class has keys of earlier versions, with the values
    with which they are ignored; None stands for any.
    """
    values = {}
    for key, value in table.items():
        if key not in hints(cls):
            if getattr(cls, "RETIRED", {}).get(key, _MISMATCH) in (None, value):
                continue
            raise unknown(cls, path, key)
        values[key] = _value(hints(cls)[key], value, join(path, key), default(cls, base, key))
    if type(base) is cls:
        values = {name: getattr(base, name) for name in hints(cls)} | values
    for field in dataclasses.fields(cls):
        if field.init and field.name not in values and field.default is field.default_factory:  # both MISSING
            key = join(path, field.name)
            raise ConfigError(f"{key} is missing. Set it in a config file{_option(hints(cls)[field.name], key)}")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


def _option(tp: Any, key: str) -> str:
    """Return the last words of the error about a missing key: the option that sets it, or "" if only a file can."""
    if kinds := _kinds(tp):
        return f" or with --{key}.kind=KIND, one of {', '.join(kinds)}"
    return "" if item(tp) or tables(tp) else f" or with --{key}=…"


def _value(tp: Any, value: Any, path: str, base: Any) -> Any:
    if types.NoneType in members(tp) and (value is None or value == NONE):
        return None
    if isinstance(value, Mapping) and tables(tp):
        return build(member(tp, value, base, path), value, path, base)
    if (inner := item(tp)) is not None and isinstance(value, list | tuple):
        return tuple(_value(inner, v, f"{path}.{i}", None) for i, v in enumerate(value))
    for one in members(tp):
        if (result := _scalar(one, value)) is not _MISMATCH:
            return result
    choices = [str(choice) for choice in literals(tp)]
    near = nearest(value, choices, say_all=False) if isinstance(value, str) else ""
    kind = _TYPES.get(type(value), type(value).__name__)
    kind = "not a number" if isinstance(value, float) and math.isnan(value) else kind
    raise ConfigError(f"{path} = {show(value)} ({kind}) is not valid. Use {describe(tp)}{near or '.'}")


def _scalar(tp: Any, value: Any) -> Any:
    if tp is float:
        is_number = isinstance(value, float) or fits_bits(value, 1024)
        return float(value) if is_number and not math.isnan(value) else _MISMATCH
    if typing.get_origin(tp) is Literal:
        return value if any(type(a) is type(value) and a == value for a in typing.get_args(tp)) else _MISMATCH
    if tp in _WORDS:
        return value if type(value) is tp and (tp is not int or fits_bits(value, 64)) else _MISMATCH
    if tp is types.NoneType or dataclasses.is_dataclass(tp) or typing.get_origin(tp) is tuple:
        return _MISMATCH
    raise TypeError(f"a config field cannot be of type {tp}")


def fits_bits(value: Any, bits: int) -> bool:
    """Return whether a value is a signed integer of at most `bits` bits, and not a boolean.

    With bits = 64, the value fits an array's element; with bits = 1024, it can be converted to a float.
    """
    return type(value) is int and -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def merge(tp: Any, old: Any, new: Any, base: Any = None) -> Any:
    """Return the table `old` updated with `new`, inner tables included.

    If `kind` in `new` names another config class than `kind` in `old`, `new` replaces `old` as a whole.

    tp, base: type and default of the table.
    """
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and tables(tp)):
        return new
    before, after = pick(tp, old, base), pick(tp, {**old, **new}, base)
    if before not in (None, after):
        return dict(new)
    known, merged = hints(after) if after else {}, dict(old)
    for key, value in new.items():
        if key in known and key in old and after:
            value = merge(known[key], old[key], value, default(after, base, key))
        merged[key] = value
    return merged


def join(path: str, key: str) -> str:
    """Return the dotted path of `key` in the table at `path`."""
    return f"{path}.{key}" if path else key


def show(value: Any) -> str:
    """Return `value` as error messages show it."""
    return str(value).lower() if isinstance(value, bool) else shorten(repr(value))


def describe(tp: Any) -> str:
    """Describe in words which values the type `tp` allows."""
    if typing.get_origin(tp) is tuple:
        return f"a list, each {describe(typing.get_args(tp)[0])}"
    if typing.get_origin(tp) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(tp)))
    if len(members(tp)) > 1:
        return " or ".join(dict.fromkeys(describe(m) for m in members(tp)))
    return NONE if tp is types.NoneType else _WORDS.get(tp, "a table")


def nearest(name: str, known: Iterable[str], say_all: bool = True) -> str:
    """Return the last words of an error about an unknown `name`: they suggest a similar known name.

    A known name also counts as similar if it starts with `name`. If none is similar, the text lists all known names if
    `say_all` is set, and is empty otherwise."""
    known = list(known)
    if near := get_close_matches(name, known, n=1) or [one for one in known if name and one.startswith(name)]:
        return f". Did you mean {near[0]}?"
    return f". Use one of {', '.join(known)}." if known and say_all else ""


def unknown(cls: type, path: str, key: str) -> ConfigError:
    """Return the error for a key that `cls` lacks, naming the most similar key of `cls` or of a config in it."""
    near = suggest(key, paths_by_name(cls))
    hint = f"Did you mean {join(path, near[0])}?" if near else f"The keys here are {', '.join(hints(cls))}."
    return ConfigError(f"unknown key {join(path, key)}. {hint}")


def suggest(key: str, paths: Mapping[str, list[str]]) -> list[str]:
    """Return up to three dotted keys that a mistyped key may mean. paths: as `paths_by_name` returns them."""
    top = [name for name, dotted in paths.items() if dotted[0] == name]
    near = get_close_matches(key, paths, n=1, cutoff=0.8) or get_close_matches(key, top, n=1)
    return paths[near[0]][:3] if near else []


def paths_by_name(cls: type) -> dict[str, list[str]]:
    """Return the dotted keys of a config, grouped by their last part; keys of outer tables come first."""
    paths: dict[str, list[str]] = {}
    for path in sorted(dict.fromkeys(_paths(cls)), key=lambda path: path.count(".")):
        paths.setdefault(path.split(".")[-1], []).append(path)
    return paths


def _paths(tp: Any) -> Iterator[str]:
    for cls in tables(tp):
        for name, hint in hints(cls).items():
            yield name
            inner, prefix = (item(hint), f"{name}.*") if item(hint) else (hint, name)
            yield from (f"{prefix}.{path}" for path in _paths(inner))


def divisors(size: int) -> list[int]:
    """Return the divisors of a number above 0 in rising order, within milliseconds for 2^31."""
    small = [n for n in range(1, math.isqrt(size) + 1) if size % n == 0]
    return sorted({*small, *(size // n for n in small)})
