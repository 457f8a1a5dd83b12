"""Several workers, run in turns: one at a time, in an order that changes from round to round."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from bertzoo.benchmarking.worker import Load
from bertzoo.core.errors import UserError

_RUNTIMES = {"torch-export": "torch", "torchscript": "torch"}  # of other formats the name is the format's
Rounds = list[list[float]]  # of every round the seconds of its runs


class BenchmarkFailed(UserError):
    """A model does not run, or what was measured of it cannot be read; the message says which (exit code 1)."""

    exit_code = 1


class Worker:
    """A process of `python` with a model loaded; `said` is its answer to that: empty, lengths, threads, version. To be
    closed.
    """

    def __init__(self, what: str, load: Load, python: str = sys.executable) -> None:
        checkout = str(Path(__file__).parents[2])
        own = os.environ.get("PYTHONPATH") if python == sys.executable else None
        paths = os.pathsep.join(filter(None, [checkout, own]))
        self.what = what
        self._process = subprocess.Popen(
            [python, "-m", "bertzoo.benchmarking.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where runtimes tell which instructions they use
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
        try:
            self.said = self._ask(load._asdict())
        except BaseException:
            self.close()
            raise

    def run(self, lengths: Sequence[int]) -> list[float]:
        """The seconds of a run of each length."""
        return self._ask({"lengths": list(lengths)})["seconds"]

    def outputs(self, length: int) -> dict[str, list[float]]:
        """What a run of a length gives, the values of each output in one list."""
        return self._ask({"outputs": length})["outputs"]

    def peak(self) -> int:
        """The most bytes in memory so far beyond the runtime without a model."""
        return self._ask({"peak": True})["peak"]

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "error" in answer:
            raise BenchmarkFailed(f"{self.what} does not run: {answer['error']}")
        if not answer:
            raise BenchmarkFailed(f"{self.what} does not run: its process ended with code {self._process.wait()}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def started(loads: Sequence[tuple[str, Load]], executorch: str = sys.executable) -> Iterator[list[Worker]]:
    """A worker for each load under its name in messages; all end with the context. executorch: a Python that has it."""
    with ExitStack() as stack:
        made = []
        for what, load in loads:
            made.append(Worker(what, load, executorch if load.backend == "executorch" else sys.executable))
            stack.callback(made[-1].close)
        yield made


def order(count: int, index: int) -> list[int]:
    """Who comes when in a round: every second is the one before it the other way round, then another begins."""
    turned = [(index // 2 + place) % count for place in range(count)]
    return turned if index % 2 == 0 else turned[::-1]


def take_turns(
    workers: Sequence[Worker], lengths: Sequence[int], runs: int, rounds: int, tell: Callable[[int], None]
) -> list[Rounds]:
    """Of every worker, which runs its one length, the seconds of `runs` runs, spread over the rounds as evenly as can
    be; before those of a round, one that is not counted. `tell` hears of every round that is done.
    """
    found: list[Rounds] = [[] for _ in workers]
    for index in range(rounds):
        counted = runs * (index + 1) // rounds - runs * index // rounds
        for place in order(len(workers), index):
            seconds = workers[place].run([lengths[place]] * (1 + counted))
            found[place].append(seconds[1:])
        tell(index + 1)
    return found


def ratio(ours: Rounds, theirs: Rounds) -> float:
    """The median over the rounds of the ratio of our median to theirs."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(statistics.median(one) / statistics.median(other) for one, other in pairs)


def memory_of_file(options: Any, model: Any, file: Path, length: int, inputs: tuple[str, ...]) -> int:
    """The most bytes that a process takes which runs a file once, beyond one that has only the runtime.

    options: the `export.convert.Options` that the file was made with.
    """
    name: str = options.to
    load = Load(_RUNTIMES.get(name, name), str(file), 1, model.vocab_size, inputs)
    python = str(options.python or sys.executable) if options.to == "executorch" else sys.executable
    with closing(Worker(str(file), load, python)) as worker:
        worker.run([length])
        return worker.peak()
