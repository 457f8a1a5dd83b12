# pyright: reportMissingImports=false
"""Two programs that do the same work, timed step by step in turns, each in a process of its own."""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from benchmarks.lib import tables
from bertzoo.benchmarking import worker
from bertzoo.core import machine

Format = Literal["float32", "bfloat16"]
Step = Callable[[Any], float]  # batch -> loss
RateOf = Callable[[str], float] | None
WALL, CPU, LOSS, PEAK = range(4)  # columns of StepProcess.rounds


class ProcessEnded(RuntimeError):
    """A timed process ended by itself."""


class Setting(NamedTuple):
    """On how many threads of the processor both sides compute, and the number format of products."""

    threads: int
    dtype: Format = "float32"


class StepProcess:
    """A process that runs the step that `make(*arguments)` returns, so that its peak memory is its own.

    rounds: for every step its wall seconds, CPU seconds, loss, and the process's peak MiB, its libraries included.
    """

    def __init__(self, make: Callable[..., Step], *arguments: Any) -> None:
        self.name = " ".join([make.__name__, *(argument for argument in arguments if isinstance(argument, str))])
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(far_end, make, arguments), daemon=True)
        self.process.start()
        far_end.close()
        self.rounds: list[tuple[float, float, float, float]] = []

    def step(self, batch: Any) -> None:
        """Run a step and wait for it."""
        try:
            self.pipe.send(batch)
            self.rounds.append(self.pipe.recv())
        except (EOFError, OSError):
            raise ProcessEnded(f"the process of {self.name} ended; its own messages are above") from None

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()

    def median(self, column: int, skip: int) -> float:
        """The median of a column over the rounds after the first `skip`."""
        return statistics.median(row[column] for row in self.rounds[skip:])


def _serve(pipe: Connection, make: Callable[..., Step], arguments: tuple) -> None:
    step = make(*arguments)
    while (batch := pipe.recv()) is not None:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step(batch)
        pipe.send((time.perf_counter() - wall, time.process_time() - cpu, loss, worker.peak() / 2**20))


def take_turns(sides: Sequence[StepProcess], batches: Sequence[Any]) -> None:
    """Run every batch on every side, in an order that reverses each round, then end the processes."""
    try:
        for index, batch in enumerate(batches):
            for side in sides if index % 2 == 0 else sides[::-1]:
                side.step(batch)
    except ProcessEnded:
        for side in sides:
            side.process.terminate()
        raise
    for side in sides:
        side.close()


def ratio(ours: StepProcess, theirs: StepProcess, skip: int, column: int = WALL) -> dict[str, float]:
    """Median, least and greatest over the rounds of their time divided by ours."""
    pairs = list(zip(ours.rounds, theirs.rounds, strict=True))[skip:]
    return tables.spread([their_round[column] / our_round[column] for our_round, their_round in pairs], 2)


def limit_jax(setting: Setting) -> None:
    """Before JAX starts: choose the processor and keep to as many cores as threads, as XLA's pool has one a core."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: setting.threads])
    machine.keep_freed_memory()  # as the command `bertzoo` does


def our_step(objective: Any, settings: Any, *, trained: Any = None, rates: Any = None, frozen: Any = None) -> Step:
    """An objective's compiled training step on one device, under an optimiser's settings.

    trained, rates, frozen: of a transfer's stage what it trains, its rates and the teacher's parameters.
    """
    import jax

    from bertzoo.train import optim, sharding
    from bertzoo.train import state as states
    from bertzoo.train import step as steps
    from bertzoo.train.step import StepProgram

    optimizer = optim.build(settings, steps=1000, rates=rates)
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    state = states.fresh(objective, optimizer, mesh, seed=0)
    train_step = steps.make_train_step(trained or objective, optimizer, shardings=states.shardings_of(state))
    step = StepProgram(train_step, shared=rates is None)  # as a run

    def run(batch: Any) -> float:
        nonlocal state
        state, report = step(state, frozen, steps.put_batch(batch, mesh))
        return sum(float(total / weight) for total, weight in report["terms"].values())

    return run


def torch_step(network: Any, clip: float, setting: Setting, rates: RateOf = None, *, lr: float, **adamw: float) -> Step:
    """A training step of a module that returns a "loss", with clipping and torch's fused AdamW.

    The batch holds the module's named arguments. In bfloat16 the module runs under autocast.
    rates: parameter name -> factor of its learning rate.
    """
    import torch

    torch.set_num_threads(setting.threads)
    network.train()
    trained, groups = [], {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            trained.append(parameter)
            groups.setdefault(rates(name) if rates else 1.0, []).append(parameter)
    rated = [{"params": parameters, "lr": lr * rate} for rate, parameters in groups.items()]
    optimizer = torch.optim.AdamW(rated, fused=True, **adamw)

    def run(batch: Any) -> float:
        optimizer.zero_grad()
        inputs = {name: torch.from_numpy(array).long() for name, array in batch.items()}
        with torch.autocast("cpu", torch.bfloat16, enabled=setting.dtype == "bfloat16"):
            loss = network(**inputs)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, clip)
        optimizer.step()
        return loss.item()

    return run
