"""Which class of config a file holds."""

import contextlib
import tomllib
from pathlib import Path

from bertzoo import config
from bertzoo.errors import ConfigError
from bertzoo.finetune.settings import Finetune
from bertzoo.prune.settings import Prune
from bertzoo.recipe import Pretrain
from bertzoo.sweep.chain import ROOT, Chain
from bertzoo.transfer import Recipe, Transfer

Kind = type[Pretrain] | type[Transfer] | type[Finetune] | type[Chain] | type[Prune]
# What one sort of config alone has; what has neither is a pretraining.
MARKS: dict[str, Kind] = {"teacher": Transfer, "epochs": Finetune, ROOT: Chain, "weigh": Prune}


def class_of(*files: str | Path) -> Kind:
    """The class of config that files (paths or names of shipped configs) describe.

    A file that cannot be read is left to the loader, which says so.
    """
    for file in files:
        with contextlib.suppress(ConfigError, OSError, ValueError):
            table = tomllib.loads(config.find(file).read_text(encoding="utf-8"))
            for mark, kind in MARKS.items():
                if mark in table:
                    return kind
    return Pretrain


def recipe_class(*files: str | Path) -> type[Recipe]:
    """As `class_of`; raises ConfigError for a config of what is no single run with a model of its own."""
    kind = class_of(*files)
    if kind is Chain:
        raise ConfigError(f"{', '.join(map(str, files))} describes a chain of runs: `bertzoo chain` runs it")
    if kind is Prune:
        raise ConfigError(f"{', '.join(map(str, files))} describes a pruning, a chain of runs: `bertzoo prune` runs it")
    if kind is Finetune:
        raise ConfigError(f"{', '.join(map(str, files))} describes fine-tuning and has no model of its own")
    return kind  # pyright: ignore[reportReturnType]


def shipped(kind: Kind) -> list[str]:
    """The names of the shipped configs of a class."""
    return [name for name, path in config.shipped().items() if class_of(path) is kind]
