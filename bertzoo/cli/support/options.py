"""What several verbs have in common."""

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

INTERVAL = 10.0  # seconds between two lines of progress where the output is no terminal


def say(message: str) -> None:
    """Tell a person something that is not the verb's result."""
    print(message, file=sys.stderr, flush=True)


def workers_option(parser: argparse.ArgumentParser) -> None:
    """Declare --workers."""
    parser.add_argument("--workers", type=_workers, default=0, help="processes that tokenise; 0 (default): one a core")


def batch_workers_option(parser: argparse.ArgumentParser) -> None:
    """Declare --batch_workers."""
    parser.add_argument(
        "--batch_workers",
        type=_batch_workers,
        default=0,
        help="processes that make the batches; 0 (default): a thread of the one that trains, good for some 20,000 rows "
        "of 128 tokens a second",
    )


def _workers(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise UserError(f"--workers={text} is not a number of processes; 0 stands for one a core")


def _batch_workers(text: str) -> int:
    if text.isdecimal():
        return int(text)
    raise UserError(f"--batch_workers={text} is not a number of processes; 0 stands for a thread")


def checkpoint_option(
    parser: argparse.ArgumentParser, default: str | None = "latest", shown: str = "latest (default), best or a step"
) -> None:
    """Declare --checkpoint."""
    parser.add_argument("--checkpoint", type=_checkpoint, default=default, help=shown)


def corpus_option(parser: argparse.ArgumentParser, whose: str) -> None:
    """Declare --corpus, of what moved since the run."""
    parser.add_argument(
        "--corpus",
        type=_corpus,
        metavar="DIR|URL",
        help=f"where {whose} is by now (default: where it was); another is refused",
    )


def _corpus(text: str) -> str:
    if text:
        return text
    raise UserError("--corpus is empty; name the tokenised corpus")


def _checkpoint(text: str) -> str | int:
    if text in ("latest", "best"):
        return text
    if text.isdecimal():
        return int(text)
    raise UserError(f"--checkpoint={text} is neither latest nor best nor a step")


@contextmanager
def tokenising() -> Iterator[Callable[[int, int], None]]:
    """A function that shows how many pieces are tokenised and how many bytes read: a live line, or one now and then."""
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
    """Raise UserError where `written` could write no such file in the end."""
    if Path(name).is_dir():
        raise UserError(f"{flag} is a directory: name a file")
    check_folder(Path(name).parent, flag)


def check_folder(folder: Path, flag: str) -> None:
    """Raise UserError where a directory is not there or takes no file, which is tried; nothing of that stays."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UserError(f"{flag} cannot be written ({error.strerror}: {folder}): name another place") from error


@contextmanager
def written(name: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that is there only when it is whole."""
    if not name:
        yield sys.stdout
        return
    with atomic.replacing(Path(name)) as temporary, temporary.open("w", encoding="utf-8") as file:
        yield file
