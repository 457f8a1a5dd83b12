"""A pool of worker processes that share no state with this process and end with it."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import Any

from bertzoo.core import child
from bertzoo.core.errors import CorpusError

Submit = Callable[..., Future[Any]]


class _Process(SpawnProcess):
    """A process that does not run the program's main module again, which needs no `if __name__ == "__main__":`."""

    def start(self) -> None:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


@contextlib.contextmanager
def worker_pool(workers: int) -> Iterator[Submit]:
    """Yield `submit`: `submit(function, *args)` runs the function in a worker process and returns a Future.

    A single worker runs in this process. Raises CorpusError if a worker is killed.
    """
    if workers == 1:
        yield _run_here
        return
    # Spawned, because threads and devices do not survive a fork. They import nothing from the current directory.
    with child.set_environment(PYTHONPATH=child.absolute_paths(), PYTHONSAFEPATH="1"):
        executor = ProcessPoolExecutor(workers, _Context(), initializer=_start)
        try:
            yield executor.submit
        except BrokenProcessPool as error:
            raise CorpusError(
                f"one of {workers} worker processes ended, perhaps out of memory. Run the same command again with "
                "fewer workers to resume."
            ) from error
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def _run_here(function: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _start() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes already run in parallel
    # Preemption signals every process, but the parent must save first: only a SIGTERM from the parent ends a worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_on_parent_signal, daemon=True).start()
    parent = multiprocessing.parent_process()
    if parent is not None:  # else workers would wait forever for the queue, whose ends they hold
        child.end_with(parent.sentinel)


def _end_on_parent_signal() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(1)
