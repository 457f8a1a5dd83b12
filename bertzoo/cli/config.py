"""Print the complete config that files and options describe, as TOML.

examples:
  bertzoo config squeezebert
  bertzoo config mobilebert_transfer --transfer.lower_rate=0
  bertzoo config configs/convbert_small.toml long.toml --model.layers=6 --stages.*.batch_size=64
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bertzoo.core import config as loader
from bertzoo.core.errors import UserError


def config() -> type:
    """Return the class whose fields an option may name without a dot."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")


def config_class(*files: str | Path) -> type:
    """Return the class of the config that files describe; raises UserError for a chain of runs."""
    from bertzoo.runs.kind import kind_of, recipe_class

    match kind_of(*files):
        case "finetune":
            from bertzoo.finetuning.settings import Finetune

            return Finetune
        case "prune":
            from bertzoo.pruning.settings import Prune

            return Prune
        case "chain":
            names = ", ".join(map(str, files))
            raise UserError(f"{names} describes a chain of runs. Print their commands with `bertzoo chain --list`.")
        case _:
            return recipe_class(*files)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the config."""
    print(loader.dump(loader.load(config_class(*args.files), args.files, overrides)), end="")
    return 0
