"""A trace of some training steps by jax.profiler."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax


class Profile:
    """Traces `count` steps of a run from step `first` on, and writes the trace when `stop` or the with block ends it.

    directory: where the trace goes; None traces nothing.
    """

    def __init__(self, directory: Path | None, first: int, count: int):
        self._directory = directory
        self._steps = range(0 if directory is None else first, 0 if directory is None else first + count)
        self._tracing = False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @contextlib.contextmanager
    def step(self, number: int, state: Any) -> Iterator[None]:
        """Mark the step that the with block dispatches, if it is to be traced; state: what the step before returned."""
        if number not in self._steps:
            yield
            return
        if not self._tracing:
            jax.block_until_ready(state)  # so that the trace holds no step before the first
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # every Python call would slow the host and fill the trace
            jax.profiler.start_trace(str(self._directory), profiler_options=options)
            self._tracing = True
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            yield

    def ends(self, number: int) -> bool:
        """Return whether step `number` is the last one of the trace."""
        return self._tracing and number == self._steps[-1]

    def stop(self) -> None:
        """Write the trace, if there is one."""
        if self._tracing:
            self._tracing = False
            jax.profiler.stop_trace()
