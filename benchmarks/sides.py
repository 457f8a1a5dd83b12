# pyright: reportMissingImports=false
"""Two programs that do the same, timed side by side: each in a process of its own, step by step in turns."""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from bertzoo.benchmarking import worker

Step = Callable[[Any], float]  # of a batch, its loss
Rates = Callable[[str], float] | None


class Lost(RuntimeError):
    """A side whose process has ended."""


class Setting(NamedTuple):
    """Where both sides compute: so many threads of this machine in float32, or a GPU of it in bfloat16."""

    threads: int
    gpu: bool = False

    @property
    def dtype(self) -> Literal["float32", "bfloat16"]:
        return "bfloat16" if self.gpu else "float32"

    @property
    def place(self) -> str:
        """PyTorch's word for it."""
        return "cuda" if self.gpu else "cpu"


class Side:
    """What `make(*arguments)` returns, a step, in a process of its own, so that its peak memory is its own.

    peak: () -> the most memory of that process so far, in MB.
    rounds: of every step wall seconds, CPU seconds, loss, and that peak.
    """

    def __init__(self, make: Callable[..., Step], *arguments: Any, peak: Callable[[], float] | None = None) -> None:
        self.what = " ".join([make.__name__, *(each for each in arguments if isinstance(each, str))])
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, make, arguments, peak or resident), daemon=True)
        self.process.start()
        theirs.close()
        self.rounds: list[tuple[float, float, float, float]] = []

    def step(self, batch: Any) -> None:
        try:
            self.pipe.send(batch)
            self.rounds.append(self.pipe.recv())
        except (EOFError, OSError):
            raise Lost(f"{self.what} has ended; what it said is above") from None

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()

    def median(self, column: int, skip: int) -> float:
        """Of a column of the rounds after the first `skip`."""
        return statistics.median(round[column] for round in self.rounds[skip:])


def resident() -> float:
    """Of this process, with its programs and libraries."""
    return worker.peak() / 2**20


def of_jax() -> float:
    """Of the GPU, under JAX."""
    import jax

    return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20


def of_torch() -> float:
    """Of the GPU, under PyTorch."""
    import torch

    return torch.cuda.max_memory_allocated() / 2**20


def _work(pipe: Connection, make: Callable[..., Step], arguments: tuple, peak: Callable[[], float]) -> None:
    step = make(*arguments)
    while (batch := pipe.recv()) is not None:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step(batch)
        used = time.perf_counter() - wall, time.process_time() - cpu
        pipe.send((*used, loss, peak()))


def take_turns(sides: Sequence[Side], batches: Sequence[Any]) -> None:
    """Every side does every batch, in an order that turns round each time; then all end, at once if one is lost."""
    try:
        for index, batch in enumerate(batches):
            for side in sides if index % 2 == 0 else sides[::-1]:
                side.step(batch)
    except Lost:
        for side in sides:
            side.process.terminate()
        raise
    for side in sides:
        side.close()


def ratios(ours: Side, theirs: Side, column: int, skip: int) -> list[float]:
    """Of every round theirs to ours in a column."""
    pairs = list(zip(ours.rounds, theirs.rounds, strict=True))[skip:]
    return [their_round[column] / our_round[column] for our_round, their_round in pairs]


def ratio(ours: Side, theirs: Side, column: int, skip: int) -> float:
    """The median of the rounds' ratios of a column, theirs to ours."""
    return statistics.median(ratios(ours, theirs, column, skip))


def keep_to(setting: Setting) -> None:
    """Before JAX starts: the processor or the GPU, whatever JAX would choose; of the one as many cores as threads, as
    XLA's pool has one for each, and of the other memory as it is needed, as another process uses it too.
    """
    os.environ["JAX_PLATFORMS"] = "cuda" if setting.gpu else "cpu"
    if setting.gpu:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    else:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: setting.threads])


def our_step(objective: Any, settings: Any, *, trained: Any = None, rates: Any = None, frozen: Any = None) -> Step:
    """The compiled training step of an objective, under an optimiser's settings; of a stage under a teacher also what
    is trained, its rates and the teacher's parameters. On one device, as the other side.
    """
    import jax

    from bertzoo.train import optim, sharding
    from bertzoo.train import state as states
    from bertzoo.train import step as steps

    optimizer = optim.build(settings, steps=1000, rates=rates)
    mesh = sharding.make_mesh(sharding.Mesh(), jax.devices()[:1])
    state = states.fresh(objective, optimizer, mesh, seed=0)
    step = steps.make_train_step(trained or objective, optimizer, shardings=states.shardings_of(state))

    def run(batch: Any) -> float:
        nonlocal state
        state, report = step(state, frozen, steps.put_batch(batch, mesh))
        return sum(float(total / weight) for total, weight in report["terms"].values())

    return run


def torch_step(network: Any, clip: float, setting: Setting, rates: Rates = None, *, lr: float, **adamw: float) -> Step:
    """A step of a module whose output has a "loss", with torch's fused AdamW, of a batch of its named arguments; on a
    GPU compiled, and in bfloat16 where torch's autocast says so. `rates`: by a parameter's name the factor of its rate.
    """
    import torch

    place = torch.device(setting.place)
    torch.set_num_threads(setting.threads)
    network.to(place).train()
    learnt, groups = [], {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            learnt.append(parameter)
            groups.setdefault(rates(name) if rates else 1.0, []).append(parameter)
    rated = [{"params": each, "lr": lr * rate} for rate, each in groups.items()]
    optimizer = torch.optim.AdamW(rated, fused=True, **adamw)
    called = torch.compile(network) if setting.gpu else network

    def run(batch: Any) -> float:
        optimizer.zero_grad()
        given = {name: torch.from_numpy(array).to(place).long() for name, array in batch.items()}
        with torch.autocast(place.type, torch.bfloat16, enabled=setting.gpu):
            loss = called(**given)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learnt, clip)
        optimizer.step()
        return loss.item()

    return run
