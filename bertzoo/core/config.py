"""Load frozen dataclasses from TOML files and dotted options, strictly, and write them back to TOML.

A config is a frozen keyword-only dataclass. Its fields are `bool`, `int`, `float`, `str`, `Literal`, another config, a
union of configs distinguished by a field `kind: Literal[...]`, a `tuple[X, ...]` of these, or `X | None`. None is
written as `none` in files and options. Later files override earlier ones, options override files, and a table overrides
the default of its field. A table whose `kind` names another class replaces the earlier table.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from bertzoo.core import documents, schema
from bertzoo.core.errors import ConfigError
from bertzoo.core.schema import NONE

T = TypeVar("T")
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
            contents = {key: value for key, value in contents.items() if key in schema.hints(cls)}
            extracts.append(path)
        expected = schema.literals(schema.hints(cls).get("kind"))
        if expected and contents.get("kind", expected[0]) not in expected:
            raise ConfigError(
                f"{path} has kind = {schema.show(contents['kind'])}, but this command takes kind = "
                f"{schema.show(expected[0])}. Name another config or use `bertzoo {contents['kind']}`."
            )
        table = schema.merge(cls, table, contents)
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
    # A kind decides which keys its table has, so it is set first, whatever the order on the command line.
    for key, text in sorted(overrides, key=lambda pair: pair[0].split(".")[-1] != "kind"):
        try:
            table = _override(cls, table, key.split("."), text, "", None)
        except ConfigError as error:
            raise ConfigError(f"--{key}={text}: {error}") from error
        sources.append((f"--{key}={text}", [key]))
    try:
        return schema.build(cls, table)
    except ConfigError as error:
        words = set(re.findall(r"\w+", str(error).partition(". ")[0]))
        named = [name for name, keys in sources if words & {key.split(".")[-1] for key in keys}]
        raise ConfigError(": ".join(filter(None, [", ".join(named or dict(files)), str(error)]))) from error


def from_dict(cls: type[T], mapping: Mapping[str, Any]) -> T:
    """Build a config from a mapping that is structured like its TOML file; raises ConfigError naming the key."""
    return schema.build(cls, mapping)


def dump(config: Any) -> str:
    """Return the TOML from which `load` makes an equal config."""
    import tomli_w  # here, as `import bertzoo` needs no package: launchers run with any Python

    return tomli_w.dumps(plain(config))


def plain(value: Any) -> Any:
    """Return `value` as plain TOML data; None is left out if it is the field's default, else written as `none`."""
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
    return [f"{key}: {schema.show(x)} -> {schema.show(y)}" for key, (x, y) in pairs.items() if x != y]


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
    folders = [place for place in (package / "configs", package.parent / "configs") if place.is_dir()]
    return {path.stem: path for path in sorted((folders[0] / folder).glob("*.toml"))} if folders else {}


def find(name: str | Path, folder: str = "") -> Path:
    """Return the path of a config file from its path or its shipped name; raises ConfigError if there is none."""
    path, known = Path(name), shipped(folder)
    if path.is_file():
        return path
    if str(name) in known:  # also beside a run's directory of that name
        return known[str(name)]
    if path.is_dir():
        raise ConfigError(f"{name} is a directory, not a config file. Name a .toml file in it.")
    hint = schema.nearest(path.stem, known, say_all=len(known) < 10)
    if not hint:
        near = get_close_matches(path.stem, known, n=3, cutoff=0)
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
    """Read a TOML file; if its key `base` names another, return that one's tables with this one's keys set in them.

    folder: folder of the shipped configs in which the base is looked up. Raises ConfigError for a base with a base.
    """
    table = read_toml(path)
    if "base" not in table:
        return table
    base = read_toml(find(str(table.pop("base")), folder))
    if "base" in base:
        raise ConfigError(f"the base of {path} has itself the base {base['base']}. Use that one, or copy its tables.")
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
    if (item := schema.item(tp)) is not None:
        items = list(node) if isinstance(node, list) else plain(base) if isinstance(base, tuple) else []
        for i in _indices(key, len(items), path):
            items[i] = _override(item, items[i], rest, text, f"{path}.{i}", None)
        return items
    if not schema.tables(tp):
        raise ConfigError(f"{path} is {schema.describe(tp)} and has no key {key}. Set {path} itself.")
    table = node if isinstance(node, Mapping) else {}
    if key == "kind" and not rest:
        return schema.merge(tp, table, {"kind": text}, base)
    cls = schema.member(tp, table, base, path)
    if key not in schema.hints(cls):
        raise schema.unknown(cls, path, key)
    inner = schema.default(cls, base, key)
    return {**table, key: _override(schema.hints(cls)[key], table.get(key), rest, text, schema.join(path, key), inner)}


def _indices(key: str, size: int, path: str) -> Iterable[int]:
    if key == "*" and size:
        return range(size)
    if key.isdecimal() and len(key) < 10 and int(key) < size:
        return [int(key)]
    if not size:
        raise ConfigError(f"{path}.{key} does not exist: {path} is an empty list. Add items in a config file.")
    raise ConfigError(f"{path}.{key} does not exist. Use an index from 0 to {size - 1}, or * for every item of {path}.")


def _parse(tp: Any, text: str) -> Any:
    """Parse an option's text for a field of type `tp`; returns invalid text unchanged, which `build` rejects."""
    if "\n" in text or str in schema.members(tp) or text in schema.literals(tp):
        return text
    try:
        number = float in schema.members(tp) and not (schema.item(tp) and text.startswith("["))
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
        yield from leaves(inner, schema.join(path, key))
