"""Find, verify and restore checkpoints."""

import contextlib
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

from bertzoo.core.documents import parse_json
from bertzoo.core.errors import CheckpointError
from bertzoo.core.paths import is_url, place
from bertzoo.train import contents, hosts, manifest
from bertzoo.train.state import State, named

COMMITTED = "commit_success.txt"  # orbax's marker of a complete checkpoint
TRAINING = "training"  # the item of a checkpoint beside its parameters
_ENVIRONMENT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM)  # they do not mean damage
_restores = itertools.count()


def items_of(state: State) -> tuple[Any, dict[str, Any]]:
    """Return a state's two items in a checkpoint: the parameters (all that evaluation reads), and the rest."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return fields.pop("params"), fields


def steps_in(directory: Path) -> list[int]:
    """Return the steps of the committed checkpoints in a directory, oldest first; [] if it does not exist."""
    if not directory.is_dir():
        return []
    # Orbax renames a complete checkpoint to its step. Its own listing skips one that has lost files since, which must
    # be reported. A bucket has no atomic rename: there a complete checkpoint has a marker file.
    paths = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    if is_url(str(directory)):
        paths = [path for path in paths if (path / COMMITTED).exists()]
    return sorted(int(path.name) for path in paths)


class DamagedCheckpoint(CheckpointError):
    """A checkpoint that fails its checksums or, without a manifest, cannot be read."""


def find_checkpoint(directory: Path | str, which: Literal["latest", "best"] | int = "latest") -> Path:
    """Return the path of the latest checkpoint, the best (lowest held-out loss) or the checkpoint of a step.

    Raises CheckpointError if there is none.
    """
    directory = place(directory)
    steps = steps_in(directory)
    if not steps:
        missing = "no checkpoint yet" if directory.is_dir() else "no checkpoints"
        raise CheckpointError(f"{directory} holds {missing}. Use a run that has saved a checkpoint.")
    if which == "best":
        losses = [(contents.read_loss(directory / str(step)), step) for step in steps]
        _, step = min(((loss, step) for loss, step in losses if loss is not None), default=(None, None))
        if step is None:
            raise CheckpointError(
                f"{directory} has no checkpoint with a held-out loss: those of steps {steps} have none. Use "
                "--checkpoint=latest."
            )
    else:
        step = steps[-1] if which == "latest" else which
        if step not in steps:
            raise CheckpointError(f"{directory} has no checkpoint {step}. Use one of {steps}.")
    return directory / str(step)


def check_compatible(directory: Path | str, abstract: State) -> None:
    """Raise CheckpointError naming the first array in which a directory's newest checkpoint differs from `abstract`.

    Reads metadata only. Ignores a checkpoint that cannot be read, which `Checkpoints.restore_latest` handles.
    """
    try:
        saved = contents.read_contents(find_checkpoint(directory))
    except CheckpointError:
        return
    for expected, stored in zip(items_of(abstract), (saved.params, saved.training), strict=True):
        _check_arrays(Path(directory) / str(saved.step), expected, stored)


def _check_arrays(checkpoint: Path, expected: Any, stored: Mapping[str, contents.StoredArray]) -> None:
    """Raise CheckpointError naming the first array in which the checkpoint's `stored` differs from `expected`."""
    expected = named(expected)
    for name in sorted(expected.keys() | stored.keys()):
        ours, theirs = (
            f"{tree[name].dtype} {tree[name].shape}" if name in tree else "nothing" for tree in (expected, stored)
        )
        if ours != theirs:
            raise CheckpointError(
                f"the checkpoint {checkpoint} does not fit this model and optimiser: {name} is {theirs} in the "
                f"checkpoint, not {ours}. Restore the checkpoint's config, or use another directory."
            )


def restore_state(checkpoint: Path, abstract: State) -> State:
    """Restore the whole state of a checkpoint in all processes together, with the shardings of `abstract`.

    Raises DamagedCheckpoint, or CheckpointError if the checkpoint is of another model or optimiser.
    """
    params, training = items_of(abstract)
    items = {"params": params, TRAINING: training}
    sealed = hosts.share(f"verifying {checkpoint}", lambda: _verify(checkpoint))
    if isinstance(sealed, str):
        raise DamagedCheckpoint(sealed)
    restored, failure = None, None
    try:
        restored = _restore_items(checkpoint, items, sealed, ocp.options.MultiprocessingOptions())
    except CheckpointError as error:
        failure = error
    if failure := _failure_of_any(failure):
        raise failure
    assert restored is not None
    if (step := int(restored[TRAINING]["step"])) != int(checkpoint.name):
        raise DamagedCheckpoint(str(manifest.another_step(checkpoint, step)))
    return State(params=restored["params"], **restored[TRAINING])


def restore_params(
    directory: Path | str, abstract_params: Any, which: Literal["latest", "best"] | int = "latest"
) -> tuple[Any, int]:
    """Restore a checkpoint's parameters, in this process alone; return (parameters, the checkpoint's step).

    Only reads, so a run may be writing to the directory. Raises CheckpointError naming the file if the checkpoint is
    missing, damaged or of another model.
    """
    checkpoint = find_checkpoint(directory, which)
    sealed = _verify(checkpoint, unread=TRAINING)
    if isinstance(sealed, str):
        raise DamagedCheckpoint(sealed)
    _check_before(checkpoint, abstract_params)
    options = ocp.options.MultiprocessingOptions()
    if not hosts.alone():
        process = jax.process_index()
        options = ocp.options.MultiprocessingOptions(
            primary_host=None, active_processes={process}, barrier_sync_key_prefix=f"process-{process}"
        )
    return _restore_items(checkpoint, {"params": abstract_params}, sealed, options)["params"], int(checkpoint.name)


def _check_before(checkpoint: Path, abstract_params: Any) -> None:
    """Raise CheckpointError if a checkpoint is of another model or step; ignore damage, which orbax finds later.

    orbax would reject another model too, but TensorStore would print log lines before the error.
    """
    stored = None
    with contextlib.suppress(Exception):  # orbax and tensorstore raise many types for a damaged file
        stored = contents.stored_arrays(checkpoint / "params", [])
    if stored is not None:
        _check_arrays(checkpoint, abstract_params, stored)
    try:
        if not is_url(str(checkpoint)):
            contents.check_step(checkpoint)
    except CheckpointError:
        raise
    except Exception:  # its item "training" is damaged or was not copied, but is not needed
        return


def _verify(checkpoint: Path, unread: str | None = None) -> bool | str:
    """Return True if a checkpoint matches its manifest, False if there is no manifest, an error message if they differ.

    unread: as in `manifest.verify`.
    """
    try:
        return manifest.verify(checkpoint, unread=unread)
    except CheckpointError as error:
        return str(error)


def _failure_of_any(failure: CheckpointError | None) -> CheckpointError | None:
    """Return the error that all processes raise if one has failed, else None; failure: this process's error.

    The result is a DamagedCheckpoint only if no process has an error of another type.
    """
    message = None if failure is None else [isinstance(failure, DamagedCheckpoint), str(failure)]
    messages = hosts.gather(f"restoring {next(_restores)}", json.dumps(message))
    failures = sorted(filter(None, (parse_json(message, object) for message in messages)))
    if not failures or hosts.alone():
        return failure
    damaged, message = failures[0]
    return DamagedCheckpoint(message) if damaged else CheckpointError(message)


def _restore_items(
    checkpoint: Path, items: Mapping[str, Any], sealed: bool, options: ocp.options.MultiprocessingOptions
) -> Any:
    args = {name: ocp.args.StandardRestore(tree) for name, tree in items.items()}
    try:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler(), multiprocessing_options=options) as reader:
            return reader.restore(checkpoint, args=ocp.args.Composite(**args))
    except OSError as error:
        if error.errno in _ENVIRONMENT_ERRORS:
            raise
        raise DamagedCheckpoint(
            f"the checkpoint {checkpoint} cannot be read ({error}). Use another checkpoint."
        ) from error
    except Exception as error:  # orbax raises many types for a truncated file
        if hosts.is_broken_collective(error):
            raise
        reason = textwrap.shorten(str(error), 200, placeholder=" …")  # orbax prints both trees
        if not sealed:
            raise DamagedCheckpoint(
                f"the checkpoint {checkpoint} has no manifest and cannot be read ({reason}). Use another checkpoint."
            ) from error
        raise CheckpointError(
            f"the checkpoint {checkpoint} matches its checksums, but cannot be restored into this model ({reason}). "
            "Use the config that it was saved with, or another directory."
        ) from error
