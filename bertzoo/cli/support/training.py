"""Flags and start-up of the commands that train, with one process or several."""

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from bertzoo.api.options import recipe_of
from bertzoo.cli.support.options import say, tokenising
from bertzoo.core.documents import parse_toml
from bertzoo.core.errors import ConfigError
from bertzoo.core.options import option
from bertzoo.core.paths import Location
from bertzoo.train import signals

if TYPE_CHECKING:
    from bertzoo.runs.training import Options

_process = functools.partial(option, group="several processes")


@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """Where the processes of a run find each other."""

    coordinator: str | None = _process(
        "the address of process 0 (default: detected)", None, metavar="HOST:PORT", flag="--distributed.coordinator"
    )
    processes: int | None = _process(
        "the number of processes of the run (default: detected)", None, metavar="N", flag="--distributed.processes"
    )
    process: int | None = _process(
        "the number of this process, from 0 (default: detected)", None, metavar="I", flag="--distributed.process"
    )
    start_timeout: int = _process(
        "seconds to wait for all processes", 300, metavar="S", flag="--distributed.start_timeout"
    )
    heartbeat_timeout: int = _process(
        "seconds without a heartbeat after which a process counts as lost and the others end",
        30,
        metavar="S",
        flag="--distributed.heartbeat_timeout",
    )


def main(options: Any, train: Callable[[Any, "Options"], str], late: bool = False) -> int:
    """Train to the end, as the only process or one of several.

    train: function from the config and the `runs.training.Options` to the closing line.
    late: whether to load the config only after the processes have connected, because the config may need a model.
    """
    from bertzoo.core import config as loader
    from bertzoo.train import hosts

    recipe = None if late else recipe_of(options)
    cluster = hosts.Cluster(**{field.name: getattr(options, field.name) for field in fields(ProcessFlags)})
    if cluster.detection() and not signals.is_child():
        which = "this process" if cluster.process is None else f"process {cluster.process} of {cluster.processes}"
        return signals.supervise(sys.argv[1:], which)
    hosts.connect(cluster)
    with hosts.host_lost_errors():
        from bertzoo.runs.training import Options

        recipe = recipe or hosts.in_turn("the model", functools.partial(recipe_of, options))
        first = hosts.share("the config", lambda: loader.dump(recipe))
        if changed := loader.difference(parse_toml(first), parse_toml(loader.dump(recipe))):
            raise ConfigError(
                f"this process and process 0 have different configs: {'; '.join(changed)}. Give all the same config."
            )
        execution = Options(corpus=options.corpus, workers=options.workers, progress=tokenising)
        line = train(recipe, execution)
    if hosts.is_first():
        say(line)
    return 0


def finished(step: int, run: Location) -> str:
    """Return the closing line of a finished run."""
    return f"finished after {step} steps; next: bertzoo report {run}, bertzoo evaluate {run}"
