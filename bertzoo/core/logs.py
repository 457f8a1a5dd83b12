"""Show the log's messages to the user. Modules log progress (INFO) and warnings with `logging.getLogger(__name__)`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

LOGGER = logging.getLogger("bertzoo")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return ("warning: " if record.levelno == logging.WARNING else "") + record.getMessage()


def handled() -> bool:
    """Return whether the program handles the log's messages.

    A root logger of level WARNING whose handlers have the basic format does not count: absl, which Orbax imports, calls
    `logging.basicConfig` in every program.
    """
    root = logging.getLogger()
    formats = [getattr(handler.formatter, "_fmt", None) for handler in root.handlers]
    basic = root.level == logging.WARNING and all(form == logging.BASIC_FORMAT for form in formats)
    return bool(LOGGER.handlers) or (LOGGER.propagate and bool(root.handlers) and not basic)


@contextmanager
def shown(stream: TextIO | None) -> Iterator[None]:
    """In this context, print messages on `stream`, or leave them to the program's own handlers if it is None.

    INFO is the lowest level that is shown, unless the program has set a level of the logger `bertzoo`.
    """
    level, propagate = LOGGER.level, LOGGER.propagate
    handler = logging.StreamHandler(stream) if stream else logging.NullHandler()
    handler.setFormatter(_Lines())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level or logging.INFO)
    LOGGER.propagate = propagate and stream is None  # absl, which Orbax imports, gives the root logger a handler
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate
