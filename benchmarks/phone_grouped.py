"""How a grouped map is computed fastest in each of the phone's runtimes: SqueezeBERT, written in each way.

    python benchmarks/phone_grouped.py

In PyTorch's formats the ways are those of export.phone_module; LiteRT has its rewrite, or goes without it. Random
weights, one thread, a row of 128 tokens; the files of one format run in turns. The section of docs/results.md is then
written anew. Needs the extras litert, torch and onnx, and --python with executorch. Nothing else should run beside it.
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from pages import write_section

from bertzoo.benchmarking import interleave, models
from bertzoo.benchmarking.interleave import Rounds
from bertzoo.benchmarking.worker import LoadRequest
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.export import formats
from bertzoo.export.graph import rewrites
from bertzoo.export.graph.from_model import build_graph
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.litert import write
from bertzoo.export.pytorch import executorch, torch_files

NOISE = 0.03  # of a ratio, from run to run
STARTS = 3  # of every process: where its memory lies decides some hundredths
MODEL, LENGTH = "squeezebert", 128
CONVOLUTION, APART = "convolution", "apart"
BACKEND = {name: name for name in ("litert", "onnx", "executorch")} | {"torch-export": "torch", "torchscript": "torch"}
WITHOUT = {CONVOLUTION: (rewrites.keep_groups_apart,), APART: ()}  # what LiteRT's graph goes without
TITLES = {
    CONVOLUTION: "grouped convolution",
    APART: "a dense product for each group",
    "batched": "one product, batched by groups",
}


def written(target: str, way: str, model: Pretrained, folder: Path, python: Path) -> Path:
    """The model's file of a target, its grouped maps computed in a way."""
    graph = training_graph(model)
    if target == "litert":
        phone, file = build_graph(graph.model, graph.params, graph.pooling), folder / f"{way}.tflite"
        for rewrite in rewrites.OPTIMISING:
            phone = phone if rewrite in WITHOUT[way] else rewrite(phone)
        file.write_bytes(write.convert(phone, (LENGTH,)))
        return file
    made = formats.targets(python)[target]
    file = folder / f"{target}-{way}{made.suffix}"
    with patch.dict(torch_files.GROUPED, {target: way}), patch.object(executorch, "GROUPED", way):
        made.make(model, graph, formats.FileSettings(lengths=(LENGTH,)), file)
    return file


def measured(target: str, model: Pretrained, python: Path, runs: int, rounds: int) -> dict[str, Rounds]:
    """By way, the seconds of the runs of every round, of all starts one after another."""
    ways = tuple(WITHOUT) if target == "litert" else tuple(TITLES)
    with tempfile.TemporaryDirectory() as name:
        files = [written(target, way, model, Path(name), python) for way in ways]
        ids = model.model.vocab_size
        loads = [
            (f"{target} {way}", LoadRequest(BACKEND[target], str(file), 1, ids))
            for way, file in zip(ways, files, strict=True)
        ]
        found: dict[str, Rounds] = {way: [] for way in ways}
        for _ in range(STARTS):
            with interleave.start_workers(loads, str(python)) as workers:
                taken = interleave.take_turns(workers, [LENGTH] * len(ways), runs, rounds, lambda _: None)
            for way, each in zip(ways, taken, strict=True):
                found[way] += each
        return found


def line(target: str, ways: Mapping[str, Rounds]) -> str:
    """A row of the table: of every way the median, and the median of the rounds' ratios to the convolution."""
    cells = [target]
    for way in TITLES:
        if way in ways:
            median = 1e3 * statistics.median(second for each in ways[way] for second in each)
            cells.append(f"{median:.1f} ({interleave.ratio(ways[way], ways[CONVOLUTION]):.3f})")
        else:
            cells.append("-")
    return f"| {' | '.join(cells)} |"


def faster(ways: Mapping[str, Rounds], chosen: str) -> str | None:
    """The way that is faster than the chosen one by more than NOISE, the fastest of all; None where there is none."""
    best = min(ways, key=lambda way: interleave.ratio(ways[way], ways[chosen]))
    return best if interleave.ratio(ways[best], ways[chosen]) < 1 - NOISE else None


def section(found: Mapping[str, Mapping[str, Rounds]], rounds: int) -> str:
    """Markdown of what was measured of every target, and which ones `bertzoo convert` should write otherwise."""
    table = "\n".join(line(target, ways) for target, ways in found.items())
    written = {"litert": APART, "executorch": executorch.GROUPED, **torch_files.GROUPED}
    better = {target: way for target, ways in found.items() if (way := faster(ways, written[target]))}
    said = "; ".join(f"in {target} the fastest is {TITLES[way]}" for target, way in better.items())
    return f"""## Grouped maps in the phone's runtimes

`python benchmarks/phone_grouped.py`: SqueezeBERT with random weights, float32, one thread, one row of {LENGTH} tokens:
the median in ms, and in brackets the median of the ratios to the grouped convolution over {STARTS} starts of every
process and {rounds} rounds of each.

| format | {" | ".join(TITLES.values())} |
|---|{"---|" * len(TITLES)}
{table}

What `bertzoo convert` writes is to within {NOISE:.0%} the fastest{f" but for: {said}" if said else " of each"}."""


def main(words: Sequence[str] | None = None) -> None:
    """Write the files, measure, write the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="of each start")
    parser.add_argument("--runs", type=int, default=24, help="how many of each are counted in a start")
    parser.add_argument("--python", type=Path, default=Path(".venv-executorch/bin/python"), help="one with executorch")
    args = parser.parse_args(words)
    model = models.read_model(MODEL, [], ()).pretrained
    assert model is not None
    found = {}
    for target in BACKEND:
        found[target] = measured(target, model, args.python, args.runs, args.rounds)
        print(line(target, found[target]), flush=True)
    write_section(Path(__file__).name, section(found, args.rounds))


if __name__ == "__main__":
    main()
