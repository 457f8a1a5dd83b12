"""The platform that a program is traced for, on which the best form of some computations depends."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

import jax

from bertzoo.nn.random import Dropout

# Maps (query, key, value, mask, dropout, train) of `attend` to its result, or to None for unsupported arrays. The
# last argument, if not None, is the largest distance between a query and the keys that it sees.
AttentionKernel = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, Dropout, bool, int | None], jax.Array | None]


class Platform(NamedTuple):
    """JAX's name for a kind of device, and the kernel that computes attention there, if any."""

    name: str
    attention_kernel: AttentionKernel | None = None


_CURRENT: ContextVar[Platform | None] = ContextVar("platform", default=None)


def current_platform() -> Platform:
    """Return the platform of the program that is being traced: that of `traced_for`, or JAX's default backend."""
    return _CURRENT.get() or Platform(jax.default_backend())


@contextlib.contextmanager
def traced_for(platform: Platform | None) -> Iterator[None]:
    """Trace modules for a platform; None means JAX's default backend."""
    token = _CURRENT.set(platform)
    try:
        yield
    finally:
        _CURRENT.reset(token)
