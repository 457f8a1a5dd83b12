"""The table that a pruning counts milliseconds with: small encoders of a model at a grid of sizes, in LiteRT.

Every encoder is measured with one layer and with a few; the difference is what a layer takes. All are classifiers, of
whose last layer the file computes the first token alone.
"""

import dataclasses
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bertzoo.benchmarking.backends import BACKENDS
from bertzoo.benchmarking.backends import Wanted as Asked
from bertzoo.benchmarking.interleave import Rounds, ratio, started, take_turns
from bertzoo.benchmarking.models import untrained
from bertzoo.benchmarking.worker import Load
from bertzoo.core.errors import UserError
from bertzoo.export.litert.quantise import Precision
from bertzoo.models import Model
from bertzoo.models.tasks import NoHead
from bertzoo.pruning.latency import LatencyTable, common, latency, points
from bertzoo.pruning.shapes import LETTERS, cuttable, groups, layer_sizes, refusal, shallow
from bertzoo.pruning.structure import declare

BACKEND = "litert"
MORE = 2  # layers that the deeper of two encoders has beyond the other
TOGETHER = 8  # models that take turns, with one that is always among them
VOCABULARY = 1000  # entries at most: of a larger table no more rows are read


class Wanted(NamedTuple):
    """dimensions: letters, all that the model has where there are none; steps: how many sizes of each."""

    dimensions: Sequence[str]
    steps: int
    length: int
    threads: int
    precision: Precision
    runs: int
    rounds: int


def grid(model: Model, dimensions: Sequence[str], steps: int) -> dict[str, tuple[int, ...]]:
    """By letter the sizes to measure, from the least that a cut can leave to the model's own; raises UserError where
    the model has no such dimension.
    """
    for letter in dimensions:
        if letter not in LETTERS:
            raise UserError(f'--dimensions: "{letter}" is no dimension: known are {", ".join(LETTERS)}')
        if letter not in cuttable(model):
            raise UserError(f"--dimensions: {refusal(model, letter)}")
    found = {}
    for letter in LETTERS:
        if letter in (dimensions or cuttable(model)):
            least = groups(model) if letter == "f" else 1
            most = max(layer[letter] for layer in layer_sizes(model)) // least
            found[letter] = tuple(sorted({least * round(1 + (most - 1) * i / (steps - 1)) for i in range(steps)}))
    return found


def measure(model: Model, wanted: Wanted, tell: Callable[[str], None]) -> LatencyTable:
    """The table of a model; `tell` hears how far it is. Raises UserError where the model's layers differ in a dimension
    that is not measured.
    """
    sizes = grid(model, wanted.dimensions, wanted.steps)
    shared = common(model, list(sizes))
    model = dataclasses.replace(model, vocab_size=min(VOCABULARY, model.vocab_size))
    needed = points(sizes)
    at = [dict(zip(sizes, point, strict=True)) for point in needed]
    models = [shallow(model, layers, each) for each in at for layers in (1, 1 + MORE)]
    taken, runtime = _taken([shallow(model, 1 + MORE, {}), model, *models], wanted, tell)
    one, deep = taken[2::2], taken[3::2]
    made = LatencyTable(
        length=wanted.length,
        model=shared,
        sizes=sizes,
        one=dict(zip(needed, one, strict=True)),
        more=dict(zip(needed, [max(0.0, (b - a) / MORE) for a, b in zip(one, deep, strict=True)], strict=True)),
    )
    structure = declare(model, NoHead(), tuple(sizes))
    said = {
        "machine": _machine(),
        "cores": os.cpu_count(),
        "runtime": f"{BACKEND} {runtime}",
        "threads": wanted.threads,
        "precision": wanted.precision,
        "runs": wanted.runs,
        "rounds": wanted.rounds,
        "whole": {"measured_ms": taken[1], "table_ms": latency(structure, made, "the table")(structure.sizes)},
    }
    return dataclasses.replace(made, measurement=said)


def _taken(models: Sequence[Model], wanted: Wanted, tell: Callable[[str], None]) -> tuple[list[float], str]:
    """The milliseconds of every model and the runtime's version: a few at a time, and with each few the first model, by
    whose time the others' are told, so that what the machine does in between meets all alike.
    """
    shares, of_first, done, runtime = [1.0], list[float](), 1, ""
    with tempfile.TemporaryDirectory(prefix="bertzoo.") as folder:
        first = _load(models[0], Path(folder) / "first", wanted)
        while done < len(models):
            few = models[done : done + TOGETHER]
            loads = [first, *(_load(each, Path(folder) / str(place), wanted) for place, each in enumerate(few))]
            with started([(f"encoder {done + place}", load) for place, load in enumerate(loads)]) as workers:
                runtime = workers[0].said["version"]
                lengths = [wanted.length] * len(loads)
                base, *others = take_turns(workers, lengths, wanted.runs, wanted.rounds, lambda _: None)
            of_first += _flat(base)
            shares += [ratio(rounds, base) for rounds in others]
            done += len(few)
            tell(f"{done} of {len(models)} encoders")
    unit = 1e3 * statistics.median(of_first)
    return [unit * share for share in shares], runtime


def _load(model: Model, place: Path, wanted: Wanted) -> Load:
    asked = Asked([wanted.length], wanted.precision, Path(sys.executable))
    written = BACKENDS[BACKEND].write(untrained(model, place.name), place, asked)
    return Load(BACKEND, str(written.path), wanted.threads, model.vocab_size)


def _flat(rounds: Rounds) -> list[float]:
    return [second for each in rounds for second in each]


def _machine() -> str:
    """The processor's name."""
    said = Path("/proc/cpuinfo")
    lines = said.read_text(encoding="utf-8").splitlines() if said.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{named[0] if named else platform.processor() or 'unknown'} ({platform.machine()})"
