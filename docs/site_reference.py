"""Write the reference pages of the site from the code: every verb, every config key, every public name.

Pages in docs/reference/ hold `<!-- generated: cli -->`, a line for readers on a code host, and `<!-- end -->`; `expand`
replaces all of it. A verb without a summary, a key without a meaning and a public name without a docstring raise
Undocumented.
"""

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import io
import os
import re
import textwrap
import tokenize
from collections.abc import Iterator
from typing import Any
from unittest import mock

import bertzoo
from bertzoo.cli import main as cli
from bertzoo.core import config
from bertzoo.core.documents import join, show
from bertzoo.core.tables import markdown as table

_PRAGMAS = ("fmt:", "noqa", "pyright:", "type:")  # comments that say nothing of a field
MARKER = re.compile(r"^<!-- generated: (\w+) -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[A-Za-z]\w*(?:\.[\w*]+)*(?:=[^\s,;:()]*[^\s.,;:()])?")


class Undocumented(Exception):
    """Something that a user can name has no description; the message says what to write where."""


def expand(markdown: str) -> str:
    """Return a page with every marker replaced by what it names."""
    return MARKER.sub(lambda match: {"cli": verbs, "config": configs, "api": names}[match[1]](), markdown)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as code hosts make it; the site has the same."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def prose(text: str) -> str:
    """Return plain text as Markdown: put options in backticks and escape the rest."""
    text = "".join(part if part[:1] == "`" else OPTION.sub(r"`\g<0>`", part) for part in re.split(r"(`[^`\n]+`)", text))
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(part if part[:1] == "`" else re.sub(r"([\\*_<>\[\]#])", r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Return text in backticks, as many as it needs; empty for empty text."""
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}" if text else ""


# Verbs


def verbs() -> str:
    """Describe every verb: summary, usage, details, options by group with defaults, examples."""
    sections = {name.replace("_", " "): verb(name) for name in cli.VERBS}
    rows = [[f"[{name}](#{slug(name)})", text.split("\n\n")[1].replace("\n", " ")] for name, text in sections.items()]
    return "\n\n".join([table(["verb", "what it does"], rows), *sections.values()])


def verb_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser whose help `bertzoo VERB --help` prints."""
    parsers: list[argparse.ArgumentParser] = []
    with mock.patch.object(cli.Parser, "print_help", lambda parser, file=None: parsers.append(parser)):
        cli.parse([*name.split("_"), "--help"])
    return parsers[0]


def verb(name: str) -> str:
    """Describe one verb; raises Undocumented."""
    module, parser = importlib.import_module(f"bertzoo.cli.{name}"), verb_parser(name)
    text, _, examples = (module.__doc__ or "").partition("\nexamples:\n")
    if not text.strip() or not examples.strip():
        raise Undocumented(f"bertzoo/cli/{name}.py has no summary or no examples: write them in its docstring")
    parts = [f"## {name.replace('_', ' ')}", *map(prose, text.strip().split("\n\n")), f"```text\n{parser.usage}\n```"]
    for group in parser._action_groups:
        if actions := [action for action in group._group_actions if action.dest not in ("help", "debug")]:
            parts += [f"**{(group.title or '').capitalize()}**"]
            parts += [prose(group.description)] if group.description else []
            parts += [table(["option", "meaning", "default"], [option(name, parser, action) for action in actions])]
    if kinds := config_kinds(name, module):
        links = ", ".join(f"[{kind}](config.md#{kind})" for kind in kinds)
        parts += [f"`--TABLE.KEY=VALUE` sets a key of the config: {links}."]
    parts += [f"```bash\n{textwrap.dedent(examples).strip()}\n```"]
    return "\n\n".join(parts)


def config_kinds(name: str, module: Any) -> list[str]:
    """Return the kinds of config whose keys a verb takes."""
    if name == "config":
        return list(roots())
    if hasattr(module, "config"):
        return [kind for kind, cls in roots().items() if cls is module.config()]
    return ["finetune"] if getattr(module, "PASSES_ON", False) else []


def option(name: str, parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    """Return the cells of an option: as one types it, meaning, default; raises Undocumented if it has no help."""
    flags = ", ".join(action.option_strings)
    if not action.help and not action.choices:
        raise Undocumented(f"bertzoo {name}: {flags or action.dest} has no help: write it in bertzoo/cli/{name}.py")
    formatter = parser._get_formatter()
    metavar = action.dest.upper() if action.metavar is None else str(action.metavar)
    value = formatter._format_args(action, metavar) if action.nargs != 0 else ""
    text = formatter._expand_help(action) if action.help else f"one of {', '.join(map(str, action.choices or []))}"
    meaning, noted = text.strip().removesuffix(" (required)"), ""
    if match := re.fullmatch(r"(.*) \(default: (.*)\)", meaning, re.DOTALL):
        meaning, noted = match.groups()
    if action.required and flags:
        default = "required"
    elif noted:
        default = prose(noted)
    else:
        shown = flags and action.default not in (None, False, argparse.SUPPRESS, (), [], "")
        default = code(str(action.default)) if shown else ""
    return [code("=".join(filter(None, [flags, value]))), prose(meaning), default]


# Configs


@functools.cache
def roots() -> dict[str, type]:
    """Return the class of each kind of config that describes one run."""
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.pruning.settings import Prune
    from bertzoo.runs.configs import Pretrain, Transfer

    return {"pretrain": Pretrain, "transfer": Transfer, "finetune": Finetune, "prune": Prune}


def places() -> dict[type, list[str]]:
    """Return every config class with the dotted keys where it stands, those of [data] as "data"; "" for a root."""
    keys_by_class: dict[type, list[str]] = {}

    def visit(cls: type, path: str) -> None:
        if path in keys_by_class.setdefault(cls, []):
            return
        keys_by_class[cls].append(path)
        for key, hint in config.hints(cls).items():
            many, inner = config.item(hint) is not None, config.item(hint) or hint
            for table_class in config.tables(inner):
                visit(table_class, join(path, f"{key}.*" if many else key))

    for cls in roots().values():
        visit(cls, "")
    return keys_by_class


def configs() -> str:
    """Describe every key of every kind of config: type, default, meaning."""
    from bertzoo.jobs import pipeline, sweep

    known, parts = places(), []
    for kind, cls in roots().items():
        parts += [f"## {kind}", description(cls), keys(cls, "", known)]
    for kind, module in (("sweep", sweep), ("pipeline", pipeline)):
        rows = [[code(key), prose(meaning)] for key, meaning in module.KEYS.items()]
        parts += [f"## {kind}", f"The file of [`bertzoo {kind}`](cli.md#{kind}).", table(["key", "meaning"], rows)]
    parts += [
        "## Tables",
        "Every table once; a table of the same kind has the same keys at the other places that its section names.",
    ]
    for cls, paths in known.items():
        if "" in paths:
            continue
        more = ", ".join(map(code, paths[1:]))
        parts += [f"### {title(cls, paths[0])}", description(cls), *([f"Also at {more}."] if more else [])]
        parts += [keys(cls, paths[0], known)]
    return "\n\n".join(parts)


def description(cls: type) -> str:
    """Return a config class's docstring as Markdown, without what it raises; raises Undocumented."""
    if not cls.__doc__ or cls.__doc__.startswith(f"{cls.__name__}("):  # the one that dataclasses write
        raise Undocumented(f"{cls.__module__}.{cls.__name__} has no docstring")
    text = re.sub(r"\s*\bRaises [^.]*\.", "", inspect.cleandoc(cls.__doc__))
    aligned = re.compile(r"\S {3,}\S")  # lines in columns
    parts = text.split("\n\n")
    return "\n\n".join(f"```text\n{part}\n```" if aligned.search(part) else prose(part) for part in parts)


def title(cls: type, path: str) -> str:
    """Return the heading of a table: [model] kind = "bert"."""
    bare = path.removesuffix(".*")
    kinds = config.literals(config.hints(cls).get("kind"))
    shown = code(f"[[{bare}]]" if path != bare else f"[{bare}]")
    return f'{shown} kind = "{kinds[0]}"' if len(kinds) == 1 else shown


def keys(cls: type, path: str, known: dict[type, list[str]]) -> str:
    """Return the table of a class's keys under a dotted path."""
    texts = meanings(cls)
    rows = []
    for key, hint in config.hints(cls).items():
        kinds = config.literals(hint) if key == "kind" else []
        meaning = texts.get(key, "selects this table" if len(kinds) == 1 else "")
        if not meaning:
            source = inspect.getsourcefile(cls) or ""
            raise Undocumented(
                f"{cls.__name__}.{key} has no meaning: add `# …` to the field in {os.path.relpath(source)}"
            )
        inner, many = config.item(hint) or hint, config.item(hint) is not None
        if classes := config.tables(inner):
            links = [f"[{_short(one, key)}](#{slug(title(one, known[one][0]))})" for one in classes]
            kind = ("list of tables " if many else "table ") + ", ".join(links)
        else:
            kind = type_name(hint)
        rows.append([code(join(path, key)), prose(meaning), kind, default(cls, key)])
    return table(["key", "meaning", "type", "default"], rows)


def meanings(cls: type) -> dict[str, str]:
    """Return the comment of each field, beside it or above it; a class's own go before those of its bases."""
    meaning_by_field: dict[str, str] = {}
    for one in reversed(cls.__mro__[:-1]):
        if "__annotations__" in vars(one):
            meaning_by_field |= _comments(one)
    return meaning_by_field


@functools.cache
def _comments(cls: type) -> dict[str, str]:
    text = textwrap.dedent(inspect.getsource(cls))
    lines = text.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not token.string.lstrip("# ").startswith(_PRAGMAS)
    }
    (node,) = ast.parse(text).body
    meaning_by_field = {}
    for field in node.body if isinstance(node, ast.ClassDef) else []:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            top = field.lineno
            while top - 1 in comments and lines[top - 2].lstrip().startswith("#"):
                top -= 1
            numbers = [*range(top, field.lineno), *range(field.lineno, (field.end_lineno or field.lineno) + 1)]
            meaning_by_field[field.target.id] = " ".join(comments[number] for number in numbers if number in comments)
    return {name: comment for name, comment in meaning_by_field.items() if comment}


def type_name(hint: Any) -> str:
    """Describe a type in words, with the values of a choice as one types them."""
    choices = ", ".join(code(str(value)) for value in config.literals(hint))
    others = [config.describe(one) for one in config.members(hint) if not config.literals(one)]
    return prose(" or ".join(filter(None, [choices, *others])))


def _short(cls: type, key: str) -> str:
    kinds = config.literals(config.hints(cls).get("kind"))
    return kinds[0] if len(kinds) == 1 else key


def default(cls: type, key: str) -> str:
    """Return the default of a key as TOML; of a table what differs from that table's own defaults."""
    field = next(f for f in dataclasses.fields(cls) if f.name == key)
    if field.default is field.default_factory:  # both are MISSING
        return "required"
    value = config.default(cls, None, key)
    if not dataclasses.is_dataclass(value):
        return code(toml(value))
    return ", ".join(code(f"{name} = {toml(one)}") for name, one in _changes(value)) or "its defaults"


def _changes(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a default table that a reader must know: its kind, and what its class does not set."""
    for key in config.hints(type(value)):
        one, usual = getattr(value, key), config.default(type(value), None, key)
        if dataclasses.is_dataclass(one):
            yield from (pair for pair in _changes(one, join(path, key)) if one != usual)
        elif one != usual or (key == "kind" and not path):
            yield join(path, key), one


def toml(value: Any) -> str:
    """Return a value as a config file has it; a long list of one value is shortened."""
    if isinstance(value, tuple):
        same = len(value) > 3 and len(set(value)) == 1
        return f"[{toml(value[0])}, …] ({len(value)} times)" if same else f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return config.NONE if value is None else show(value)


# Python


def names() -> str:
    """List the public names for mkdocstrings; raises Undocumented."""
    from bertzoo.benchmarking.benchmark import BenchmarkSettings
    from bertzoo.export.options import ExportOptions

    public = {f"bertzoo.{name}": getattr(bertzoo, name) for name in bertzoo.__all__ if name != "__version__"}
    functions = {name: value for name, value in public.items() if inspect.isfunction(value)}
    results = {name: value for name, value in public.items() if inspect.isclass(value)}
    options = {f"{cls.__module__}.{cls.__name__}": cls for cls in (ExportOptions, BenchmarkSettings)}
    parts = []
    for heading, group in (("Functions", functions), ("Results", results), ("Options", options)):
        parts += [f"## {heading}", *(_name(path, value) for path, value in group.items())]
    return "\n\n".join(parts)


def _name(path: str, value: Any) -> str:
    methods = {} if inspect.isfunction(value) else {k: v for k, v in vars(value).items() if k[0] != "_"}
    methods = {k: v for k, v in methods.items() if inspect.isfunction(v) or isinstance(v, property)}
    for name, one in {path: value, **{f"{path}.{key}": one for key, one in methods.items()}}.items():
        doc = vars(one).get("__doc__") if inspect.isclass(one) else one.__doc__
        if not doc or doc.startswith(f"{value.__name__}("):
            raise Undocumented(f"{name} has no docstring")
    return f"::: {path}"
