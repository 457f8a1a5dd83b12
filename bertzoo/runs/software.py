"""Which software trains: what run.json says of it, and pages of what was measured."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from bertzoo.core.version import __version__


def software() -> dict[str, str | None]:
    """What run.json says of the software that trains."""
    return {
        "bertzoo": __version__,
        "git": git_revision(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "flax": version("flax"),
        "optax": version("optax"),
    }


def git_revision(*beside: str) -> str | None:
    """The commit of the checkout the package runs from, with "+changes" where its files differ, or those of folders
    beside it; None outside a checkout.
    """
    here = Path(__file__).parents[1]
    folders = [str(here), *(str(here.parent / name) for name in beside)]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", __file__):
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", *folders) else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or a package installed somewhere else
        return None
