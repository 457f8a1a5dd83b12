"""Checkpoints: written in the background, whole or not at all, verified before they are trusted."""

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint.checkpoint_managers import preservation_policy as preservation

from bertzoo.core.errors import CheckpointError, SaveError
from bertzoo.core.paths import is_url, place
from bertzoo.train import contents, hosts, manifest
from bertzoo.train.restore import Damaged, items_of, restore_state, steps_in
from bertzoo.train.state import State

_LOG = logging.getLogger(__name__)
_DAMAGED = "damaged-"

# Every failure reaches the caller as an exception; orbax logs its traceback and warnings of its options besides.
logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)


def _loss(metrics: Mapping[str, float]) -> float:
    return metrics[contents.LOSS]


class Checkpoints:
    """The checkpoints of a run that writes them: `<directory>/<step>/` and `<directory>/<step>.sha256.json`.

    The last `keep_last` are kept and the `keep_best` of the lowest held-out loss. One run at a time may hold them; all
    its processes do everything together, on a file system that all of them see, or in a bucket of Google's.

    ready: called by the first process before every save, which what it raises prevents.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        keep_last: int = 3,
        keep_best: int = 1,
        ready: Callable[[], None] | None = None,
    ):
        self.directory = place(directory)
        self._ready = ready
        self._keep_last, self._keep_best = keep_last, keep_best
        self._sealer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._manager = self._open(cleanup=True)
        self._prune()

    def _open(self, *, cleanup: bool) -> ocp.CheckpointManager:
        policies: list[preservation.PreservationPolicy] = [preservation.LatestN(self._keep_last)]
        if self._keep_best:
            policies.append(
                preservation.BestN(
                    get_metric_fn=_loss, reverse=True, n=self._keep_best, keep_checkpoints_without_metrics=False
                )
            )
        options = ocp.CheckpointManagerOptions(
            best_fn=_loss,
            best_mode="min",
            create=True,
            cleanup_tmp_directories=cleanup,
            preservation_policy=preservation.AnyPreservationPolicy(policies),
        )
        return ocp.CheckpointManager(self.directory, options=options, item_names=("params", "training", "metrics"))

    def steps(self) -> list[int]:
        """The steps of the committed checkpoints, oldest first."""
        return steps_in(self.directory)

    def latest(self) -> Path | None:
        """The newest committed checkpoint."""
        steps = self.steps()
        return self.directory / str(steps[-1]) if steps else None

    def save(self, state: State, *, loss: float | None = None) -> None:
        """Begin to save and return once the state is copied, so that it may be donated; `loss` is the held-out loss.

        Raises CheckpointError when this or the previous save failed.
        """
        self.wait()
        if self._ready:
            hosts.share("the place of the checkpoints", self._ready)
        step = int(state.step)
        params, training = items_of(state)
        args = ocp.args.Composite(params=ocp.args.StandardSave(params), training=ocp.args.StandardSave(training))
        try:
            self._manager.save(step, args=args, metrics=None if loss is None else {contents.LOSS: loss}, force=True)
        except Exception as error:
            self._heard(step, str(error))
            self._reopen()
            raise self._cannot_save(step, str(error)) from error
        self._sealer = threading.Thread(target=self._seal, args=(step,), name=f"seal-{step}")
        self._sealer.start()

    def wait(self) -> None:
        """Wait until the save under way is committed and has its manifest; raises CheckpointError when it failed."""
        if self._sealer is None:
            return
        self._sealer.join()
        step, self._sealer = int(self._sealer.name.removeprefix("seal-")), None
        failure, self._failure = self._failure, None
        if said := self._heard(step, "" if failure is None else str(failure) or type(failure).__name__):
            self._reopen()
            raise self._cannot_save(step, said) from failure

    def _heard(self, step: int, mine: str) -> str:
        """What went wrong with a save in any process; all have done their part of it when this returns."""
        return next(filter(None, hosts.gather(f"saving {self.directory / str(step)}", mine)), "")

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Wait for the save under way and let go of the directory; raises CheckpointError when the save failed."""
        try:
            self.wait()
        finally:
            self._manager.close()

    def restore_latest(self, abstract: State | Callable[[int], State]) -> State | None:
        """The newest checkpoint that is whole, placed as `abstract` (`state.abstract`, or a function of the step, where
        states of other steps have other moments) says; None when there are none.

        Damaged ones are skipped: each is reported in one sentence naming the file and set aside as damaged-<step>.
        Raises CheckpointError when none is whole, or when a whole one does not fit `abstract`.
        """
        damage: dict[int, str] = {}
        for step in reversed(hosts.share("which checkpoints there are", self.steps)):
            try:
                shapes = abstract(step) if callable(abstract) else abstract
                state = restore_state(self.directory / str(step), shapes)
            except Damaged as error:
                damage[step] = str(error)
                continue
            self._set_aside(damage, step)
            return state
        if damage:
            raise CheckpointError(f"no checkpoint in {self.directory} is whole: " + "; ".join(damage.values()))
        return None

    def _set_aside(self, damage: dict[int, str], good: int) -> None:
        if not damage:
            return
        for step, message in damage.items() if hosts.is_first() else ():
            _LOG.warning("%s; going back to checkpoint %d", message, good)
            checkpoint = self.directory / str(step)
            aside = checkpoint.with_name(_DAMAGED + checkpoint.name)
            if aside.exists():
                _remove(aside)
            checkpoint.rename(aside)
        hosts.barrier("damaged checkpoints are set aside")
        self._manager.reload()
        self._prune()

    def _prune(self) -> None:
        if hosts.is_first():
            manifest.remove_orphans(self.directory)

    def _seal(self, step: int) -> None:
        try:
            self._manager.wait_until_finished()
            if hosts.is_first():
                manifest.seal(self.directory / str(step))
            self._prune()
        except BaseException as error:  # raised in the caller's thread by wait()
            self._failure = error

    def _reopen(self) -> None:
        """Begin anew after a failed save, of which orbax would go on to tell at every later call.

        Not with several processes, which would have to meet for it: they end with the failure.
        """
        if not hosts.alone():
            return
        for end in (self._manager.wait_until_finished, self._manager.close):
            with contextlib.suppress(Exception):  # the failure that the caller is about to raise
                end()
        # Writes under way may still reach the unfinished checkpoint, so that is left for the next run to remove.
        self._manager = self._open(cleanup=False)

    def _cannot_save(self, step: int, error: str) -> SaveError:
        latest = self.latest()
        resume = f"the last good checkpoint is {latest}" if latest else "there is no earlier checkpoint"
        return SaveError(f"checkpoint {step} could not be written to {self.directory} ({error}); {resume}")


def _remove(directory: Path) -> None:
    if is_url(str(directory)):
        epath.Path(directory).rmtree()
    else:
        shutil.rmtree(directory, ignore_errors=True)
