"""Time worker processes in turns: one runs at a time, in an order that changes from round to round."""

import json
import logging
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json
from bertzoo.core.errors import UserError

_LOG = logging.getLogger(__name__)

Rounds = list[list[float]]  # seconds of every run, by round


class BenchmarkFailed(UserError):
    """Raised if a model does not run; the message names the model and the reason (exit code 1)."""

    exit_code = 1


class Worker:
    """A child process that holds a loaded model; state: its first answer (see `worker`). Call `close` at the end."""

    def __init__(self, name: str, request: LoadRequest, python: str = sys.executable) -> None:
        self.name = name
        self._process = start_python(
            ["-m", "bertzoo.benchmarking.worker"],
            python,
            {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # runtimes print which instructions they use
            text=True,
        )
        try:
            self.state = self._send(request._asdict())
        except BaseException:
            self.close()
            raise

    def run(self, lengths: Sequence[int]) -> list[float]:
        """Run a sequence of each length; return the seconds of each."""
        return self._send({"lengths": list(lengths)})["seconds"]

    def outputs(self, length: int) -> dict[str, list[float]]:
        """Run a sequence of this length; return its outputs by name, each flattened."""
        return self._send({"outputs": length})["outputs"]

    def peak(self) -> int:
        """Return the peak memory so far in bytes, minus the peak of the runtime without a model."""
        return self._send({"peak": True})["peak"]

    def _send(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            answer = parse_json(self._process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "error" in answer:
            raise BenchmarkFailed(f"{self.name} does not run: {answer['error']}")
        if not answer:
            raise BenchmarkFailed(
                f"{self.name} does not run: its process ended with code {self._process.wait()}, perhaps for lack of "
                "memory. Free memory and run the command again."
            )
        return answer

    def close(self) -> None:
        with self._process:  # closes its pipes and waits for its end
            self._process.kill()


@contextmanager
def start_workers(
    requests: Sequence[tuple[str, LoadRequest]], executorch: str = sys.executable
) -> Iterator[list[Worker]]:
    """Yield a started worker for each (name, request); close them on exit. executorch: a Python that has ExecuTorch."""
    with ExitStack() as stack:
        workers = []
        for name, request in requests:
            workers.append(Worker(name, request, executorch if request.backend == "executorch" else sys.executable))
            stack.callback(workers[-1].close)
        yield workers


def order(count: int, index: int) -> list[int]:
    """Return worker numbers in their order in round `index`: an order and its reverse, then both rotated by one."""
    rotated = [(index // 2 + number) % count for number in range(count)]
    return rotated if index % 2 == 0 else rotated[::-1]


def take_turns(
    workers: Sequence[Worker], lengths: Sequence[int], runs: int, rounds: int, level: int = logging.INFO
) -> list[Rounds]:
    """Time `runs` runs of every worker, spread evenly over the rounds; return the seconds by worker and round.

    lengths: for each worker, the tokens of its sequence. level: of the log's line after each round.

    In every round, each worker first runs once without being timed.
    """
    seconds: list[Rounds] = [[] for _ in workers]
    for index in range(rounds):
        counted = runs * (index + 1) // rounds - runs * index // rounds
        for number in order(len(workers), index):
            seconds[number].append(workers[number].run([lengths[number]] * (1 + counted))[1:])
        _LOG.log(level, f"round {index + 1} of {rounds}")
    return seconds


def ratio(ours: Rounds, theirs: Rounds) -> float:
    """Return the median over the rounds of median(ours) / median(theirs), each in seconds of a round's runs."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def memory_of_file(options: Any, model: Any, file: Path, length: int, inputs: tuple[str, ...]) -> int:
    """Return the peak bytes of a process that runs a file of `options` once, minus those of the runtime alone."""
    request = LoadRequest(options.to, str(file), 1, model.vocab_size, inputs)
    with start_workers([(str(file), request)], str(options.python or sys.executable)) as (worker,):
        worker.run([length])
        return worker.peak()
