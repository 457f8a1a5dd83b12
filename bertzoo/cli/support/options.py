"""Flags, progress lines and output files that several verbs share."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from bertzoo.core import atomic
from bertzoo.core.errors import UserError

INTERVAL = 10.0  # seconds between two progress lines if the output is not a terminal


def say(message: str) -> None:
    """Print a line to standard error; results go to standard output."""
    print(message, file=sys.stderr, flush=True)


def workers_option(parser: argparse.ArgumentParser) -> None:
    """Declare --workers."""
    _count_option(parser, "--workers", "processes that tokenise; 0 (default) for one per core")


def batch_workers_option(parser: argparse.ArgumentParser) -> None:
    """Declare --batch_workers."""
    _count_option(
        parser,
        "--batch_workers",
        "processes that make batches; 0 (default) for a thread, which makes some 20,000 rows of 128 tokens a second",
    )


def _count_option(parser: argparse.ArgumentParser, flag: str, text: str) -> None:
    def count(value: str) -> int:
        if value.isdecimal():
            return int(value)
        raise UserError(f"{flag}={value} is not a number of processes: {text}")

    parser.add_argument(flag, type=count, default=0, help=text)


def checkpoint_option(
    parser: argparse.ArgumentParser, default: str | None = "latest", shown: str = "latest (default), best or a step"
) -> None:
    """Declare --checkpoint."""
    parser.add_argument("--checkpoint", type=_checkpoint, default=default, help=shown)


def corpus_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Declare --corpus, the new place of a corpus that has moved."""
    parser.add_argument(
        "--corpus",
        type=_corpus,
        metavar="DIR|URL",
        help=f"where {name} is now (default: its old place); must have the same hash",
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
    raise UserError(f"--checkpoint={text} is not latest, best or a step")


@contextmanager
def tokenising() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that prints how many shards are done and how many bytes read, on a live line or every 10 s."""
    live, shown, last = sys.stderr.isatty(), False, time.monotonic()

    def show(pieces: int, size: int) -> None:
        nonlocal last, shown
        text = f"tokenising: {size / 1e6:,.1f} MB of text read, {pieces:,} shard{'' if pieces == 1 else 's'} done"
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
    """Raise UserError if `written` could not write this file in the end."""
    if Path(name).is_dir():
        raise UserError(f"{flag}={name} is a directory. Name a file.")
    check_folder(Path(name).parent, flag)


def check_folder(folder: Path, flag: str) -> None:
    """Raise UserError if a directory is missing or takes no file; creates and removes one."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UserError(f"{flag} cannot be written ({error.strerror}: {folder}). Name another place.") from error


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """Yield standard output, or a file that appears only when it is complete."""
    if not name:
        yield sys.stdout
        return
    with atomic.replacing(Path(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
