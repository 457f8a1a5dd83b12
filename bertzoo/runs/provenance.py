"""Record the provenance of a run in `run.json`."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import is_url
from bertzoo.core.version import __version__

RUN_JSON = "run.json"
TOKENIZER = "tokenizer"  # a folder beside run.json, and the key in run.json that holds the folder's file hashes
_MODEL = {"path": str, "parameters_sha256": str, "step?": int, "license?": str, "language?": str, "base_model?": str}
_RECORD = {
    "corpus?": str,
    "corpus_sha256?": str,
    f"{TOKENIZER}?": {str: str},
    "examples_sha256?": {str: str},
    "from?": _MODEL,
    "teacher?": _MODEL,
}


def write_run_json(directory: Path, record: dict[str, Any]) -> None:
    """Write run.json, replacing the old one."""
    atomic.write_json(directory / RUN_JSON, record, indent=2)


def read_run_json(directory: Path, run: str) -> dict[str, Any]:
    """Return run.json, or {} before the run has begun; raises UserError, naming `run`, if it is damaged."""
    path = directory / RUN_JSON
    if not path.is_file():
        return {}
    try:
        return read_json(path, _RECORD)
    except ValueError as error:
        raise UserError(
            f"{run}/{RUN_JSON} is damaged ({error}). Restore a copy, or remove it and resume the run, which writes it."
        ) from error


def software() -> dict[str, str | None]:
    """Return the versions of bertzoo (with its git commit), Python and libraries for run.json."""
    libraries = {name: version(name) for name in ("jax", "flax", "optax")}
    return {"bertzoo": __version__, "git": git_revision(), "python": platform.python_version(), **libraries}


def git_revision(*beside: str) -> str | None:
    """Return the commit of the checkout that holds the package, or None outside a checkout.

    The suffix "+changes" marks uncommitted changes to the package or to the sibling folders `beside`.
    """
    package = Path(__file__).parents[1]
    folders = [str(package), *(str(package.parent / name) for name in beside)]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", __file__):
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", *folders) else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or an installed package
        return None


def check_local(address: str, noun: str, run: str, advice: str) -> str:
    """Return an address from a run's run.json; raises UserError if it is a URL, because a stranger may have written it.

    noun: the noun for the address in the error, which ends in the advice.
    """
    if is_url(address):
        raise UserError(
            f"{run}/{RUN_JSON} names the {noun} {address}, but a URL is read only if the command names it. {advice}"
        )
    return address
