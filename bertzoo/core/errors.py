"""Exceptions that end a command with a message of one line and an exit code."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 200  # characters of a value in a message
_MESSAGE = 2000  # characters of a message
_LONG_VALUES = re.compile(rf"(?<!\w)(['\"])(?:(?!\1).){{{LONGEST},}}\1(?!\w)|\S{{{LONGEST + 1},}}")


def shorten(text: str, longest: int = LONGEST) -> str:
    """Shorten a text to at most `longest` characters, by cutting out its middle."""
    return text if len(text) <= longest else f"{text[: longest * 3 // 4]} … {text[len(text) - longest // 5 :]}"


def visible(text: str) -> str:
    """Return a text with control characters and invisible ones escaped, as Python writes them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(message: str) -> str:
    """Return a message as one line, with control characters escaped and long words, quotations and messages cut."""
    shown = visible(message[: 100 * _MESSAGE])
    return shorten(_LONG_VALUES.sub(lambda match: shorten(match[0]), shown), _MESSAGE)


class Explained(Exception):
    """An error whose message suffices; notebooks print it without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class UserError(Explained):
    """Wrong user input; the message states the problem, its location and a remedy (exit code 2)."""

    exit_code = 2


class ConfigError(UserError):
    """A wrong config file or option; the message names the key."""


class CorpusError(UserError):
    """Text, a tokenizer or a tokenised corpus that cannot be used; the message names the file."""


@contextmanager
def needs_extra(subject: str, extra: str) -> Iterator[None]:
    """Raise UserError, which begins with `subject`, for a failed import of a package that an extra installs."""
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{subject} needs the extra {extra}, but an import failed ({error}). Run `pip install -c constraints.txt "
            f"-e '.[{extra}]'` in the checkout."
        ) from error


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message names the file."""


class OutOfMemory(UserError):
    """A step that needs more memory than a device has (exit code 2).

    needed, available: bytes; `needed` is None if unknown. where: words that follow `available` in the message, such as
    "free".
    """

    def __init__(self, needed: int | None, available: int, where: str = "", step: str = "a step", advice: str = ""):
        self.needed, self.available, self.where = needed, available, where
        need = "more memory" if needed is None else f"{needed / 1e9:,.1f} GB of memory"
        memory = f"{available / 1e9:,.1f} GB{where and f' {where}'}"
        super().__init__(f"{step} needs {need} on each device, which has {memory}. {advice or 'Use a smaller batch.'}")


class SaveError(CheckpointError):
    """A checkpoint that could not be written; the message names the last good checkpoint (exit code 1)."""

    exit_code = 1


class NonFinite(Explained):
    """A loss that is not finite; the message names the step, its batch and the last good checkpoint (exit code 1)."""

    exit_code = 1


class Stopped(Explained):
    """A run that saved a checkpoint and stopped on a signal; the same command resumes it (exit code 3)."""

    exit_code = 3


class HostLost(Explained):
    """A process of a distributed run that ended or never joined; every process must be restarted (exit code 4)."""

    exit_code = 4
