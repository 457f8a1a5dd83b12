"""List what a run's checkpoints hold: step, parameters, size, mesh.

The command needs no accelerator and, without --verify, reads only metadata.

examples:
  bertzoo checkpoints runs/first
  bertzoo checkpoints runs/first --checkpoint=best --verify
  bertzoo checkpoints runs/first --json
"""

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.api.options import Checkpoint, checkpoint_field
from bertzoo.cli.support import json_field
from bertzoo.core.errors import CheckpointError
from bertzoo.core.options import option
from bertzoo.core.tables import aligned

if TYPE_CHECKING:
    from bertzoo.train.contents import Contents

HEAD = ("step", "stage", "row", "parameters", "on disk", "held-out loss", "saved on")


@dataclasses.dataclass(frozen=True)
class CheckpointsFlags:
    run: str = option("the directory or gs:// URL of a run", metavar="RUN")
    _: dataclasses.KW_ONLY
    checkpoint: Checkpoint | None = checkpoint_field(
        "input", "list the arrays of one checkpoint: latest, best or a step (default: list all checkpoints)"
    )
    verify: bool = option("read every file and compare its checksum with the recorded one", False, group="output")
    json: bool = json_field()


def main(options: CheckpointsFlags) -> int:
    """Print the checkpoints, or the arrays of one; the exit code is 2 if a checkpoint is damaged."""
    from bertzoo.runs.run_dir import RunDirectory
    from bertzoo.train.checkpoint import find_checkpoint, steps_in

    run = RunDirectory(options.run)
    run.fetch()
    run.load()
    checkpoint = find_checkpoint(run.checkpoints, "latest" if options.checkpoint is None else options.checkpoint)
    if options.checkpoint is not None:
        contents = read_checkpoint(checkpoint, options.verify)
        print(json.dumps(as_json(contents, arrays=True)) if options.json else listing(contents))
        return 0
    intact, errors = [], []
    for step in steps_in(run.checkpoints):
        try:
            intact.append(read_checkpoint(run.checkpoints / str(step), options.verify))
        except CheckpointError as error:
            errors.append(error)
    print(json.dumps(list(map(as_json, intact))) if options.json else "\n".join(aligned([HEAD, *map(cells, intact)])))
    for error in errors:
        print(f"bertzoo: {error}", file=sys.stderr)
    return CheckpointError.exit_code if errors else 0


def read_checkpoint(checkpoint: Path, verify: bool) -> "Contents":
    """Read the contents of a checkpoint; raises CheckpointError if it is damaged or cannot be verified."""
    from bertzoo.train import contents

    if verify and not contents.verify(checkpoint):
        raise CheckpointError(
            f"the checkpoint {checkpoint} cannot be verified, because its manifest {contents.path_of(checkpoint)} is "
            "missing. Leave --verify out."
        )
    return contents.read_contents(checkpoint)


def as_json(contents: "Contents", arrays: bool = False) -> dict[str, Any]:
    """Return the JSON object of a checkpoint. arrays: whether to list the checkpoint's arrays."""
    fields = dataclasses.asdict(contents)
    trees = {name: fields.pop(name) for name in ("params", "training")}
    size = fields.pop("size")
    return {**fields, "parameters": contents.parameters, "bytes": size, **(trees if arrays else {})}


def cells(contents: "Contents") -> tuple[str, ...]:
    """Return a checkpoint's table cells, in the order of the columns HEAD."""
    devices = math.prod(contents.mesh.values())
    split = " ".join(f"{axis}={size}" for axis, size in contents.mesh.items() if size > 1)
    return (
        str(contents.step),
        str(contents.position["stage"]),
        f"{contents.position['row']:,}",
        f"{contents.parameters:,}",
        f"{contents.size / 2**20:,.1f} MiB",
        "" if contents.loss is None else f"{contents.loss:.4f}",
        f"{devices} device{'' if devices == 1 else 's'}{f' ({split})' if split else ''}",
    )


def listing(contents: "Contents") -> str:
    """Return a checkpoint's table row and a table of its arrays, parameters first, as text."""
    stored = contents.params | {f"training/{path}": array for path, array in contents.training.items()}
    rows = [
        (path, "×".join(map(str, array.shape)) or "1", array.dtype, " ".join(filter(None, array.split)))
        for path, array in stored.items()
    ]
    arrays = aligned([("array", "shape", "dtype", "split over"), *rows])
    return "\n".join([*aligned([HEAD, cells(contents)]), "", *arrays])
