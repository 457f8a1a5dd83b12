"""What share of a LiteRT file's operations and time each part has, as SqueezeBERT's Table 1, and how that is known.

The time of parts is read from the profile of LiteRT's own `benchmark_model` where that is installed; without it, it is
what a run takes less when the graph lacks the part.
"""

import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertzoo.benchmarking import ablation
from bertzoo.benchmarking.backends import litert_file
from bertzoo.benchmarking.interleave import Rounds, started, take_turns
from bertzoo.benchmarking.worker import Load
from bertzoo.export.litert import litert, tables
from bertzoo.export.litert.quantise import Calibration, Precision

BINARY = "benchmark_model"
ABLATION = "ablation: a run's time less that of the same graph without the part"
_REGULAR = "Profiling Info for Regular Benchmark Runs"


@dataclass(frozen=True, kw_only=True)
class Shares:
    """By part, shares of 1 of the operations and of the time; `source` says how the latter is known, `note` why not
    from the profile where that was there; quartiles: of an ablation's shares over the rounds. What no part has is
    missing to 1, and so is noise.
    """

    source: str
    note: str
    flops: dict[str, float]
    latency: dict[str, float]
    quartiles: dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A graph as it was written, and how it runs; calibration: of a precision that has scales."""

    graph: Any
    file: Path
    precision: Precision
    length: int
    threads: int
    vocabulary: int
    calibration: Calibration | None = None


def shares(wanted: Wanted, runs: int, rounds: int, tell: Callable[[int], None]) -> Shares:
    """The shares of every part that the graph has; `tell` hears of the rounds of an ablation."""
    counted = ablation.flops(wanted.graph, wanted.length)
    flops = {part: count / sum(counted.values()) for part, count in counted.items()}
    note = ""
    if (binary := shutil.which(BINARY)) is not None:
        try:
            taken = by_operator(profile(binary, wanted, runs), dense_parts(wanted))
            latency = {part: taken.get(part, 0.0) / sum(taken.values()) for part in counted}
            source = f"{BINARY} --enable_op_profiling"
            return Shares(source=source, note="", flops=flops, latency=latency, quartiles={})
        except Unreadable as error:
            note = f"{BINARY}: {error}"
    saved = by_ablation(wanted, runs, rounds, tell)
    middle = {part: statistics.median(each) for part, each in saved.items()}
    quartiles = {part: (each[len(each) // 4], each[-1 - len(each) // 4]) for part, each in saved.items()}
    return Shares(source=ABLATION, note=note, flops=flops, latency=middle, quartiles=quartiles)


def by_ablation(wanted: Wanted, runs: int, rounds: int, tell: Callable[[int], None]) -> dict[str, list[float]]:
    """Of every part, the shares of a run's time that are saved without it, one a round, in ascending order."""
    names = ablation.present(wanted.graph)
    files = [wanted.file]
    for part in names:
        place = wanted.file.with_name(f"{wanted.file.stem}_without_{part}.tflite")
        bare = ablation.without(wanted.graph, part)
        litert_file(bare, place, [wanted.length], wanted.precision, wanted.calibration)
        files.append(place)
    loads = [(file.name, Load("litert", str(file), wanted.threads, wanted.vocabulary)) for file in files]
    with started(loads) as workers:
        whole, *lacking = take_turns(workers, [wanted.length] * len(files), runs, rounds, tell)

    def saved(less: Rounds) -> list[float]:
        return sorted(1 - statistics.median(b) / statistics.median(a) for a, b in zip(whole, less, strict=True))

    return {part: saved(less) for part, less in zip(names, lacking, strict=True)}


class Unreadable(Exception):
    """The profile is not there, or not of this graph; the message says why."""


def profile(binary: str, wanted: Wanted, runs: int) -> str:
    """What `benchmark_model` prints; raises Unreadable where it fails."""
    command = [
        binary,
        f"--graph={wanted.file}",
        f"--signature_to_run_for=length_{wanted.length}",
        f"--num_threads={wanted.threads}",
        f"--num_runs={runs}",
        "--use_xnnpack=true",
        "--enable_op_profiling=true",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unreadable(f"it ends with code {done.returncode}: {said[-1] if said else 'it says nothing'}")
    return done.stdout + done.stderr


def dense_parts(wanted: Wanted) -> list[str]:
    """The part of every dense operator of the file in the order in which they run, by their weights.

    Raises Unreadable where weights are of no part.
    """
    content = wanted.file.read_bytes()
    if wanted.precision != "fp32":  # whose operators have this order, but other weights
        content = litert.convert(wanted.graph, [wanted.length])
    found = ablation.of_weights(wanted.graph, tables.dense_weights(content))
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        raise Unreadable("the file's dense operators are not all the graph's")
    return known


def by_operator(text: str, dense: Sequence[str]) -> dict[str, float]:
    """Milliseconds of a run by part, `dense` being those of the dense operators in their order; what stands between
    belongs to the part before it, but the products of activations and their softmax to attention.

    Raises Unreadable where there are not as many dense operators.
    """
    operators = list(_operators(text))
    count = sum(_is_dense(kind) for kind, _ in operators)
    if count != len(dense):
        raise Unreadable(f"its profile has {count} dense operators, and the file {len(dense)}")
    following, part = iter(dense), "embedding"
    taken: dict[str, float] = {}
    for kind, milliseconds in operators:
        if _is_dense(kind):
            part = next(following)
        elif re.match("batchmat|softmax", kind) and part != "head":
            part = "attention"
        taken[part] = taken.get(part, 0.0) + milliseconds
    return taken


def _is_dense(kind: str) -> bool:
    return kind.startswith("fullyconnected")


def _operators(text: str) -> Iterator[tuple[str, float]]:
    """Kind, in small letters alone, and milliseconds of all operators in the order of their runs, a delegate's in its
    place.
    """
    if _REGULAR not in text:
        raise Unreadable("it prints no profile")
    tables = [_table(block) for block in text.split(_REGULAR)[-1].split("= Run Order =")[1:]]
    delegates = iter(tables[1:])
    for kind, milliseconds in tables[0] if tables else ():
        inside = next(delegates, None) if "delegate" in kind else None
        yield from inside if inside is not None else [(kind, milliseconds)]


def _table(block: str) -> list[tuple[str, float]]:
    """The rows under the head of columns, which ends at a line without them."""
    lines = iter(block.splitlines())
    head = next((line for line in lines if "[node type]" in line), "")
    names = [name.strip() for name in head.split("\t")]
    found = []
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < len(names):
            break
        kind = re.sub("[^a-z]", "", cells[names.index("[node type]")].lower())
        found.append((kind, float(cells[names.index("[avg ms]")])))
    return found
