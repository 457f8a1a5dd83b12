"""Find what kind of run a config file describes: pretraining, transfer, fine-tuning or pruning."""

import contextlib
from pathlib import Path
from typing import Literal

from bertzoo.core import config
from bertzoo.core.documents import read_toml
from bertzoo.core.errors import ConfigError
from bertzoo.runs.pretrain_config import Pretrain
from bertzoo.runs.transfer_config import Recipe, Transfer

Kind = Literal["pretrain", "transfer", "finetune", "prune"]
# Top-level keys that only one kind has; a config without any of them is for pretraining.
MARKS: dict[str, Kind] = {"teacher": "transfer", "epochs": "finetune", "weigh": "prune"}


def kind_of(*files: str | Path) -> Kind:
    """Return the kind of run that config files (paths or names of shipped configs) describe together.

    Skips unreadable files, for which the loader raises an error later.
    """
    for file in files:
        with contextlib.suppress(ConfigError, OSError, ValueError):
            table = read_toml(config.find(file))
            for mark, kind in MARKS.items():
                if mark in table:
                    return kind
    return "pretrain"


def recipe_class(*files: str | Path) -> type[Recipe]:
    """Return the class of a run's config, Pretrain or Transfer.

    Raises ConfigError if the files describe another kind of run.
    """
    match kind_of(*files):
        case "pretrain":
            return Pretrain
        case "transfer":
            return Transfer
        case kind:
            raise ConfigError(
                f"{', '.join(map(str, files))} is a {kind} config, but this command needs one for pretraining or "
                f"transfer. Name another config, or use `bertzoo {kind}`."
            )


def shipped(kind: Kind) -> list[str]:
    """Return the names of the package's configs that describe a kind of run."""
    return [name for name, path in config.shipped().items() if kind_of(path) == kind]
