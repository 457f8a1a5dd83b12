"""Kinds of runs. Each subpackage registers its kind; lower subpackages look it up here and import none above them."""

import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertzoo.core import config
from bertzoo.core.errors import ConfigError, UserError

CONFIG, METRICS = "config.toml", "metrics.jsonl"  # a run's resolved config, and its log of metrics and events
KINDS: dict[str, "Kind"]  # the registered kinds, by name; imported when it is first read
_registered: dict[str, "Kind"] = {}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A subpackage's declaration of its runs.

    name: the value of `kind` in a config, and the command that runs it.
    config_at: where the config class is, as "MODULE:NAME".
    report_at: where the function (directory) -> (paths of the files written, metrics as text) is, as "MODULE:NAME".
    key: a top-level key that only configs of this kind have; it identifies the kind of a file without `kind`.
    model: function that returns the folder of a finished run's model, relative to the run. Its argument returns the
    bytes of a file in the run. None if the newest checkpoint is the model.
    training_runs: function from a run's directory to the directories of its training runs, in order.
    folders: regular expressions for the names of a run's folders that hold models.
    """

    name: str
    config_at: str
    report_at: str
    key: str = ""
    model: Callable[[Callable[[str], bytes]], str] | None = None
    training_runs: Callable[[Path], list[Path]] = field(default=lambda run: [run])
    folders: tuple[str, ...] = ()

    def config(self) -> type:
        """Import and return the config class."""
        return pkgutil.resolve_name(self.config_at)

    def report(self) -> Callable[[Path], tuple[list[Path], str]]:
        """Import and return the function that writes the report."""
        return pkgutil.resolve_name(self.report_at)

    def model_directory(self, run: Path) -> Path:
        """Return the directory of the finished model in `run`; raises UserError if it is missing or damaged."""
        assert self.model is not None, f"runs of kind {self.name} hold no model directory"
        again = f"Run the same bertzoo {self.name} again, or name the directory of another model."
        try:
            folder = run / self.model(lambda name: (run / name).read_bytes())
        except FileNotFoundError as error:
            raise UserError(f"{run} is unfinished: it has no {Path(error.filename).name}. {again}") from error
        except ValueError as error:
            raise UserError(f"{run} is damaged: {error}. {again}") from error
        if not folder.is_dir():
            raise UserError(f"{run} has no model: {folder} is missing. {again}")
        return folder

    def is_finished(self, run: Path) -> bool:
        """Return whether `run` holds its model."""
        with suppress(UserError):
            return self.model_directory(run).is_dir()
        return False


def register(kind: Kind) -> Kind:
    """Add a subpackage's kind of run to those that configs may name; returns it."""
    _registered[kind.name] = kind
    return kind


def __getattr__(name: str) -> Any:
    if name != "KINDS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    sys.modules["bertzoo"].register_kinds()
    globals()["KINDS"] = _registered
    return _registered


def _kinds() -> dict[str, Kind]:
    return sys.modules[__name__].KINDS


def kind_of(table: Mapping[str, Any]) -> Kind:
    """Return the kind of run that a config's table names; raises ConfigError for an unknown one.

    A table without `kind`, such as an older run's config, is of the kind whose `key` it has, else "pretrain".
    """
    if "kind" not in table:
        return next((kind for kind in _kinds().values() if kind.key and kind.key in table), _kinds()["pretrain"])
    if (kind := _kinds().get(str(table["kind"]))) is None:
        raise ConfigError(f"kind = {table['kind']!r} is unknown. Use one of {', '.join(sorted(_kinds()))}.")
    return kind


def kind_of_files(*files: str | Path) -> Kind:
    """Return the kind of run that config files (paths or names of shipped configs) describe together.

    Raises ConfigError if a file cannot be read.
    """
    tables = [config.read_toml(config.find(file)) for file in files]
    return kind_of({key: value for table in reversed(tables) for key, value in table.items()})


def kind_of_run(directory: Path) -> Kind | None:
    """Return the kind of the run in a directory, or None if the directory has no config."""
    return kind_of_files(directory / CONFIG) if (directory / CONFIG).is_file() else None


def config_class(*files: str | Path) -> type:
    """Return the config class of files for one training run; raises ConfigError for a kind with several runs."""
    kind = kind_of_files(*files)
    if kind.model is not None:
        single = sorted(name for name, other in _kinds().items() if other.model is None)
        raise ConfigError(
            f'{", ".join(map(str, files))} has kind = "{kind.name}", but this command takes {" or ".join(single)}. '
            f"Name another config, or use `bertzoo {kind.name}`."
        )
    return kind.config()


def shipped(name: str) -> list[str]:
    """Return the names of the package's configs of a kind."""
    return [file for file, path in config.shipped().items() if kind_of_files(path).name == name]


def model_name(name: Path | str) -> str:
    """Return a short name of a model: the last component of its path.

    For a model inside a run, it is the path from the run's name on, such as RUN/checkpoints/10.
    """
    inside = re.compile("|".join(folder for kind in _kinds().values() for folder in kind.folders))
    parts = Path(name).parts
    first = next((i for i, part in enumerate(parts) if i and inside.fullmatch(part)), len(parts))
    return "/".join(parts[first - 1 :])
