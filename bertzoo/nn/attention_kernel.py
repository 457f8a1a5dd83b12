"""The attention kernel of the program that is being traced, which depends on the program's devices."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import jax

from bertzoo.nn.dropout import Dropout

# Maps (query, key, value, mask, dropout, train) of `attend` to its result, or to None for sizes that do not fit.
AttentionKernel = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, Dropout, bool], jax.Array | None]
_CURRENT: ContextVar[AttentionKernel | None] = ContextVar("attention_kernel", default=None)


def current_kernel() -> AttentionKernel | None:
    """Return the kernel that computes attention in the program that is being traced, or None for plain operations."""
    return _CURRENT.get()


@contextlib.contextmanager
def traced_with(kernel: AttentionKernel | None) -> Iterator[None]:
    """Trace modules whose attention `kernel` computes."""
    token = _CURRENT.set(kernel)
    try:
        yield
    finally:
        _CURRENT.reset(token)
