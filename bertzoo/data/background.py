"""Batches made by processes beside this one, which share neither its interpreter lock nor its devices."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from bertzoo.data.corpus.workers import pool
from bertzoo.data.pipeline import Batch, Batches, Rows


def ahead(
    batches: Batches, batch_size: int, start: int, stop: int, rows: Rows | None = None, *, workers: int
) -> Iterator[Batch]:
    """`batches.batch(step, batch_size, rows)` for every step in [start, stop), in order, by `workers` processes.

    Twice as many batches as processes are under way or waiting. Raises what a process raises, and CorpusError when one
    is killed.
    """
    with pool(workers, apart=True) as submit:
        pending: deque[Future[Batch]] = deque()
        for step in range(start, stop):
            pending.append(submit(_make, batches, step, batch_size, rows))
            if len(pending) == 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _make(batches: Batches, step: int, batch_size: int, rows: Rows | None) -> Batch:
    return batches.batch(step, batch_size, rows)
