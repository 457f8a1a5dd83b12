"""Describe configs as a JSON schema, by which editors complete and check TOML files; read the fields' comments."""

import ast
import functools
import inspect
import io
import textwrap
import tokenize
import types
from collections.abc import Iterable
from typing import Any

from bertzoo.core import schema
from bertzoo.core.config import plain

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_PRAGMAS = ("fmt:", "noqa", "pyright:", "type:")


def json_schema(classes: Iterable[type]) -> dict[str, Any]:
    """Return the schema of a TOML file that describes, wholly or in part, a config of one of the classes."""
    definitions: dict[str, Any] = {}
    choices = [_table(cls, definitions) for cls in classes]
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "a config of bertzoo"}
    return {**head, "anyOf": choices, "definitions": definitions}


def _table(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a reference to the schema of a config class, which is put into `definitions`."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = table = {"type": "object", "additionalProperties": False, "properties": {}}
        table["description"] = inspect.cleandoc(cls.__doc__ or "").split("\n")[0]
        texts = meanings(cls)
        for name, hint in schema.hints(cls).items():
            value = table["properties"][name] = _value(hint, definitions)
            if "$ref" not in value:  # what stands beside a reference is ignored
                default = plain(schema.default(cls, None, name))
                value |= {"description": texts[name]} if name in texts else {}
                value |= {} if default is None else {"default": default}
    return {"$ref": f"#/definitions/{cls.__name__}"}


def _value(tp: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if choices := schema.literals(tp):
        return {"enum": [*choices, *[schema.NONE] * (types.NoneType in schema.members(tp))]}
    if len(members := schema.members(tp)) > 1:
        return {"anyOf": [_value(member, definitions) for member in members]}
    if (item := schema.item(tp)) is not None:
        return {"type": "array", "items": _value(item, definitions)}
    if tp is types.NoneType:
        return {"const": schema.NONE}
    return {"type": _TYPES[tp]} if tp in _TYPES else _table(tp, definitions)


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
