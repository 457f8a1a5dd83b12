"""Measure latency tables, from which pruning estimates milliseconds per sequence: time small encoders in LiteRT.

The encoders cover a grid of sizes. Each is timed with 1 and with 3 layers; the difference yields the time of a layer.
All are classifiers, so the last layer computes the first token only.
"""

import dataclasses
import logging
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.benchmarking.benchmark import check_overrides, read_model, untrained, write_timed
from bertzoo.benchmarking.interleave import ratio, start_workers, take_turns
from bertzoo.benchmarking.options import BenchmarkSettings
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.core.errors import UserError
from bertzoo.core.machine import processor
from bertzoo.export.formats import targets
from bertzoo.export.lengths import resolve_lengths
from bertzoo.export.litert.write import check_packages
from bertzoo.heads import NoHead
from bertzoo.models import Model
from bertzoo.pruning.latency import LatencyTable, common, latency, points
from bertzoo.pruning.structure import LETTERS, cuttable, declare, groups, layer_sizes, refusal, shallow

_LOG = logging.getLogger(__name__)

BACKEND = "litert"
MORE = 2  # additional layers of the deeper encoder of a pair
TOGETHER = 8  # models of a group, which take turns with the reference model
VOCABULARY = 1000  # largest vocabulary of an encoder; a larger one would not change its time
STEPS = 4


def measure_config(
    name: str,
    overrides: Sequence[tuple[str, str]],
    settings: BenchmarkSettings,
    dimensions: Sequence[str] = (),
    steps: int = STEPS,
) -> LatencyTable:
    """Return the latency table of a config or model directory; raises UserError for a wrong name or setting."""
    if steps < 2:
        raise UserError(f"--steps={steps} is less than 2. Use at least 2: the smallest and the largest size.")
    check_packages()
    model = read_model(name, overrides)
    if model.pretrained is None:
        raise UserError(
            f"--table measures a model, but {name} is a file. Name the model that the file was converted from."
        )
    check_overrides(overrides, [model])
    lengths = resolve_lengths(model.pretrained, settings.lengths or ())
    return measure(model.pretrained.model, dataclasses.replace(settings, lengths=lengths), dimensions, steps)


def grid(model: Model, dimensions: Sequence[str], steps: int) -> dict[str, tuple[int, ...]]:
    """Return the sizes to measure of each dimension, by letter.

    A dimension's sizes range from the smallest size after pruning to the model's size.
    dimensions: letters; empty for all that pruning can cut. steps: number of sizes per dimension.
    Raises UserError if pruning cannot cut a dimension of this model.
    """
    for letter in dimensions:
        if letter not in LETTERS:
            raise UserError(f"--dimensions={letter} is unknown. Use {', '.join(LETTERS)}.")
        if letter not in cuttable(model):
            raise UserError(f"--dimensions: {refusal(model, letter)}")
    sizes = {}
    for letter in LETTERS:
        if letter in (dimensions or cuttable(model)):
            least = groups(model) if letter == "f" else 1
            most = max(layer[letter] for layer in layer_sizes(model)) // least
            count = max(2, min(steps, most))  # more steps repeat sizes
            sizes[letter] = tuple(sorted({least * round(1 + (most - 1) * i / (count - 1)) for i in range(count)}))
    return sizes


def measure(
    model: Model, settings: BenchmarkSettings, dimensions: Sequence[str] = (), steps: int = STEPS
) -> LatencyTable:
    """Return the latency table of a model; settings: as in `milliseconds`. dimensions, steps: as in `grid`.

    Raises UserError if the model's layers differ in a dimension that is not measured.
    """
    sizes = grid(model, dimensions, steps)
    length, threads, precision = _setting(settings)
    shared = common(model, list(sizes))
    model = dataclasses.replace(model, vocab_size=min(VOCABULARY, model.vocab_size))
    grid_points = points(sizes)
    shapes = [dict(zip(sizes, point, strict=True)) for point in grid_points]
    encoders = [shallow(model, layers, shape) for shape in shapes for layers in (1, 1 + MORE)]
    times, runtime = milliseconds([shallow(model, 1 + MORE, {}), model, *encoders], settings)
    single, deep = times[2::2], times[3::2]
    further = [max(0.0, (b - a) / MORE) for a, b in zip(single, deep, strict=True)]
    table = LatencyTable(
        length=length,
        model=shared,
        sizes=sizes,
        single=dict(zip(grid_points, single, strict=True)),
        further=dict(zip(grid_points, further, strict=True)),
    )
    structure = declare(model, NoHead(), tuple(sizes))
    facts = {
        "machine": f"{processor().name or platform.processor() or 'unknown'} ({platform.machine()})",
        "cores": os.cpu_count(),
        "runtime": f"{BACKEND} {runtime}",
        "threads": threads,
        "precision": precision,
        "runs": settings.runs,
        "rounds": settings.rounds,
        "whole": {"measured_ms": times[1], "table_ms": latency(structure, table, "the table")(structure.sizes)},
    }
    return dataclasses.replace(table, measurement=facts)


def _setting(settings: BenchmarkSettings) -> tuple[int, int, Any]:
    """Return the length, number of threads and precision of settings that have one of each."""
    assert settings.lengths
    return settings.lengths[0], settings.threads[0], (settings.precisions or ("fp32",))[0]


def milliseconds(models: Sequence[Model], settings: BenchmarkSettings) -> tuple[list[float], str]:
    """Return the milliseconds of a sequence in every model, and the runtime's version.

    settings: with one length, one number of threads and at most one precision.

    The models are timed in small groups, and each group takes turns with the first model. Times come from ratios to the
    first model's time, so a machine that slows down between two groups does not change them.
    """
    shares, base_times, count, runtime = [1.0], list[float](), 1, ""
    with tempfile.TemporaryDirectory(prefix="bertzoo.") as folder:
        first = _request(models[0], Path(folder) / "first", settings)
        while count < len(models):
            group = models[count : count + TOGETHER]
            requests = [first, *(_request(model, Path(folder) / str(i), settings) for i, model in enumerate(group))]
            with start_workers([(f"encoder {count + i}", request) for i, request in enumerate(requests)]) as workers:
                runtime = workers[0].state["version"]
                lengths = [_setting(settings)[0]] * len(requests)
                base, *others = take_turns(workers, lengths, settings.runs, settings.rounds, logging.DEBUG)
            base_times += [second for runs in base for second in runs]
            shares += [ratio(rounds, base) for rounds in others]
            count += len(group)
            _LOG.info(f"{count} of {len(models)} encoders")
    unit = 1e3 * statistics.median(base_times)
    return [unit * share for share in shares], runtime


def _request(model: Model, file: Path, settings: BenchmarkSettings) -> LoadRequest:
    length, threads, precision = _setting(settings)
    write_timed(targets(Path(sys.executable))[BACKEND], untrained(model, file.name), file, [length], precision)
    return LoadRequest(BACKEND, str(file), threads, model.vocab_size)
