"""What every target raises, and how its tools are kept quiet."""

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator, Sequence

from bertzoo.core.errors import UserError


class ExportFailed(UserError):
    """A file could not be made or does not compute what the model does; the message says which (exit code 1)."""

    exit_code = 1


def installed(target: str, packages: Sequence[str], extra: str) -> None:
    """Raise UserError where one of a target's packages is not there; `extra` of the project adds them."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            how = f"`pip install '.[{extra}]'` in the checkout adds it"
            raise UserError(f"--to={target} needs {package}, which is not installed: {how}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what a converter warns of and prints to those who work on it."""
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def refusing(what: str, given: str = "this model") -> Iterator[None]:
    """Quietly; whatever is raised becomes an ExportFailed that `what`, such as a converter, does not take what it was
    given.
    """
    try:
        with quiet():
            yield
    except Exception as error:  # converters raise what they like
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ExportFailed(f"{what} does not take {given}: {reason[:300]}") from error
