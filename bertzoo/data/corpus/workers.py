"""A pool of processes that share no state with this one and end when it ends."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

from bertzoo.core.errors import CorpusError

Submit = Callable[..., Future[Any]]


@contextlib.contextmanager
def pool(workers: int, *, apart: bool = False) -> Iterator[Submit]:
    """Gives `submit(function, *args)`; one worker is this very process, unless they are to be apart from it.

    Raises CorpusError when one is killed.
    """
    if workers == 1 and not apart:
        yield _here
        return
    # The caller may hold threads and devices, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start)
    try:
        yield executor.submit
    except BrokenProcessPool as error:
        raise CorpusError(
            f"one of {workers} worker processes ended, perhaps for want of memory: run the same command again, which "
            "resumes, with fewer workers. A Python script needs `if __name__ == '__main__':` around its calls, or "
            "workers=1"
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _here(function: Callable[..., Any], *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def _start() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    # The parent decides, who saves something first. Where a machine is taken away all processes are told; only what
    # comes from the parent itself ends a worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_when_told, daemon=True).start()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed parent closes no queue that its children hold both ends of: without this they would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _end_when_told() -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != os.getppid():
        pass
    os._exit(1)
