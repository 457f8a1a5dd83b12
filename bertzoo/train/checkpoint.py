"""Write checkpoints in the background, completely or not at all, and verify them before they are restored."""

import contextlib
import dataclasses
import errno
import itertools
import json
import logging
import operator
import os
import re
import textwrap
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import jax
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import preservation_policy as preservation

from bertzoo.core.documents import parse_json
from bertzoo.core.errors import CheckpointError, SaveError
from bertzoo.core.paths import is_url, to_path
from bertzoo.train import contents, hosts
from bertzoo.train.contents import DamagedCheckpoint
from bertzoo.train.state import State, named

_LOG = logging.getLogger(__name__)
_loss = operator.itemgetter(contents.LOSS)
COMMITTED = "commit_success.txt"  # orbax's marker of a complete checkpoint
TRAINING = "training"  # the item of a checkpoint beside its parameters
_ENVIRONMENT_ERRORS = (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM)  # no signs of damage
_restores = itertools.count()


def items_of(state: State) -> dict[str, Any]:
    """Return a state's two items in a checkpoint: "params", all that evaluation reads, and TRAINING, the rest."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return {"params": fields.pop("params"), TRAINING: fields}


def steps_in(directory: Path) -> list[int]:
    """Return the steps of the committed checkpoints in a directory, oldest first; [] if it does not exist."""
    if not directory.is_dir():
        return []
    # Orbax renames a complete checkpoint to its step. Its own listing skips a checkpoint with missing files, which must
    # be reported. A bucket has no atomic rename: there a complete checkpoint has a marker file.
    paths = [path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir()]
    if is_url(str(directory)):
        paths = [path for path in paths if (path / COMMITTED).exists()]
    return sorted(int(path.name) for path in paths)


def find_checkpoint(directory: Path | str, which: Literal["latest", "best"] | int = "latest") -> Path:
    """Return the path of the latest, the best (by held-out loss) or a step's checkpoint, or raise CheckpointError."""
    directory = to_path(directory)
    steps = steps_in(directory)
    if not steps:
        missing = "no checkpoint yet" if directory.is_dir() else "no checkpoints"
        raise CheckpointError(f"{directory} holds {missing}. Use a run that has saved a checkpoint.")
    if which == "best":
        losses = [(contents.read_loss(directory / str(step)), step) for step in steps]
        _, step = min(((loss, step) for loss, step in losses if loss is not None), default=(None, None))
        if step is None:
            raise CheckpointError(
                f"{directory} has no checkpoint with a held-out loss: not those of {steps}. Use --checkpoint=latest."
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
    for name, expected in items_of(abstract).items():
        _check_arrays(Path(directory) / str(saved.step), expected, getattr(saved, name))


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

    def verify() -> bool | str:
        try:
            return contents.verify(checkpoint)
        except DamagedCheckpoint as error:
            return str(error)

    sealed = hosts.share(f"verifying {checkpoint}", verify)
    if isinstance(sealed, str):
        raise DamagedCheckpoint(sealed)
    restored, failure, message = None, None, None
    try:
        restored = _restore_items(checkpoint, items_of(abstract), sealed, ocp.options.MultiprocessingOptions())
    except CheckpointError as error:
        failure, message = error, [isinstance(error, DamagedCheckpoint), str(error)]
    # All processes raise the same error, a DamagedCheckpoint only if none has an error of another type.
    messages = hosts.gather(f"restoring {next(_restores)}", json.dumps(message))
    if failures := sorted(filter(None, (parse_json(message, object) for message in messages))):
        damaged, message = failures[0]
        raise (DamagedCheckpoint if damaged else CheckpointError)(message) from failure
    assert restored is not None
    if (step := int(restored[TRAINING]["step"])) != int(checkpoint.name):
        raise contents.another_step(checkpoint, step)
    return State(params=restored["params"], **restored[TRAINING])


def restore_params(
    directory: Path | str, abstract_params: Any, which: Literal["latest", "best"] | int = "latest"
) -> tuple[Any, int]:
    """Restore a checkpoint's parameters, in this process alone; return (parameters, the checkpoint's step).

    Only reads, so a run may be writing to the directory. Raises CheckpointError naming the file if the checkpoint is
    missing, damaged or of another model.
    """
    checkpoint = find_checkpoint(directory, which)
    sealed = contents.verify(checkpoint, unread=TRAINING)
    stored, step = None, int(checkpoint.name)
    with contextlib.suppress(Exception):  # orbax and tensorstore raise many types for damage, which is reported below
        stored = contents.stored_arrays(checkpoint / "params", [])
    with contextlib.suppress(Exception):  # its item "training" is damaged or was not copied, but is not needed
        step = step if is_url(str(checkpoint)) else contents.read_number(checkpoint, "step")
    if stored is not None:  # orbax would reject another model too, but TensorStore would print log lines before
        _check_arrays(checkpoint, abstract_params, stored)
    if step != int(checkpoint.name):
        raise contents.another_step(checkpoint, step)
    options = ocp.options.MultiprocessingOptions()
    if not hosts.alone():
        process = jax.process_index()
        options = ocp.options.MultiprocessingOptions(
            primary_host=None, active_processes={process}, barrier_sync_key_prefix=f"process-{process}"
        )
    return _restore_items(checkpoint, {"params": abstract_params}, sealed, options)["params"], step


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


def _is_of_abandoned_write(record: logging.LogRecord) -> bool:
    """Return whether an asyncio record is of a write of orbax or tensorstore that failed after another one."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or "never retrieved" not in record.getMessage():
        return False
    if error.__traceback__ is None:  # raised by no Python code: tensorstore's ValueError begins with a status
        return isinstance(error, ValueError) and re.match("[A-Z_]+: ", str(error)) is not None
    return any("orbax" in frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))


# Failures reach the caller as exceptions, so hide orbax's log of tracebacks and option warnings.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)
logging.getLogger("asyncio").addFilter(lambda record: not _is_of_abandoned_write(record))
# Limits of a write: the problem at the path in the message, and a remedy.
_LIMITS = {
    errno.ENOSPC: ("the disk is full", "Free space there"),
    errno.EDQUOT: ("the quota of the disk is used up", "Free space there"),
    errno.EFBIG: ("the file exceeds the limit on the size of files", "Raise the limit (ulimit -f)"),
}


class Checkpoints:
    """Write and restore the checkpoints of a run: `<directory>/<step>/` and `<directory>/<step>.sha256.json`.

    keep_last, keep_best: numbers of newest checkpoints, and of others with the lowest held-out loss, to keep.
    before_save: called by process 0 before every save; an error that it raises prevents the save.

    One run at a time may use a directory. All processes of the run call every method together, and must share the
    directory's file system or GCS bucket.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        keep_last: int = 3,
        keep_best: int = 1,
        before_save: Callable[[], None] | None = None,
    ):
        self.directory = to_path(directory)
        self._named = self.directory if is_url(str(directory)) else Path(directory)  # as messages name it
        self._before_save = before_save
        self._keep_last, self._keep_best = keep_last, keep_best
        self._sealer = ThreadPoolExecutor(1, thread_name_prefix="seal")
        self._saving: tuple[int, Future[None]] | None = None  # the step and the thread's work on it
        self._manager = self._open(cleanup=True)
        self._remove_orphans()

    def _open(self, *, cleanup: bool) -> ocp.CheckpointManager:
        latest = preservation.LatestN(self._keep_last)
        best = preservation.BestN(
            get_metric_fn=_loss, reverse=True, n=self._keep_best, keep_checkpoints_without_metrics=False
        )
        options = ocp.CheckpointManagerOptions(
            best_fn=_loss,
            best_mode="min",
            create=True,
            cleanup_tmp_directories=cleanup,
            preservation_policy=preservation.AnyPreservationPolicy([latest, best]),
        )
        return ocp.CheckpointManager(self.directory, options=options, item_names=("params", "training", "metrics"))

    def latest(self) -> Path | None:
        """Return the path of the newest committed checkpoint, or None if there is none."""
        steps = steps_in(self.directory)
        return self._named / str(steps[-1]) if steps else None

    def save(self, state: State, *, loss: float | None = None) -> None:
        """Start a save and return once the state is copied and may be donated; loss: held-out loss in nats, if any.

        Raises CheckpointError if this or the previous save failed.
        """
        self.wait()
        if self._before_save:
            hosts.share("the check before a save", self._before_save)
        step = int(state.step)
        args = ocp.args.Composite(**{name: ocp.args.StandardSave(tree) for name, tree in items_of(state).items()})
        try:
            self._manager.save(step, args=args, metrics=None if loss is None else {contents.LOSS: loss}, force=True)
        except Exception as error:
            self._check_save(step, error)
        else:
            self._saving = step, self._sealer.submit(self._seal, step)

    def wait(self) -> None:
        """Wait until the current save is committed and has its manifest; raises CheckpointError if the save failed."""
        if self._saving is None:
            return
        step, sealed = self._saving
        failure, self._saving = sealed.exception(), None
        self._check_save(step, failure)

    def _check_save(self, step: int, failure: BaseException | None) -> None:
        """Wait until all processes have saved; raise CheckpointError if one failed. failure: this process's error."""
        path, message = self.directory / str(step), "" if failure is None else str(failure) or type(failure).__name__
        if message := next(filter(None, hosts.gather(f"saving {path}", message)), ""):
            self._reopen()
            raise self._write_error(f"checkpoint {step} ({path})", message) from failure

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, OSError) and error.errno in _LIMITS:  # of another file of the run, such as its metrics
            raise self._write_error(f"{error.filename or self._named.parent}", str(error)) from error

    def close(self) -> None:
        """Wait for the current save and release the directory; raises CheckpointError if the save failed."""
        try:
            self.wait()
            self._sealer.shutdown()
        finally:
            self._manager.close()

    def restore_latest(self, abstract: State | Callable[[int], State]) -> State | None:
        """Restore the newest undamaged checkpoint with the shardings of `abstract`; None if there are no checkpoints.

        abstract: the result of `state.abstract` or, if the optimiser state differs by step, a function that returns
        this result for a step.

        Damaged checkpoints are skipped: each is logged with its damaged file and renamed to damaged-<step>. Raises
        CheckpointError if all are damaged, or if an undamaged one does not fit `abstract`.
        """
        damage: dict[int, str] = {}
        for step in reversed(hosts.share("the list of checkpoints", lambda: steps_in(self.directory))):
            try:
                shapes = abstract(step) if callable(abstract) else abstract
                state = restore_state(self.directory / str(step), shapes)
            except DamagedCheckpoint as error:
                damage[step] = str(error)
                continue
            self._rename_damaged(damage, step)
            return state
        if damage:
            raise CheckpointError(
                f"every checkpoint in {self.directory} is damaged. Copy back an undamaged one, or use another "
                f"directory. {' '.join(damage.values())}"
            )
        return None

    def _rename_damaged(self, damage: dict[int, str], good: int) -> None:
        if not damage:
            return
        for step, message in damage.items() if hosts.is_first() else ():
            _LOG.warning("%s Resuming from checkpoint %d.", message, good)
            checkpoint = self.directory / str(step)
            renamed = checkpoint.with_name(f"damaged-{checkpoint.name}")
            if renamed.exists():
                epath.Path(renamed).rmtree()
            checkpoint.rename(renamed)
        hosts.barrier("damaged checkpoints are renamed")
        self._manager.reload()
        self._remove_orphans()

    def _remove_orphans(self) -> None:
        """Remove the manifests of checkpoints that no longer exist."""
        for path in self.directory.glob(f"*{contents.SUFFIX}*") if hosts.is_first() else ():
            if not path.with_name(path.name.split(contents.SUFFIX)[0]).exists():
                path.unlink(missing_ok=True)

    def _seal(self, step: int) -> None:
        self._manager.wait_until_finished()
        if hosts.is_first():
            contents.seal(self.directory / str(step))
        self._remove_orphans()

    def _reopen(self) -> None:
        """Reopen the directory after a failed save; otherwise, orbax would raise the error again at every later call.

        A run of several processes, which would all have to reopen it together, ends instead.
        """
        if not hosts.alone():
            return
        for end in (self._manager.wait_until_finished, self._manager.close):
            with contextlib.suppress(Exception):  # the failure that the caller is about to raise
                end()
        # Pending writes may still reach the unfinished checkpoint, so the next run removes it.
        self._manager = self._open(cleanup=False)

    def _write_error(self, name: str, error: str) -> SaveError:
        """Return the error for a file or checkpoint `name`; error: the system's or orbax's message."""
        latest = self.latest()
        last = f"The last good checkpoint is {latest}." if latest else "There is no earlier checkpoint."
        reason, advice = error, "Remove the cause"
        for number, (words, remedy) in _LIMITS.items():
            if os.strerror(number) in error:  # the rest of orbax's message has thousands of characters
                reason, advice = f"{words} ({os.strerror(number)})", remedy
        return SaveError(f"{name} could not be written: {reason}. {last} {advice}, then run the same command again.")
