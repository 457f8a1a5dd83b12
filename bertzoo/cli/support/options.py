"""Flags, progress lines and output files that several commands (verbs) share."""

import argparse
import dataclasses
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO, TypeVar, get_args, get_origin

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.core.options import Option, declared_options, option, parse_text

T = TypeVar("T")
GROUPS = {  # descriptions of groups of options in a command's help
    "several processes": "On Cloud TPU, GKE and Slurm, coordinator, processes and process are detected. Elsewhere, set "
    "all three for every process, each with its own --distributed.process. All processes must see the same RUN."
}
INTERVAL = 10.0  # seconds between two progress lines


class Parser(argparse.ArgumentParser):
    """A verb's argument parser: raises UserError instead of exiting, and takes no abbreviations.

    Its description is the verb's docstring: a summary in one line, paragraphs, and "examples:" with indented commands.
    keys: the help text of `--TABLE.KEY=VALUE`, empty if the verb has no such options.
    """

    def __init__(self, *, description: str | None = None, keys: str = "", **options) -> None:
        details, _, examples = (description or "").strip().partition("\n\nexamples:\n")
        epilog = f"examples:\n{examples}" if examples else None
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(
            description=details, epilog=epilog, allow_abbrev=False, add_help=False, formatter_class=form, **options
        )
        self.keys = keys

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See `{self.prog} --help`.")

    def flags(self) -> list[str]:
        """Return the names of the declared options, without dashes."""
        return [option.removeprefix("--") for option in self._option_string_actions if option.startswith("--")]

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the option group with this title, and create it if there is none."""
        titled = (group for group in self._action_groups if group.title == title)
        return next(titled, None) or self.add_argument_group(title, textwrap.fill(GROUPS.get(title, ""), 100) or None)

    def complete(self) -> None:
        """Declare --help and --debug, which every verb has, and set the usage line."""
        group = self.group("general")
        group.add_argument("-h", "--help", action="help", help="show this help")
        group.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if self.keys:
            self.add_argument_group("config keys", textwrap.fill(self.keys, 100))
        formatter = self._get_formatter()
        positionals = [formatter._format_args(action, action.dest) for action in self._get_positional_actions()]
        keys = ["[--TABLE.KEY=VALUE ...]"] if self.keys else []
        self.usage = " ".join([self.prog, *positionals, "[OPTIONS]", *keys])


def declare(parser: Parser, cls: type) -> None:
    """Declare the fields of the options class `cls` as a parser's arguments."""

    def place(entry: tuple[dataclasses.Field, Option, Any]) -> tuple[bool, bool]:
        """Put arguments first, then options of the input: fields of a base class would precede them."""
        field, declared, _ = entry
        named = field.kw_only is True
        return named, named and declared.group != "input"

    for field, declared, tp in sorted(declared_options(cls), key=place):
        named, required, many = field.kw_only, field.default is dataclasses.MISSING, get_origin(tp) is tuple
        several = declared.repeat or (many and not named)
        name = declared.flag or f"--{field.name}" if named else field.name
        more: dict[str, Any] = {"help": declared.help}
        more |= {} if required else {"default": field.default}
        if named and tp is not bool and "(default: " not in declared.help:
            more["help"] += " (required)" if required else " (default: %(default)s)"
        if tp is bool:
            more["action"] = "store_false" if field.default is True else "store_true"
        elif get_origin(tp) is Literal and not declared.parse:
            more |= {"choices": get_args(tp), "metavar": declared.metavar}
        else:
            inner = get_args(tp)[0] if many and several else tp
            word = name if named else declared.metavar or name
            more["metavar"] = declared.metavar
            check = partial(declared.check, word) if declared.check else None
            more["type"] = check or declared.parse or partial(parse_text, word, inner, least=declared.least)
        if named:
            more |= {"dest": field.name} | ({"required": True} if required else {})
            if declared.repeat:
                default: Any = None if required else field.default
                more |= {"action": "append", "default": None if default is None else list(default)}
        elif several or not required:
            more["nargs"] = ("+" if required else "*") if several else "?"
        names = (name, declared.short) if declared.short else (name,)
        parser.group(declared.group).add_argument(*names, **more)


def read_options(cls: type[T], args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> T:
    """Return the options of class `cls` that a command line sets. overrides: for its field of this name, if any."""
    values = {field.name: getattr(args, field.name) for field, *_ in declared_options(cls)}
    values |= {"overrides": overrides} if hasattr(cls, "overrides") else {}
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def say(message: str) -> None:
    """Print a line to standard error; results go to standard output."""
    print(message, file=sys.stderr, flush=True)


def json_field(text: str = "print one JSON document on standard output") -> Any:
    """Declare --json, with the help `text`."""
    return option(text, False, group="output")


@contextmanager
def tokenising() -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (shards done, characters of text read) that prints a line every 10 s."""
    last = time.monotonic()

    def show(pieces: int, size: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            shards = f"{pieces:,} shard{'' if pieces == 1 else 's'} done"
            say(f"tokenising: {size / 1e6:,.1f} M characters of text read, {shards}")

    yield show


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """Yield standard output or, with a name, a file that appears only when it is complete."""
    if not name:
        yield sys.stdout
        return
    with atomic.replacing(Path(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
