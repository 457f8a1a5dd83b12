"""Print the config that the files and options describe, complete, as TOML.

examples:
  bertzoo config squeezebert
  bertzoo config mobilebert_transfer --transfer.lower_rate=0
  bertzoo config configs/convbert_small.toml long.toml --model.layers=6 --stages.*.batch_size=64
"""

import argparse
from collections.abc import Sequence

from bertzoo import config as loader
from bertzoo.errors import UserError


def config() -> type:
    """The class of the config."""
    from bertzoo.recipe import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the config."""
    from bertzoo.kinds import class_of
    from bertzoo.sweep.chain import Chain

    kind = class_of(*args.files)
    if kind is Chain:
        raise UserError(
            f"{', '.join(args.files)} describes a chain of runs: `bertzoo chain --list` prints their commands"
        )
    print(loader.dump(loader.load(kind, args.files, overrides)), end="")
    return 0
