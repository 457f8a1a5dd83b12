"""Experiment trackers as reporters: Weights & Biases, MLflow and trackio. A resumed run continues its tracker's run."""

import contextlib
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.config import leaves, plain
from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError, needs_extra
from bertzoo.runs.bucket import TRACKERS
from bertzoo.runs.configs import Recipe
from bertzoo.runs.run_dir import RunDirectory
from bertzoo.train.progress import Record, scalars

_LOG = logging.getLogger(__name__)
PROJECT = "bertzoo"  # unless the tracker's own environment variable names another
Log = Callable[[dict[str, float], int], Any]  # (metrics, step); the result of a tracker is unused
End = Callable[[], Any]
_PARAMS = 100  # most parameters in a request to MLflow


def check_installed(trackers: Sequence[str]) -> None:
    """Raise UserError if the package of one of the trackers is missing."""
    for name in trackers:
        with needs_extra("run.trackers", name):
            if find_spec(name) is None:  # an import would take seconds
                raise ImportError(f"No module named {name!r}")


def _wandb(run: RunDirectory, name: str, identity: str | None, recipe: Mapping[str, Any]) -> tuple[str, Log, End]:
    import wandb  # pyright: ignore[reportMissingImports]

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    tracked = wandb.init(project=project, name=name, id=identity, resume="allow", dir=run.path, config=dict(recipe))
    tracked.define_metric("*", step_metric="step")  # wandb's own step cannot go back to a checkpoint's
    return tracked.id, lambda metrics, step: tracked.log({**metrics, "step": step}), tracked.finish


def _mlflow(run: RunDirectory, name: str, identity: str | None, recipe: Mapping[str, Any]) -> tuple[str, Log, End]:
    from mlflow import MlflowClient, entities  # pyright: ignore[reportMissingImports]

    client, identifier = MlflowClient(), identity or ""
    if not identifier:
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        existing = client.get_experiment_by_name(project)
        experiment = client.create_experiment(project) if existing is None else existing.experiment_id
        identifier = client.create_run(experiment, run_name=name).info.run_id
        params = [entities.Param(key, str(value)) for key, value in leaves(recipe, "")]
        for start in range(0, len(params), _PARAMS):
            client.log_batch(identifier, params=params[start : start + _PARAMS])
    client.update_run(identifier, status="RUNNING")

    def log(metrics: dict[str, float], step: int) -> None:
        now = int(1000 * time.time())
        points = [entities.Metric(key, value, now, step) for key, value in metrics.items()]
        client.log_batch(identifier, points, synchronous=False)

    return identifier, log, lambda: client.set_terminated(identifier)


def _trackio(run: RunDirectory, name: str, identity: str | None, recipe: Mapping[str, Any]) -> tuple[str, Log, End]:
    import trackio  # pyright: ignore[reportMissingImports]

    identity = identity or f"{name}-{uuid.uuid4().hex[:8]}"  # trackio finds a run by its name
    project = os.environ.get("TRACKIO_PROJECT", PROJECT)
    tracked = trackio.init(project, identity, resume="allow", config=dict(recipe), embed=False)
    return identity, lambda metrics, step: tracked.log(metrics, step=step), tracked.finish


_STARTS = {"wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


class Tracker:
    """A reporter that sends metrics to an experiment tracker; trackers.json in the run keeps the tracker's run id."""

    def __init__(self, kind: str, run: RunDirectory, recipe: Recipe):
        self._kind, file = kind, run.path / TRACKERS
        ids = read_json(file, {f"{name}?": str for name in _STARTS}) if file.is_file() else {}
        name = run.name.rstrip("/").rsplit("/", 1)[-1]
        try:
            with contextlib.redirect_stdout(sys.stderr):
                identity, self._log, self._finish = _STARTS[kind](run, name, ids.get(kind), plain(recipe))
        except Exception as error:  # each tracker has its own errors
            raise UserError(
                f"run.trackers: {kind} cannot start a run ({error}). Log in, choose its offline mode "
                "(docs/howto/pretrain.md), or leave it out."
            ) from error
        atomic.write_json(file, {**ids, kind: identity})

    def __call__(self, record: Record) -> None:
        if metrics := scalars(record):
            self._guard(lambda: self._log(metrics, record["step"]))

    def close(self) -> None:
        """End the tracker's run; a second call does nothing."""
        finish, self._finish = self._finish, lambda: None
        self._guard(finish)

    def _guard(self, action: Callable[[], Any]) -> None:
        """Call `action`; log a failure instead of raising it, as a lost network must not end the run."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                action()
        except Exception as error:
            _LOG.warning(f"{self._kind} has not taken the newest metrics: {error}")
