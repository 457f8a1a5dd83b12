"""Convert and check arguments that several API functions share."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from bertzoo.core import logs

T = TypeVar("T")
P = ParamSpec("P")
Config = Any  # a name, a path, a sequence of these, or a config object


def speaking(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function print the log's messages on standard output, unless the program handles them itself."""

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> T:
        with logs.shown(None if logs.LOGGER.hasHandlers() else sys.stdout):
            return function(*args, **options)

    return call


def resolve(cls: type[T], config: Config, overrides: Mapping[str, Any] | None) -> T:
    """Return a config of class `cls` with the overrides applied; loads `config` unless it is a config object."""
    from bertzoo.core import config as loader

    pairs = loader.as_options(overrides or {})
    if isinstance(config, cls):
        return loader.changed(config, pairs)
    return loader.load(cls, config_files(config), pairs)


def config_files(config: Config) -> list[str | Path]:
    """Return `config` as a list; raises UserError unless it is a name, a file or a list of these."""
    from bertzoo.core.errors import UserError

    files = [config] if isinstance(config, str | Path) else config if isinstance(config, Sequence) else None
    if files is None or not all(isinstance(file, str | Path) for file in files):
        raise UserError(
            f"config has the type {type(config).__name__}. Give a name, a file, a list of these, or a config object."
        )
    return list(files)


def options_of(function: str, options: dict[str, Any]) -> Any:
    """Build a run's `runs.training.Options` from an API function's keyword `options`.

    Raises UserError, naming the API function `function`, if `options` holds an unknown name.
    """
    from bertzoo.core.errors import UserError
    from bertzoo.runs.training import Options
    from bertzoo.train import hosts

    names = ("batch_workers", "corpus", "workers")
    if unknown := sorted(options.keys() - set(names)):
        raise UserError(f"{function} has no option {unknown[0]}. Its options are {', '.join(names)}.")
    hosts.log_in_first()
    return Options(**options)


def reject(path: Path | str, what: str, **arguments: Any) -> None:
    """Raise UserError if any of `arguments` is set, because they do not apply to the model at `path`.

    what: describes the model in the message, such as "a fine-tuned model".
    """
    from bertzoo.core.errors import UserError

    for name, value in arguments.items():
        if value is not None:
            raise UserError(f"{name}={value!r} does not apply to {path}, which is {what}. Leave {name} out.")


@overload
def on_disk(name: None, argument: str) -> None: ...
@overload
def on_disk(name: Path | str, argument: str) -> Path: ...
@overload
def on_disk(name: Path | str | None, argument: str) -> Path | None: ...
def on_disk(name: Path | str | None, argument: str) -> Path | None:
    """Return `name` as a path on this machine, or None for None; raises UserError, naming `argument`, for a URL."""
    from bertzoo.core import paths

    advice = "Copy it to this machine and pass the path of the copy."
    return None if name is None else paths.on_disk(name, f"{argument} =", advice)


@overload
def location(name: None, argument: str) -> None: ...
@overload
def location(name: Path | str, argument: str) -> Path | str: ...
@overload
def location(name: Path | str | None, argument: str) -> Path | str | None: ...
def location(name: Path | str | None, argument: str) -> Path | str | None:
    """Return `name` as a path or URL, or None for None.

    Raises UserError, naming `argument`, for a URL passed as a Path, because Path turns gs://… into gs:/….
    """
    from bertzoo.core import paths

    return None if name is None else paths.location(name, f"{argument} =", "Pass a URL as text, not as a Path.")
