# pyright: reportMissingImports=false
"""Two programs that do the same, timed side by side: each in a process of its own, step by step in turns."""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

Step = Callable[[Any], float]  # of a batch, its loss


class Side:
    """What `make(*arguments)` returns, a step, in a process of its own, so that its peak memory is its own.

    rounds: of every step wall seconds, CPU seconds, loss, and the peak memory in MB.
    """

    def __init__(self, make: Callable[..., Step], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.rounds: list[tuple[float, float, float, float]] = []

    def step(self, batch: Any) -> None:
        self.pipe.send(batch)
        self.rounds.append(self.pipe.recv())

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()

    def median(self, column: int, skip: int) -> float:
        """Of a column of the rounds after the first `skip`."""
        return statistics.median(round[column] for round in self.rounds[skip:])


def _work(pipe: Connection, make: Callable[..., Step], arguments: tuple) -> None:
    step = make(*arguments)
    while (batch := pipe.recv()) is not None:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step(batch)
        used = time.perf_counter() - wall, time.process_time() - cpu
        pipe.send((*used, loss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def take_turns(sides: Sequence[Side], batches: Sequence[Any]) -> None:
    """Every side does every batch, in an order that turns round each time; then all end."""
    for index, batch in enumerate(batches):
        for side in sides if index % 2 == 0 else sides[::-1]:
            side.step(batch)
    for side in sides:
        side.close()


def ratio(ours: Side, theirs: Side, column: int, skip: int) -> float:
    """The median of the rounds' ratios of a column, theirs to ours."""
    pairs = list(zip(ours.rounds, theirs.rounds, strict=True))[skip:]
    return statistics.median(their_round[column] / our_round[column] for our_round, their_round in pairs)


def our_step(objective: Any, settings: Any, *, trained: Any = None, rates: Any = None, frozen: Any = None) -> Step:
    """The compiled training step of an objective, under an optimiser's settings; of a stage under a teacher also what
    is trained, its rates and the teacher's parameters.
    """
    from bertzoo.train import optim, sharding
    from bertzoo.train import state as states
    from bertzoo.train import step as steps

    optimizer, mesh = optim.build(settings, steps=1000, rates=rates), sharding.make_mesh(sharding.Mesh())
    state = states.fresh(objective, optimizer, mesh, seed=0)
    step = steps.make_train_step(trained or objective, optimizer, shardings=states.shardings_of(state))

    def run(batch: Any) -> float:
        nonlocal state
        state, report = step(state, frozen, steps.put_batch(batch, mesh))
        return sum(float(total / weight) for total, weight in report["terms"].values())

    return run


def torch_step(network: Any, clip: float, threads: int, **adamw: float) -> Step:
    """A step of a module whose output has a `loss`, with torch's fused AdamW, of a batch of its named arguments."""
    import torch

    torch.set_num_threads(threads)
    network.train()
    learnt = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, fused=True, **adamw)

    def run(batch: Any) -> float:
        optimizer.zero_grad()
        loss = network(**{name: torch.from_numpy(array).long() for name, array in batch.items()}).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learnt, clip)
        optimizer.step()
        return loss.item()

    return run
