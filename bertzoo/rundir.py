"""The directory of a run: its config, where it came from, its corpus and its checkpoints."""

import fcntl
import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from bertzoo import __version__, config
from bertzoo.data.vocabulary import write_atomically
from bertzoo.errors import ConfigError, UserError
from bertzoo.recipe import Pretrain

# What a run cannot change half-way: the parameters' shapes, and what the batch at step k is.
FIXED = ("seed", "model", "objective", "data", "optimizer.kind")


class RunDirectory:
    """Names of what a run keeps; `path` need not exist yet."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.corpus = self.path / "corpus"
        self.plans = self.path / "plans"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"

    def load(self) -> Pretrain:
        """The config of an existing run; raises UserError when there is none."""
        if not self.config.is_file():
            raise UserError(f"{self.path} is not a run: it has no {self.config.name}")
        return config.load(Pretrain, [self.config])

    def begin(self, recipe: Pretrain) -> list[str]:
        """Write the resolved config, or check it against the one the run began with; return what has changed.

        Raises ConfigError when something differs that a run cannot change half-way.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        changed = config.difference(self.load(), recipe) if self.config.exists() else []
        if refused := [line for line in changed if line.startswith(tuple(f"{name}" for name in FIXED))]:
            raise ConfigError(
                f"{self.path} holds a run with another config: {'; '.join(refused)}; "
                "give back these values, or choose another --run_dir"
            )
        write_atomically(self.config, config.dump(recipe).encode())
        return changed

    def describe(self, devices: list[str]) -> None:
        """Write run.json: which software and which devices train this run."""
        facts = {
            "bertzoo": __version__,
            "git": git_revision(),
            "python": platform.python_version(),
            "jax": version("jax"),
            "flax": version("flax"),
            "optax": version("optax"),
            "devices": devices,
        }
        write_atomically(self.path / "run.json", (json.dumps(facts, indent=2) + "\n").encode())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory: two runs writing one would ruin it. The lock ends with the process, however that ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"{self.path} is in use by another bertzoo process; wait for it or stop it") from error
            yield


def git_revision() -> str | None:
    """The commit of the checkout the package runs from, with "+changes" where files differ; None outside a checkout."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if not git("ls-files", "--error-unmatch", __file__):
            return None
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", str(here)) else "")
    except (OSError, subprocess.CalledProcessError):  # no git, or a package installed somewhere else
        return None
