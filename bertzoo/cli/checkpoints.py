"""What a run's checkpoints hold: step, data position, parameters, size on disk, and the mesh they were saved on.

Read from their files alone: no accelerator is needed and no array is read, but for --verify, which compares every file
with its checksum. With --checkpoint the arrays of one are listed, with shape, dtype and the mesh axes they were split
over. Parameters count the spare rows of the vocabulary too.

examples:
  bertzoo checkpoints runs/first
  bertzoo checkpoints runs/first --checkpoint=best --verify
"""

import argparse
import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import checkpoint_option
from bertzoo.core.errors import CheckpointError

if TYPE_CHECKING:
    from bertzoo.train.contents import Array, Contents

HEAD = ("step", "stage", "row", "parameters", "on disk", "held-out loss", "saved on")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    checkpoint_option(parser, default=None, shown="list the arrays of one: latest, best or a step")
    parser.add_argument("--verify", action="store_true", help="read every file and compare its checksum")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Read and print; a damaged checkpoint does not keep the others from being listed, but ends with exit code 2."""
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.train.restore import find, steps_in

    run = RunDirectory(args.run)
    run.fetch()
    run.load()
    if args.checkpoint is not None:
        contents = opened(find(run.checkpoints, args.checkpoint), args.verify)
        print(json.dumps(plain(contents)) if args.json else "\n".join(listing(contents)))
        return 0
    find(run.checkpoints)  # raises where there is none
    good, damaged = [], []
    for step in steps_in(run.checkpoints):
        try:
            good.append(opened(run.checkpoints / str(step), args.verify))
        except CheckpointError as error:
            damaged.append(error)
    if args.json:
        print(json.dumps([summary(contents) for contents in good]))
    else:
        print("\n".join(table([HEAD, *map(cells, good)])))
    for error in damaged:
        print(f"bertzoo: {error}", file=sys.stderr)
    return CheckpointError.exit_code if damaged else 0


def opened(checkpoint: Path, verify: bool) -> "Contents":
    """What a checkpoint holds; raises CheckpointError where it is damaged."""
    from bertzoo.train import contents, manifest

    found = contents.read_contents(checkpoint)
    if verify and not manifest.verify(checkpoint):
        raise CheckpointError(
            f"the checkpoint {checkpoint} has no manifest {manifest.path_of(checkpoint)} to verify it"
        )
    return found


def parameters(contents: "Contents") -> int:
    """How many numbers the parameters are."""
    return sum(math.prod(array.shape) for array in contents.params.values())


def summary(contents: "Contents") -> dict[str, Any]:
    """A checkpoint without its arrays."""
    kept = {name: getattr(contents, name) for name in ("step", "position", "loss", "mesh")}
    return {**kept, "parameters": parameters(contents), "bytes": contents.size}


def plain(contents: "Contents") -> dict[str, Any]:
    """A checkpoint with its arrays."""
    trees = {"params": contents.params, "training": contents.training}
    return summary(contents) | {
        name: {path: dataclasses.asdict(array) for path, array in tree.items()} for name, tree in trees.items()
    }


def cells(contents: "Contents") -> tuple[str, ...]:
    """A row of the table."""
    devices = math.prod(contents.mesh.values())
    split = " ".join(f"{axis}={size}" for axis, size in contents.mesh.items() if size > 1)
    return (
        str(contents.step),
        str(contents.position["stage"]),
        f"{contents.position['row']:,}",
        f"{parameters(contents):,}",
        f"{contents.size / 2**20:,.1f} MiB",
        "" if contents.loss is None else f"{contents.loss:.4f}",
        f"{devices} device{'' if devices == 1 else 's'}{f' ({split})' if split else ''}",
    )


def listing(contents: "Contents") -> list[str]:
    """A checkpoint and its arrays for a person, a line each; the parameters first."""
    rows = [("array", "shape", "dtype", "split over"), *map(described, contents.params.items())]
    rows += [described((f"training/{path}", array)) for path, array in contents.training.items()]
    return [*table([HEAD, cells(contents)]), "", *table(rows)]


def described(item: "tuple[str, Array]") -> tuple[str, ...]:
    """A row about an array."""
    path, array = item
    return path, "×".join(map(str, array.shape)) or "1", array.dtype, " ".join(axes for axes in array.split if axes)


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows under one another, in columns as wide as they need to be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
