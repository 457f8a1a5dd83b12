"""Checkpoints read: the whole ones of a directory, verified before they are trusted."""

import dataclasses
import errno
import itertools
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp

from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url, place
from bertzoo.train import contents, hosts, manifest
from bertzoo.train.state import State, named

_COMMITTED = "commit_success.txt"  # orbax's own
_restores = itertools.count()


def items_of(state: State) -> tuple[Any, dict[str, Any]]:
    """A state as two items on disk: the parameters, which evaluation reads alone, and the rest."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return fields.pop("params"), fields


def steps_in(directory: Path) -> list[int]:
    """The steps of the committed checkpoints in a directory, which need not exist, oldest first."""
    if not directory.is_dir():
        return []
    # Orbax renames a whole checkpoint to its number; one that lost files since it overlooks, and it must be reported.
    # In a bucket, where nothing can be renamed at once, a whole one has a mark.
    found = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    if is_url(str(directory)):
        found = [path for path in found if (path / _COMMITTED).exists()]
    return sorted(int(path.name) for path in found)


class Damaged(CheckpointError):
    """A checkpoint that fails its checksums or, having none, cannot be read."""


def _restore(checkpoint: Path, items: Mapping[str, Any], together: bool = True) -> Any:
    """Restore items {name: abstract tree} of a checkpoint after verifying it; `together` with all other processes, or
    each by itself.
    """
    if not together:
        sealed = _verified(checkpoint)
    else:
        sealed = hosts.share(f"verifying {checkpoint}", lambda: _verified(checkpoint))
    if isinstance(sealed, str):
        raise Damaged(sealed)
    restored, failure = None, None
    try:
        restored = _read(checkpoint, items, together, sealed)
    except CheckpointError as error:
        failure = error
    if together:
        failure = _failure_of_any(failure)
    if failure is not None:
        raise failure
    return restored


def _failure_of_any(mine: CheckpointError | None) -> CheckpointError | None:
    """What went wrong with the part of any process, so that all go the same way; damage counts last."""
    said = hosts.gather(
        f"restoring {next(_restores)}", json.dumps(None if mine is None else [isinstance(mine, Damaged), str(mine)])
    )
    failures = sorted(one for one in map(json.loads, said) if one)
    if not failures or hosts.alone():
        return mine
    damaged, message = failures[0]
    return Damaged(message) if damaged else CheckpointError(message)


def _read(checkpoint: Path, items: Mapping[str, Any], together: bool, sealed: bool) -> Any:
    args = {name: ocp.args.StandardRestore(tree) for name, tree in items.items()}
    options = ocp.options.MultiprocessingOptions()
    if not together and not hosts.alone():
        me = jax.process_index()
        options = ocp.options.MultiprocessingOptions(
            primary_host=None, active_processes={me}, barrier_sync_key_prefix=f"process-{me}"
        )
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler(), multiprocessing_options=options) as reader:
            return reader.restore(checkpoint, args=ocp.args.Composite(**args))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM):  # says nothing about the checkpoint
            raise
        raise Damaged(f"the checkpoint {checkpoint} cannot be read ({error})") from error
    except Exception as error:  # orbax raises half a dozen types for a file that is cut short
        if hosts.is_broken_collective(error):
            raise
        said = textwrap.shorten(str(error), 200, placeholder=" …")  # orbax prints both trees
        if not sealed:
            raise Damaged(f"the checkpoint {checkpoint} has no manifest and cannot be read ({said})") from error
        raise CheckpointError(
            f"the checkpoint {checkpoint} is whole but is not of this model and optimiser ({said})"
        ) from error


def check(directory: Path | str, abstract: State) -> None:
    """Raise CheckpointError naming the first array in which a directory's newest checkpoint is not as `abstract` says.

    Only what its files say is read; one that cannot be read is left to `Checkpoints.restore_latest`.
    """
    try:
        found = contents.read_contents(find(directory))
    except CheckpointError:
        return
    for wanted, there in zip(map(named, items_of(abstract)), (found.params, found.training), strict=True):
        for name in sorted(wanted.keys() | there.keys()):
            sides = [
                f"{tree[name].dtype} {tree[name].shape}" if name in tree else "nothing" for tree in (there, wanted)
            ]
            if sides[0] != sides[1]:
                raise CheckpointError(
                    f"the checkpoint {Path(directory) / str(found.step)} is not of this model and optimiser: "
                    f"{name} is {sides[0]} there and {sides[1]} here; give back its config, or choose another directory"
                )


def _verified(checkpoint: Path) -> bool | str:
    """Whether a checkpoint has a manifest, which it agrees with; or what is wrong."""
    try:
        return manifest.verify(checkpoint)
    except CheckpointError as error:
        return str(error)


def restore_state(checkpoint: Path, abstract: State) -> State:
    """The whole state of a checkpoint, by all processes together, placed as `abstract` says.

    Raises Damaged, or CheckpointError where it is of another model or optimiser.
    """
    params, training = items_of(abstract)
    restored = _restore(checkpoint, {"params": params, "training": training})
    return State(params=restored["params"], **restored["training"])


def find(directory: Path | str, which: Literal["latest", "best"] | int = "latest") -> Path:
    """The path of a checkpoint in a directory; raises CheckpointError when there is none such.

    "best" is the one of the lowest held-out loss.
    """
    directory = place(directory)
    if not directory.is_dir():
        raise CheckpointError(f"{directory} holds no checkpoints; give a run that has saved one")
    found = steps_in(directory)
    if which == "latest":
        step = found[-1] if found else None
    elif which == "best":
        losses = [(contents.read_loss(directory / str(step)), step) for step in found]
        step = min(((loss, step) for loss, step in losses if loss is not None), default=(None, None))[1]
    else:
        step = which if which in found else None
    if step is None:
        if not found:
            raise CheckpointError(f"{directory} holds no checkpoint yet; give a run that has saved one")
        asked = "with a held-out loss, to be the best" if which == "best" else which
        raise CheckpointError(f"{directory} has no checkpoint {asked}; it has {found}")
    return directory / str(step)


def restore_params(
    directory: Path | str, abstract_params: Any, which: Literal["latest", "best"] | int = "latest"
) -> tuple[Any, int]:
    """The parameters of one checkpoint and its step, without the optimiser; only reads, so a run may be writing.

    Raises CheckpointError naming the file when the checkpoint is missing, damaged or of another model.
    """
    checkpoint = find(directory, which)
    return _restore(checkpoint, {"params": abstract_params}, together=False)["params"], int(checkpoint.name)
