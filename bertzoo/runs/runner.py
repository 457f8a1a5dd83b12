"""Runners, which compute a model's outputs: rows in, named arrays out. Importing this module imports no jax."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Inputs = Mapping[str, np.ndarray]
Outputs = dict[str, Any]


class Runner(ABC):
    """A model in a runtime: maps inputs to outputs, arrays by name whose first axis is that of the rows.

    batch_size: number of rows of a call. lengths: row lengths, in tokens, that it runs; empty if it runs any.
    """

    batch_size: int = 1
    lengths: tuple[int, ...] = ()

    @abstractmethod
    def __call__(self, inputs: Inputs) -> Outputs:
        """Run rows, and return their outputs."""

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        return None  # most runtimes hold no resources

    def run_all(self, data: Any) -> tuple[list[Any], list[Outputs]]:
        """Run each row of `data`, a `tasks.rows.Rows`, at the shortest length that holds it; return each call's Slot
        (row indices, length) and outputs.
        """
        slots = data.plan(self.batch_size, self.lengths)
        return slots, [self(data.batch(slot, self.batch_size)) for slot in slots]


class FlaxRunner(Runner):
    """Runs `function`, (params, batch) -> outputs, on the devices of a mesh; compiles one program for each length."""

    def __init__(
        self, function: Callable[[Any, Any], Any], params: Any, mesh: Any, batch_size: int, lengths: Sequence[int]
    ):
        import jax

        self._function, self._params, self._mesh = jax.jit(function), params, mesh
        self.batch_size, self.lengths = batch_size, tuple(lengths)

    def with_params(self, params: Any) -> "FlaxRunner":
        """Return a runner of the same programs with other parameters."""
        other = copy.copy(self)
        other._params = params
        return other

    def __call__(self, inputs: Inputs) -> Outputs:
        import jax

        from bertzoo.train.step import put_batch

        return jax.device_get(self._function(self._params, put_batch(inputs, self._mesh)))


class RowRunner(Runner):
    """Runs an opened file, one row at a time.

    names: names of the file's inputs; other arrays are dropped. lengths: the file's row lengths. finish: applied to the
    file's outputs.
    """

    def __init__(
        self, run: Callable[[Inputs], Outputs], names: Sequence[str], lengths: Sequence[int], finish: Callable = dict
    ):
        self._run, self._names, self._finish, self.lengths = run, names, finish, tuple(lengths)

    def __call__(self, inputs: Inputs) -> Outputs:
        return self._finish(self._run({name: inputs[name] for name in self._names}))

    def then(self, function: Callable[[Outputs], Outputs]) -> "RowRunner":
        """Return a runner that also applies `function` to the outputs."""
        return RowRunner(self._run, self._names, self.lengths, lambda outputs: function(self._finish(outputs)))
