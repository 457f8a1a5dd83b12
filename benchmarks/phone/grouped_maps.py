"""The fastest way to compute a grouped map in each of the phone's runtimes: SqueezeBERT, written in each way.

    python -m benchmarks phone.grouped_maps

In PyTorch's formats the ways are those of export.pytorch.phone_module; LiteRT has its rewrite or goes without it, in
float32 and int8-dynamic (litert-int8). Random weights, one thread, a row of 128 tokens; the files of one format take
turns. Fails if another way than `bertzoo convert` writes is faster by more than 3 %. With litert-int8 also estimates
what int8 saves of SqueezeBERT's dense maps and of all else. Needs the extras litert, torch and onnx, and --python with
executorch. Nothing else should run at the same time.
"""

import logging
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.lib import results
from bertzoo.benchmarking import backends, interleave, models
from bertzoo.benchmarking.benchmark import flops_by_part
from bertzoo.benchmarking.interleave import Rounds
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import formats
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.options import Precision
from bertzoo.export.pytorch import executorch, torch_files

NOISE = 0.03  # of a ratio, from run to run
STARTS = 3  # of every process: where its memory lies decides some hundredths
MODEL, BASE, LENGTH = "squeezebert", "bert_base", 128
CONVOLUTION, APART, BATCHED = "convolution", "apart", "batched"
INT8 = "litert-int8"
BACKEND = {"litert": "litert", INT8: "litert", "onnx": "onnx", "executorch": "executorch"}
BACKEND |= {"torch-export": "torch", "torchscript": "torch"}
TITLES = {CONVOLUTION: "grouped convolution", APART: "a product for each group", BATCHED: "one batched product"}
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8-dynamic")
WITHOUT = {CONVOLUTION: (rewrites.keep_groups_apart,), APART: ()}  # rewrites that LiteRT's graph leaves out


def write_file(target: str, way: str, model: Pretrained, folder: Path, python: Path) -> Path:
    """The model's file in a format, its grouped maps computed in a way."""
    graph = training_graph(model)
    if BACKEND[target] == "litert":
        phone, file = build_graph(graph.model, graph.params), folder / f"{way}.tflite"
        for rewrite in rewrites.OPTIMISING:
            phone = phone if rewrite in WITHOUT[way] else rewrite(phone)
        return backends.litert_file(phone, file, (LENGTH,), "int8-dynamic" if target == INT8 else "fp32").path
    writer = formats.targets(python)[target]
    file = folder / f"{target}-{way}{writer.suffix}"
    with patch.dict(torch_files.GROUPED, {target: way}), patch.object(executorch, "GROUPED", way):
        writer.make(model, graph, formats.FileSettings(lengths=(LENGTH,)), file)
    return file


def measure(target: str, model: Pretrained, python: Path, runs: int, rounds: int) -> dict[str, Rounds]:
    """By way the seconds of the runs of every round, all starts one after another."""
    ways = tuple(WITHOUT) if BACKEND[target] == "litert" else tuple(TITLES)
    with tempfile.TemporaryDirectory() as name:
        files = [write_file(target, way, model, Path(name), python) for way in ways]
        vocabulary = model.model.vocab_size
        loads = [
            (f"{target} {way}", LoadRequest(BACKEND[target], str(file), 1, vocabulary))
            for way, file in zip(ways, files, strict=True)
        ]
        times: dict[str, Rounds] = {way: [] for way in ways}
        for _ in range(STARTS):
            with interleave.start_workers(loads, str(python)) as workers:
                rounds_of = interleave.take_turns(workers, [LENGTH] * len(ways), runs, rounds, logging.DEBUG)
            for way, seconds in zip(ways, rounds_of, strict=True):
                times[way] += seconds
        return times


def row(target: str, times: dict[str, Rounds]) -> dict[str, Any]:
    """By way the median milliseconds, and the median of the rounds' ratios to the convolution."""
    cells: dict[str, Any] = {"format": target}
    for way, title in TITLES.items():
        seconds = [second for runs in times.get(way, ()) for second in runs]
        cells[f"{title}, ms"] = round(1e3 * statistics.median(seconds), 1) if seconds else None
        cells[f"{title}, ratio"] = round(interleave.ratio(times[way], times[CONVOLUTION]), 3) if seconds else None
    used = {"litert": APART, INT8: APART, "executorch": executorch.GROUPED, **torch_files.GROUPED}[target]
    met = all(interleave.ratio(rounds, times[used]) >= 1 - NOISE for rounds in times.values())
    return cells | {"bertzoo writes": TITLES[used], "met": met}


def part_rows(runs: int, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of SqueezeBERT's dense maps and of all else, in float32 and int8.

    All else is the same in BERT-base, whose dense maps have more operations: two times give both parts.
    """
    loads, flops = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in (BASE, MODEL):
            model = models.read_model(name, [], ()).pretrained
            assert model is not None
            parts = flops_by_part(model, LENGTH)
            flops.append(sum(parts[part] for part in ("projections", "attention_output", "feed_forward")))
            graph = rewrites.phone_graph(training_graph(model))
            for precision in PRECISIONS:
                file = Path(folder) / f"{name}-{precision}.tflite"
                backends.litert_file(graph, file, (LENGTH,), precision)
                loads.append((file.name, LoadRequest("litert", str(file), 1, model.model.vocab_size)))
        with interleave.start_workers(loads) as workers:
            times = interleave.take_turns(workers, [LENGTH] * len(loads), runs, rounds, logging.DEBUG)
    base, ours = np.reshape([1e3 * np.median(np.concatenate(seconds)) for seconds in times], (2, 2))
    dense = (base - ours) / (flops[0] / flops[1] - 1)
    rows = {"BERT-base": base, "SqueezeBERT": ours, "its dense maps": dense, "all else": ours - dense}
    return [
        {"part": part, "float32, ms": round(float(before), 1), "int8-dynamic, ms": round(float(after), 1)}
        | {"ratio": round(float(after / before), 3)}
        for part, (before, after) in rows.items()
    ]


def main() -> None:
    """Write the files, measure them, and write the result."""
    parser = results.parser("grouped_maps", __doc__)
    results.add_numbers(parser, rounds=6, runs=24)
    parser.add_argument("--python", type=Path, default=Path(".venv-executorch/bin/python"), help="one with executorch")
    parser.add_argument("--formats", default=",".join(BACKEND), help="(default: %(default)s)")
    args = parser.parse_args()
    model = models.read_model(MODEL, [], ()).pretrained
    assert model is not None
    rows = []
    for target in args.formats.split(","):
        rows.append(row(target, measure(target, model, args.python, args.runs, args.rounds)))
        print(rows[-1], flush=True)
    tables = {"formats": rows}
    if INT8 in args.formats.split(","):
        tables["parts"] = part_rows(args.runs, args.rounds)
    results.write(args.out, [], tables)
