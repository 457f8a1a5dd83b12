"""Flags, progress lines and output files that several commands (verbs) share."""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TextIO

from bertzoo.core import atomic
from bertzoo.core.errors import UserError

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
        return next(titled, None) or self.add_argument_group(title)

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


def say(message: str) -> None:
    """Print a line to standard error; results go to standard output."""
    print(message, file=sys.stderr, flush=True)


def config_files(parser: Parser) -> None:
    """Declare the positional argument CONFIG, stored as `args.files`."""
    parser.group("input").add_argument(
        "files",
        nargs="+",
        metavar="CONFIG",
        help="a TOML file or a shipped config's name; later files override earlier ones",
    )


def run_dir_option(parser: Parser, text: str) -> None:
    """Declare --run_dir, with the help `text`."""
    parser.group("output").add_argument("--run_dir", required=True, metavar="RUN", help=text)


def json_option(parser: Parser, text: str = "print one JSON document on standard output") -> None:
    """Declare --json, with the help `text`."""
    parser.group("output").add_argument("--json", action="store_true", help=text)


def workers_option(parser: Parser) -> None:
    """Declare --workers, the processes that tokenise."""
    _count_option(parser, "--workers", "processes that tokenise; 0: one per core")


def batch_workers_option(parser: Parser) -> None:
    """Declare --batch_workers, the processes that build batches."""
    _count_option(parser, "--batch_workers", "processes that build batches; 0: a thread of this process")


def _count_option(parser: Parser, flag: str, text: str) -> None:
    def count(value: str) -> int:
        if value.isdecimal():
            return int(value)
        raise UserError(f"{flag}={value} is not a whole number of 0 or more. Write, for example, {flag}=4.")

    parser.group("speed").add_argument(flag, type=count, default=0, metavar="N", help=text)


def checkpoint_option(parser: Parser, title: str, text: str = "latest, best or a step (default: latest)") -> None:
    """Declare --checkpoint, None by default, in the group `title`, with the help `text`."""
    parser.group(title).add_argument("--checkpoint", type=_checkpoint, metavar="STEP", help=text)


def corpus_option(parser: Parser, title: str, name: str) -> None:
    """Declare --corpus, the new place of a moved corpus, in the group `title`. name: the corpus's name in the help."""
    parser.group(title).add_argument(
        "--corpus",
        type=_corpus,
        metavar="DIR|URL",
        help=f"new path or URL of {name}, which may have moved but not changed (default: the recorded path)",
    )


def _corpus(text: str) -> str:
    if text:
        return text
    raise UserError("--corpus is empty. Name the tokenised corpus.")


def _checkpoint(text: str) -> str | int:
    if text in ("latest", "best"):
        return text
    if text.isdecimal():
        return int(text)
    raise UserError(f"--checkpoint={text} is unknown. Use latest, best or the number of a step.")


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


def check_file(name: Path | str, flag: str) -> None:
    """Raise UserError if no file can be written at the path `name`; `flag` starts the message."""
    if Path(name).is_dir():
        raise UserError(f"{flag} is a directory. Name a file.")
    check_folder(Path(name).parent, flag)


def check_folder(folder: Path, flag: str) -> None:
    """Raise UserError if no temporary file can be created in a directory; `flag` starts the message."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UserError(f"{flag} cannot be written: {folder}: {error.strerror}. Name another place.") from error


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """Yield standard output or, with a name, a file that appears only when it is complete."""
    if not name:
        yield sys.stdout
        return
    with atomic.replacing(Path(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
