"""Messages of the log, as the command line shows them."""

import logging
import sys

import pytest

from bertzoo.core import logs


def test_a_message_is_printed_once_beside_a_handler_of_the_root(capsys: pytest.CaptureFixture) -> None:
    """absl, which Orbax imports, gives the root logger a handler."""
    root, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    root.addHandler(handler)
    try:
        with logs.shown(sys.stderr):
            logging.getLogger("bertzoo.any").info("one")
            logging.getLogger("bertzoo.any").warning("two")
    finally:
        root.removeHandler(handler)
    assert capsys.readouterr().err == "one\nwarning: two\n"


def test_absls_handler_is_not_the_programs() -> None:
    from absl.logging import ABSLHandler, PythonFormatter

    root, before = logging.getLogger(), logging.getLogger().handlers
    root.handlers = [ABSLHandler(PythonFormatter())]
    try:
        assert not logs.handled()
        root.handlers.append(logging.StreamHandler())
        assert logs.handled()
    finally:
        root.handlers = before
