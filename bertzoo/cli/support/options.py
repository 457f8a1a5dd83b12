"""Flags, progress lines and output files that several commands (verbs) share."""

import argparse
import dataclasses
import shutil
import sys
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
INTERVAL = 10.0  # seconds between two progress lines if the output is not a terminal


class Parser(argparse.ArgumentParser):
    """A verb's argument parser: raises UserError instead of exiting, and takes no abbreviations.

    Its description is the verb's docstring: a summary in one line, paragraphs, and "examples:" with indented commands.
    keys: the help text of `--TABLE.KEY=VALUE`, empty if the verb has no such options.
    """

    def __init__(self, *, keys: str = "", **options) -> None:
        super().__init__(allow_abbrev=False, add_help=False, formatter_class=HelpFormatter, **options)
        self.keys = keys

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See `{self.prog} --help`.")

    def flags(self) -> list[str]:
        """Return the names of the declared options, without dashes."""
        return [option.removeprefix("--") for option in self._option_string_actions if option.startswith("--")]

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the option group with this title, and create it if there is none."""
        titled = (group for group in self._action_groups if group.title == title)
        return next(titled, None) or self.add_argument_group(title, GROUPS.get(title))

    def complete(self) -> None:
        """Declare --help and --debug, which every verb has, and set the usage line."""
        group = self.group("general")
        group.add_argument("-h", "--help", action="help", help="show this help")
        group.add_argument("--debug", action="store_true", help="show the traceback of an error")
        words = [self.prog, *(_usage(action) for action in self._actions), "[OPTIONS]"]
        keys = ["[--TABLE.KEY=VALUE …]"] if self.keys else []
        self.usage = " ".join(filter(None, [*words, *keys]))

    def format_help(self) -> str:
        """Return the summary, the usage, the details, the options by group with their defaults, and the examples."""
        summary, *details = (self.description or "").strip().split("\n\n")
        formatter = self._get_formatter()
        formatter.add_text(summary)
        formatter.add_usage(self.usage, [], [])
        for paragraph in details[:-1]:
            formatter.add_text(paragraph)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        if self.keys:
            formatter.start_section("config keys")
            formatter.add_text(self.keys)
            formatter.end_section()
        for paragraph in details[-1:]:
            formatter.add_text(paragraph)
        return formatter.format_help()


_USAGES = {None: "{}", "+": "{} …", "*": "[{} …]", "?": "[{}]"}  # of a positional argument, by nargs


def _usage(action: argparse.Action) -> str:
    """Return an argument's word in the usage line, empty for an option that is not required."""
    if not action.option_strings:
        name = action.metavar if isinstance(action.metavar, str) else "|".join(action.choices or [action.dest])
        return _USAGES[action.nargs if isinstance(action.nargs, str) else None].format(name)
    return f"{action.option_strings[-1]}={action.metavar}" if action.required else ""


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs, keeps indented lines, and shows the default of every option that has one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns, 100))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n  " in text:
            return text
        return super()._fill_text(text, width, indent)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if action.option_strings and action.nargs != 0:
            value = self._format_args(action, self._get_default_metavar_for_optional(action))
            return f"{', '.join(action.option_strings)}={value}"
        return super()._format_action_invocation(action)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        if not action.option_strings or action.nargs == 0:
            return text
        if action.required:
            return f"{text} (required)"
        stated = "(default: " in text or action.default in (None, "", (), [])
        return text if stated else f"{text} (default: %(default)s)"


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
        if tp is bool:
            more["action"] = "store_false" if field.default is True else "store_true"
        elif get_origin(tp) is Literal and not declared.parse:
            more |= {"choices": get_args(tp), "metavar": declared.metavar}
        else:
            inner = get_args(tp)[0] if many and several else tp
            word = name if named else declared.metavar or name
            more["metavar"] = declared.metavar
            more["type"] = declared.parse or partial(parse_text, word, inner, least=declared.least)
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
    """Yield a function of (shards done, characters of text read) that prints the progress.

    On a terminal, it rewrites one line; otherwise, it prints a line every 10 s.
    """
    live, shown, last = sys.stderr.isatty(), False, time.monotonic()

    def show(pieces: int, size: int) -> None:
        nonlocal last, shown
        shards = f"{pieces:,} shard{'' if pieces == 1 else 's'} done"
        text = f"tokenising: {size / 1e6:,.1f} M characters of text read, {shards}"
        shown = True
        if live:
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            say(text)

    try:
        yield show
    finally:
        if live and shown:
            print(file=sys.stderr)


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """Yield standard output or, with a name, a file that appears only when it is complete."""
    if not name:
        yield sys.stdout
        return
    with atomic.replacing(Path(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
