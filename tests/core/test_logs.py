"""Messages of the log, as the command line shows them."""

import logging
import subprocess
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


def test_the_handler_that_orbax_brings_is_not_the_programs() -> None:
    """Another process, because Orbax is imported once."""
    program = """
import logging
from bertzoo.core import logs
import orbax.checkpoint
from absl import logging as absl
absl.info("any")
assert logging.getLogger().handlers and not logs.handled()
logging.basicConfig(force=True, level=logging.INFO)
assert logs.handled()
logging.basicConfig(force=True, format="%(message)s")
assert logs.handled()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
