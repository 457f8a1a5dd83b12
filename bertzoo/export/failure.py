"""Errors of exports, and a context manager that silences converters."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence

from bertzoo.core.errors import UserError
from bertzoo.export.packages import versions

REWRITE = "Convert the model again, or with another --to."  # advice on a file that its runtime rejects


class ExportFailed(UserError):
    """A file could not be written, or its outputs differ from the model's; the message says which (exit code 1)."""

    exit_code = 1


def check_installed(subject: str, packages: Sequence[str], extra: str) -> dict[str, str]:
    """Return the versions of packages; raises UserError if one is missing, which `extra` of bertzoo installs."""
    installed = versions(packages)
    for package in packages:
        if package not in installed:
            how = f"Run `pip install -c constraints.txt -e '.[{extra}]'` in the checkout."
            raise UserError(f"{subject} needs {package}, which is not installed. {how}")
    return installed


@contextlib.contextmanager
def tool_errors(
    tool: str, subject: str = "this model", advice: str = "Convert it with another --to."
) -> Iterator[None]:
    """Silence a `with` block, in which converters print for their developers; turn its exception into ExportFailed.

    The message is "TOOL does not take SUBJECT. ADVICE Reason: …".
    """
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # converters raise any type
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ExportFailed(f"{tool} does not take {subject}. {advice} Reason: {reason[:300]}") from error
    finally:
        logging.disable(logging.NOTSET)
