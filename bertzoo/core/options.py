"""Declare the options of a command once: the fields of a frozen dataclass are its flags and the arguments of its
function in Python.

A positional field is a positional argument. The type of a field decides how its text is read: `int`, `float`, `str`,
`Path`, `Literal` (one of its values), `bool` (a flag without a value), or `tuple[X, ...]` (a comma-separated list, or
several words for a positional argument). A field without `option` belongs to Python only.
"""

import dataclasses
import functools
import inspect
import math
import sys
import textwrap
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_origin

from bertzoo.core import config, logs
from bertzoo.core.errors import UserError

P = ParamSpec("P")
Declared = TypeVar("Declared")
Result = TypeVar("Result")
_NUMBERS = {int: ("a whole number", "4"), float: ("a number", "0.5")}


@dataclasses.dataclass(frozen=True)
class Option:
    """How the command line takes a field.

    help: meaning, for --help and for the function's docstring.
    group: heading of the option in --help.
    metavar: stands for the value in --help.
    flag: the option's name, if it is not --FIELD.
    least: the lowest number; None allows all.
    parse: function from the text to the value, instead of the type's.
    check: function (name, value) that checks and converts a text or a value from Python; errors quote the name.
    repeat: whether the option may occur several times, or the positional argument has several words.
    short: a second name of the flag, such as -o.
    python: the meaning in the function's docstring, if it is not `help`: a flag like --no-compile negates its argument.
    """

    help: str
    group: str = "input"
    metavar: str | None = None
    flag: str = ""
    least: float | None = None
    parse: Callable[[str], Any] | None = None
    check: Callable[[str, Any], Any] | None = None
    repeat: bool = False
    short: str = ""
    python: str = ""


def option(help: str, default: Any = dataclasses.MISSING, **more: Any) -> Any:
    """Declare a field of an options class. more: further fields of `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help, **more)})


def declared_options(cls: type) -> Iterable[tuple[dataclasses.Field, Option, Any]]:
    """Yield (field, option, type without None) for the fields of `cls` that are options of the command line."""
    for field in dataclasses.fields(cls):
        if (declared := field.metadata.get("option")) is not None:
            types = [tp for tp in config.members(config.hints(cls)[field.name]) if tp is not type(None)]
            yield field, declared, str if str in types else types[0]


def flag_of(cls: type, name: str) -> str:
    """Return the spelling of a field as an option of the command line."""
    declared = cls.__dataclass_fields__[name].metadata.get("option")
    return declared.flag if declared and declared.flag else f"--{name}"


def parse_text(name: str, tp: Any, text: str, least: float | None = None) -> Any:
    """Return the value of an option's text; raises UserError.

    name: the option in the error, such as "--size". tp: the field's type. least: the lowest number.
    """
    if get_origin(tp) is tuple:
        (inner, *_) = get_args(tp)
        kind, example = _NUMBERS.get(inner, ("", ""))
        try:
            return tuple(parse_text(name, inner, item, least) for item in text.split(","))
        except UserError:
            bound, example = ("", "32,128") if least is None else (f" from {least}", "1,4")
            raise UserError(
                f"{name}={text} is not a list of {kind[2:]}s{bound}. Write, for example, {name}={example}."
            ) from None
    if tp not in _NUMBERS:
        return tp(text) if tp is Path else text
    kind, example = _NUMBERS[tp]
    try:
        number = tp(text) if tp is float or text.lstrip("-").isdecimal() else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (least is not None and number < least):
        bound = "" if least is None else f" of {least} or more"
        raise UserError(f"{name}={text} is not {kind}{bound}. Write, for example, {name}={example}.")
    return number


def set_options(options: Any, names: Iterable[str]) -> list[str]:
    """Return the options among `names` that differ from their defaults, as on a command line."""
    shown = []
    for name in names:
        value, default = getattr(options, name), type(options).__dataclass_fields__[name].default
        if (value is not default and value != default) or type(value) is not type(default):
            flag = flag_of(type(options), name)
            shown.append(flag if isinstance(value, bool) else f"{flag}={value}")
    return shown


def reject(options: Any, names: Iterable[str], where: str) -> None:
    """Raise UserError if one of the options `names` is set. where: the command or input that excludes them."""
    for shown in set_options(options, names)[:1]:
        raise UserError(f"{shown} does not apply to {where}. Leave {shown.partition('=')[0]} out.")


def takes(
    cls: Callable[P, Declared], *, prints: bool = False
) -> Callable[[Callable[[Declared], Result]], Callable[P, Result]]:
    """Make a function of options `cls` a function of their fields, with their signature and their documentation.

    prints: whether it prints the log's messages on standard output, unless the program handles them itself.
    """

    def decorate(function: Callable[[Declared], Result]) -> Callable[P, Result]:
        signature = inspect.signature(cls)
        fields = {name: cls.__dataclass_fields__[name] for name in signature.parameters}  # pyright: ignore[reportAttributeAccessIssue]
        declared: dict[str, Option] = {
            name: field.metadata["option"] for name, field in fields.items() if field.metadata
        }

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> Result:
            unchecked = cls(*args, **options)
            checked = {}
            for name, spec in declared.items():
                value = getattr(unchecked, name)
                if spec.check and value is not None:
                    checked[name] = spec.check(name, value)
                for number in value if isinstance(value, tuple | list) else (value,):
                    if spec.least is not None and isinstance(number, int | float) and number < spec.least:
                        raise UserError(f"{name} = {value} is not {spec.least} or more. Use {spec.least}, for example.")
            complete = dataclasses.replace(unchecked, **checked)  # pyright: ignore[reportArgumentType]
            with logs.shown(None if logs.handled() else sys.stdout) if prints else nullcontext():
                return function(complete)

        helps = {name: spec.python or spec.help for name, spec in declared.items()}
        lines = [textwrap.fill(f"{name}: {text}", 116, subsequent_indent="  ") for name, text in helps.items()]
        call.__doc__ = "\n".join([inspect.cleandoc(function.__doc__ or ""), "", *lines])
        call.__signature__ = signature.replace(  # pyright: ignore[reportAttributeAccessIssue]
            return_annotation=inspect.signature(function).return_annotation
        )
        return call

    return decorate
