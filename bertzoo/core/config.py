"""Load frozen dataclasses from TOML files and dotted options, strictly, and write them back to TOML.

A config is a frozen keyword-only dataclass. Its fields are `bool`, `int`, `float`, `str`, `Literal`, another config, a
union of configs distinguished by a field `kind: Literal[...]`, a `tuple[X, ...]` of these, or `X | None`. None is
written as `none` in files and options. Later files override earlier ones, options override files, and a table overrides
the default of its field. A table whose `kind` names another class replaces the earlier table.
"""

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from bertzoo.core import documents
from bertzoo.core.documents import fits_bits, join, show
from bertzoo.core.errors import ConfigError

NONE = "none"
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
_TYPES = {bool: "a boolean", int: "an integer", float: "a number", str: "text", list: "a list", dict: "a table"}
_MISMATCH = object()
T = TypeVar("T")


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


def from_dict(cls: type[T], table: Mapping[str, Any], path: str = "", base: Any = None) -> T:
    """Return the config that a table, structured like its TOML file, describes; raises ConfigError naming the key.

    path: dotted key of the table in the whole config. base: instance whose values fill missing keys. `RETIRED` of a
    class has keys of earlier versions and the values with which they are ignored; None stands for any.
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
    for field in dataclasses.fields(cast(Any, cls)):
        if field.init and field.name not in values and field.default is field.default_factory:  # both MISSING
            key = join(path, field.name)
            raise ConfigError(f"{key} is missing. Set it in a config file{_option(hints(cls)[field.name], key)}")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


def _option(tp: Any, key: str) -> str:
    """Return the end of the error about a missing key: the option that sets it, or "" if only a file can."""
    if kinds := _kinds(tp):
        return f" or with --{key}.kind=KIND, one of {', '.join(kinds)}"
    return "" if item(tp) or tables(tp) else f" or with --{key}=…"


def _value(tp: Any, value: Any, path: str, base: Any) -> Any:
    if types.NoneType in members(tp) and (value is None or value == NONE):
        return None
    if isinstance(value, Mapping) and tables(tp):
        return from_dict(member(tp, value, base, path), value, path, base)
    if (inner := item(tp)) is not None and isinstance(value, list | tuple):
        return tuple(_value(inner, v, f"{path}.{i}", None) for i, v in enumerate(value))
    for m in members(tp):
        if (result := _scalar(m, value)) is not _MISMATCH:
            return result
    choices = [str(choice) for choice in literals(tp)]
    near = nearest(value, choices, list_all=False) if isinstance(value, str) else ""
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
    fields, merged = hints(after) if after else {}, dict(old)
    for key, value in new.items():
        if key in fields and key in old and after:
            value = merge(fields[key], old[key], value, default(after, base, key))
        merged[key] = value
    return merged


def describe(tp: Any) -> str:
    """Describe in words which values the type `tp` allows."""
    if typing.get_origin(tp) is tuple:
        return f"a list, each {describe(typing.get_args(tp)[0])}"
    if typing.get_origin(tp) is Literal:
        return "one of " + ", ".join(map(str, typing.get_args(tp)))
    if len(members(tp)) > 1:
        return " or ".join(dict.fromkeys(describe(m) for m in members(tp)))
    return NONE if tp is types.NoneType else _WORDS.get(tp, "a table")


def nearest(name: str, names: Iterable[str], list_all: bool = True) -> str:
    """Return the end of an error about an unknown `name`, which suggests one of the known `names`.

    A known name also counts as similar if it starts with `name`. If none is similar, the text lists all `names` if
    `list_all` is set, and is empty otherwise."""
    names = list(names)
    if near := get_close_matches(name, names, n=1) or [n for n in names if name and n.startswith(name)]:
        return f". Did you mean {near[0]}?"
    return f". Use one of {', '.join(names)}." if names and list_all else ""


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
    """Return the dotted keys of a config, grouped by their last key; keys of outer tables come first."""
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


def check_range(
    config: Any,
    *names: str,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    advice: str,
) -> None:
    """Raise ConfigError, ending with `advice`, if a number among the fields `names` is infinite or outside its range.

    A field that is None has no range.
    """
    bounds = {"at least": least, "above": above, "at most": most, "below": below}
    for name in names:
        value = getattr(config, name)
        if value is not None and not (least <= value <= most and above < value < below):
            words = [] if math.isfinite(value) else ["finite"]
            words += [f"{word} {bound}" for word, bound in bounds.items() if math.isfinite(bound)]
            raise ConfigError(f"{name} = {value} is not {' and '.join(words)}. {advice}")


Overrides = Mapping[str, Any] | Sequence[tuple[str, str]]  # by dotted names: Python's values, or the command line's


def load(
    cls: type[T],
    files: Iterable[str | Path] = (),
    overrides: Iterable[tuple[str, str]] = (),
    missing: Mapping[str, Callable[[], Any]] | None = None,
) -> T:
    """Load a config from files and options.

    files: paths or names of shipped configs; later files win.
    overrides: options as (key, value), such as `("stages.*.steps", "10")`; they win over files.
    missing: {name of a top-level table: function}; if no file has the table, the function returns the table's config.

    A file may also be a saved model's config: one with exactly the tables in `cls.EXTRACTS`, if `cls` has that
    attribute. Such a file sets only the tables that are fields of `cls`, such as `model`, so another file must set the
    rest.

    Raises ConfigError naming the file or the option, and the key.
    """
    table: dict[str, Any] = {}
    sources: list[tuple[str, list[str]]] = []
    extracts: list[Path] = []
    for name in files:
        path = find(name)
        contents = read_toml(path)
        if contents.keys() == getattr(cls, "EXTRACTS", None):
            contents = {key: value for key, value in contents.items() if key in hints(cls)}
            extracts.append(path)
        expected = literals(hints(cls).get("kind"))
        if expected and contents.get("kind", expected[0]) not in expected:
            raise ConfigError(
                f"{path} has kind = {show(contents['kind'])}, but this command takes kind = "
                f"{show(expected[0])}. Name another config or use `bertzoo {contents['kind']}`."
            )
        table = merge(cls, table, contents)
        sources.append((str(path), [key for key, _ in leaves(contents, "")]))
    if extracts and len(extracts) == len(sources):
        path = extracts[0]
        raise ConfigError(
            f"{path} holds a model, but no recipe to train it. Put a config before it, as in `bertzoo config demo "
            f"{path}`. For `bertzoo benchmark`, pass its directory, {path.parent}."
        )
    table |= {key: plain(default()) for key, default in (missing or {}).items() if key not in table}
    return _overridden(cls, table, overrides, sources)


def changed(config: T, overrides: Iterable[tuple[str, str]]) -> T:
    """Return the config with `overrides` applied as in `load`; raises ConfigError naming option and key."""
    return _overridden(type(config), plain(config), overrides)


def _overridden(
    cls: type[T],
    table: dict[str, Any],
    overrides: Iterable[tuple[str, str]],
    files: Sequence[tuple[str, list[str]]] = (),
) -> T:
    """Apply `overrides` to `table` and return its config.

    files: (name, dotted keys) of each file that `table` comes from.

    The message of a ConfigError starts with the files and options that set a key in its first sentence.
    """
    sources = [*files]
    # A kind decides which keys its table has. So kinds are set first, those of outer tables before those inside.
    overrides = [*overrides]
    kinds = sorted((pair for pair in overrides if _is_kind(pair[0])), key=lambda pair: pair[0].count("."))
    for key, text in [*kinds, *(pair for pair in overrides if not _is_kind(pair[0]))]:
        try:
            table = _override(cls, table, key.split("."), text, "", None)
        except ConfigError as error:
            raise ConfigError(f"--{key}={text}: {error}") from error
        sources.append((f"--{key}={text}", [key]))
    try:
        return from_dict(cls, table)
    except ConfigError as error:
        words = set(re.findall(r"\w+", str(error).partition(". ")[0]))
        named = [name for name, keys in sources if words & {key.split(".")[-1] for key in keys}]
        raise ConfigError(": ".join(filter(None, [", ".join(named or dict(files)), str(error)]))) from error


def _is_kind(key: str) -> bool:
    return key.split(".")[-1] == "kind"


def dump(config: Any) -> str:
    """Return a config as TOML, from which `load` builds an equal config."""
    import tomli_w  # here, as `import bertzoo` needs no package: launchers run with any Python

    return tomli_w.dumps(plain(config))


def plain(value: Any) -> Any:
    """Return `value` as plain TOML data; None is omitted if it is the field's default, else written as `none`."""
    if dataclasses.is_dataclass(value):
        values = {f: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {
            f.name: NONE if v is None else plain(v) for f, v in values.items() if v is not None or f.default is not None
        }
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


def difference(a: Any, b: Any) -> list[str]:
    """Return a line such as `model.layers: 12 -> 6` for each key in which two configs (or mappings) differ."""
    old, new = dict(leaves(plain(a), "")), dict(leaves(plain(b), ""))
    pairs = {key: (old.get(key, NONE), new.get(key, NONE)) for key in old | new}
    return [f"{key}: {show(x)} -> {show(y)}" for key, (x, y) in pairs.items() if x != y]


def as_options(values: Overrides | None) -> list[tuple[str, str]]:
    """Convert Python values, keyed by dotted names, to the override pairs of `load`; leaves such pairs as they are."""
    if not isinstance(values, Mapping):
        return list(values or ())

    def text(value: Any) -> str:
        if value is None or isinstance(value, str | Path):
            return NONE if value is None else str(value)
        return json.dumps(value, ensure_ascii=False, default=str)

    return [(key, text(value)) for key, value in values.items()]


def reject(run: str, changed: Sequence[str]) -> None:
    """Raise ConfigError unless `changed` is empty.

    changed: lines of `difference` between the config saved in the run directory `run` and the new config.
    """
    if changed:
        raise ConfigError(
            f"{run} holds a run with another config (saved -> new): {'; '.join(changed)}. Restore the saved values or "
            "use a different --run_dir."
        )


def shipped(folder: str = "") -> dict[str, Path]:
    """Return the paths of the configs that come with the package, by name.

    folder: subfolder of the shipped configs, such as "sweeps".
    """
    package = Path(__file__).parents[1]  # configs are inside it in a wheel, beside it in a checkout
    folders = [path for path in (package / "configs", package.parent / "configs") if path.is_dir()]
    return {path.stem: path for path in sorted((folders[0] / folder).glob("*.toml"))} if folders else {}


def find(name: str | Path, folder: str = "") -> Path:
    """Return the path of a config file from its path or its shipped name; raises ConfigError if there is none."""
    path, configs = Path(name), shipped(folder)
    if path.is_file():
        return path
    if str(name) in configs:  # also beside a run's directory of that name
        return configs[str(name)]
    if path.is_dir():
        raise ConfigError(f"{name} is a directory, not a config file. Name a .toml file in it.")
    hint = nearest(path.stem, configs, list_all=len(configs) < 10)
    if not hint:
        near = get_close_matches(path.stem, configs, n=3, cutoff=0)
        hint = f". The nearest are {', '.join(near)}; `bertzoo models` lists all models."
    raise ConfigError(f"{name} is neither a file nor the name of a shipped config{hint}")


def read_toml(path: Path, pattern: Any = dict) -> dict[str, Any]:
    """Read a TOML file; raises ConfigError naming the file and the wrong key.

    pattern: required types, as documents.py describes.
    """
    try:
        table = documents.read_toml(path)
    except documents.DocumentError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}. Correct it, and save it as UTF-8.") from error
    try:
        return documents.fitting(table, pattern)
    except documents.DocumentError as error:
        raise ConfigError(f"{path} cannot be used: {error}. Correct it.") from error


def read_over_base(path: Path, folder: str) -> dict[str, Any]:
    """Read a TOML file; if its key `base` names another file, merge its other keys into the tables of that file.

    folder: folder of the shipped configs that may hold the base. Raises ConfigError for a base with a base.
    """
    table = read_toml(path)
    if "base" not in table:
        return table
    base = read_toml(find(str(table.pop("base")), folder))
    if "base" in base:
        raise ConfigError(f"the base of {path} itself has the base {base['base']}. Use that file, or copy its tables.")
    return _merged(base, table)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    tables = {key for key, value in new.items() if isinstance(value, Mapping) and isinstance(old.get(key), Mapping)}
    return {**old, **{key: _merged(old[key], value) if key in tables else value for key, value in new.items()}}


def _override(tp: Any, node: Any, keys: Sequence[str], text: str, path: str, base: Any) -> Any:
    """Return `node` with its value at `keys` set to the parsed `text`.

    node: the value at `path` in the merged files, or None. tp, base: type and default of that value.
    """
    if not keys:
        return _parse(tp, text)
    key, rest = keys[0], keys[1:]
    if (element := item(tp)) is not None:
        items = list(node) if isinstance(node, list) else plain(base) if isinstance(base, tuple) else []
        for i in _indices(key, len(items), path):
            items[i] = _override(element, items[i], rest, text, f"{path}.{i}", None)
        return items
    if not tables(tp):
        raise ConfigError(f"{path} is {describe(tp)} and has no key {key}. Set {path} itself.")
    table = node if isinstance(node, Mapping) else {}
    if key == "kind" and not rest:
        return merge(tp, table, {"kind": text}, base)
    cls = member(tp, table, base, path)
    if key not in hints(cls):
        raise unknown(cls, path, key)
    inner = default(cls, base, key)
    return {**table, key: _override(hints(cls)[key], table.get(key), rest, text, join(path, key), inner)}


def _indices(key: str, size: int, path: str) -> Iterable[int]:
    if key == "*" and size:
        return range(size)
    if key.isdecimal() and len(key) < 10 and int(key) < size:
        return [int(key)]
    if not size:
        raise ConfigError(f"{path}.{key} does not exist: {path} is an empty list. Add items in a config file.")
    raise ConfigError(f"{path}.{key} does not exist. Use an index from 0 to {size - 1}, or * for every item of {path}.")


def _parse(tp: Any, text: str) -> Any:
    """Parse an option's text for a field of type `tp`; returns invalid text unchanged, which `from_dict` rejects."""
    if "\n" in text or str in members(tp) or text in literals(tp):
        return text
    try:
        number = float in members(tp) and not (item(tp) and text.startswith("["))
        return float(text) if number else documents.parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        value = {str(i): v for i, v in enumerate(value)}
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, inner in value.items():
        yield from leaves(inner, join(path, key))
