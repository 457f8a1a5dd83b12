"""What a training step costs as the work grows (length, batch, layers, devices), and the input as the corpus grows.

    python -m benchmarks speed.scaling

BERT, SqueezeBERT and ConvBERT of the base width and few layers, float32, on this machine's CPU; the points of one line
take turns. Memory of a step is what XLA plans for it beside parameters and moments, and does not vary. More devices are
made of the same cores, so that their number only adds overhead. The input is read in a process of its own; files mapped
into memory do not count. Also draws docs/scaling.png. Nothing else should run at the same time.
"""

import dataclasses
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.lib import results
from benchmarks.lib.program import in_new_process
from benchmarks.speed.train_step import adamw, objective, random_batch

MODELS = ("bert_base", "squeezebert", "convbert_base")
USUAL = {"layers": 3, "batch": 2, "length": 128}
MASKED = 0.15  # of a row's tokens
AXES = {"length": (128, 256, 384, 512), "batch": (1, 2, 4, 8, 16), "layers": (1, 2, 4, 8, 12)}
DEVICES, COPIES = (1, 2, 4, 8), (1, 2, 4, 8)  # copies of the embedded corpus
STARTS = 3  # processes for each number of devices
SPLITS = ("data", "fsdp")  # mesh axes of several devices
READ = 100  # batches


class Point(NamedTuple):
    """Milliseconds of a step, and the MiB that it needs beside its state."""

    milliseconds: float
    mib: float


def compile_step(model: str, layers: int, rows: int, length: int, split: str) -> tuple[Callable[[], None], float]:
    """A training step that returns when it is done, and the MiB of its temporaries; split: the axis of all devices."""
    import jax

    from bertzoo.train import optim, sharding
    from bertzoo.train import state as states
    from bertzoo.train import step as steps

    built = objective(model, layers)
    optimizer = optim.build(adamw(), steps=1000)
    mesh = sharding.make_mesh(sharding.Mesh(**{"data": 1, split: jax.device_count()}))
    state = states.fresh(built, optimizer, mesh, seed=0)
    train = steps.make_train_step(built, optimizer, shardings=states.shardings_of(state))
    batch = steps.put_batch(random_batch(rows, length, round(MASKED * length), seed=0), mesh)
    program = train.lower(state, None, batch).compile()

    def run() -> None:
        nonlocal state
        state, report = program(state, None, batch)
        jax.block_until_ready(report)

    return run, program.memory_analysis().temp_size_in_bytes / 2**20


def measure_line(model: str, axis: str, sizes: Sequence[int], rounds: int, split: str = "data") -> list[Point]:
    """The points of one line, in turns."""
    shapes = [USUAL | {axis: size} for size in sizes]
    steps = [compile_step(model, shape["layers"], shape["batch"], shape["length"], split) for shape in shapes]
    times: list[list[float]] = [[] for _ in steps]
    for index in range(rounds + 1):  # the first warms up
        for place in range(len(steps))[:: 1 if index % 2 else -1]:
            start = time.perf_counter()
            steps[place][0]()
            times[place].append(time.perf_counter() - start)
    medians = (1e3 * statistics.median(line[1:]) for line in times)
    return [Point(median, mib) for median, (_, mib) in zip(medians, steps, strict=True)]


def measure_devices(rounds: int, counts: Sequence[int] = DEVICES) -> list[dict[str, Any]]:
    """Steps of eight rows of the first model on several devices, split either way; of STARTS processes the median."""
    points: dict[tuple[str, int], list[Point]] = {(split, count): [] for count in counts for split in SPLITS}
    for _ in range(STARTS):
        for (split, count), starts in points.items():
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
            arguments = (MODELS[0], "batch", (8,), rounds, split)
            starts += in_new_process(measure_line, *arguments, JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    median = {key: sorted(starts)[STARTS // 2] for key, starts in points.items()}
    rows: list[dict[str, Any]] = [{"devices": count} for count in counts]
    for row in rows:
        for split in SPLITS:
            point, one = median[split, row["devices"]], median[split, counts[0]]
            row |= {f"{split}, ms": round(point.milliseconds), f"{split}, MiB each": round(point.mib)}
            row |= {f"{split}, of one's time": round(point.milliseconds / one.milliseconds, 2)}
    return rows


def corpora(folder: Path, copies: Sequence[int] = COPIES) -> Iterator[Path]:
    """Tokenised corpora of more and more copies of the embedded one."""
    from bertzoo.data.corpus.tokenize import tokenize
    from bertzoo.data.settings import Data
    from bertzoo.data.sources.pieces import cut_pieces
    from bertzoo.data.tokenizers.wordpiece import WordPiece

    settings = Data(source="embedded:python", tokenizer=WordPiece(vocab_size=4096))
    pieces = cut_pieces(settings.parts, heldout=settings.heldout, piece_bytes=settings.piece_bytes)
    texts = [document for piece in pieces for document in piece.documents]
    tokenizer = settings.tokenizer
    for count in copies:
        file, corpus = folder / f"{count}.jsonl", folder / f"corpus-{count}"
        with file.open("w", encoding="utf-8") as stream:
            for copy in range(count):
                stream.writelines(json.dumps({"text": f"{copy}. {text}"}) + "\n" for text in texts)
        tokenize(dataclasses.replace(settings, source=str(file), tokenizer=tokenizer), corpus, workers=1)
        tokenizer = WordPiece(path=str(folder / f"corpus-{copies[0]}" / "tokenizer" / "vocab.txt"))
        yield corpus


@contextmanager
def watch_memory() -> Iterator[list[int]]:
    """The most bytes of this process that belong to no file, in a list that has it at the end."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            text = Path("/proc/self/status").read_text(encoding="ascii")
            peak[0] = max(peak[0], 1024 * int(text.split("RssAnon:")[1].split()[0]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def read_corpus(corpus: Path) -> dict[str, float]:
    """Tokens of a corpus, and the most memory of packing it and reading batches of it."""
    from bertzoo.data.corpus.reader import Corpus
    from bertzoo.data.mask import Masking
    from bertzoo.data.pack import SentencePacking, plan_rows
    from bertzoo.data.pipeline import Batches

    opened, length = Corpus.open(corpus), USUAL["length"]
    with tempfile.TemporaryDirectory() as name, watch_memory() as peak:
        folder = Path(name)
        rows = plan_rows(
            opened, "train", SentencePacking(), sentence="sop", max_length=length, seed=0, directory=folder
        )
        batches = Batches(opened, "train", rows, Masking(), max_length=length, max_predictions=20, seed=0)
        for step in range(READ):
            batches.batch(step * (batches.rows // 256) // READ, min(256, batches.rows))
        time.sleep(0.02)
    tokens = opened.manifest.splits["train"].tokens
    return {"million tokens": round(tokens / 1e6, 1), "MiB": round(peak[0] / 2**20)}


def draw(tables: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """A column for each thing that grows: time above, memory below."""
    from matplotlib.figure import Figure

    axes = [*AXES, "devices"]
    figure = Figure(figsize=(3.1 * len(axes), 6), layout="constrained")
    grid = figure.subplots(2, len(axes))
    style: dict[str, Any] = {"marker": "o", "clip_on": False}
    for (above, below), axis in zip(grid.T, axes, strict=True):
        rows = tables[axis]
        if axis == "devices":
            for split, line in zip(SPLITS, ("-", "--"), strict=True):
                times = [row[f"{split}, ms"] for row in rows]
                above.plot([row[axis] for row in rows], times, label=f"mesh.{split}", color="C0", ls=line, **style)
            # The memory of a device says nothing of one machine; the input's is drawn instead.
            sizes, memory = zip(*((row["million tokens"], row["MiB"]) for row in tables["input"]), strict=True)
            below.plot(sizes, memory, color="0.3", **style)
            below.set(xlabel="corpus, million tokens", ylabel="input, MiB")
        else:
            for model in MODELS:
                for drawn, unit in ((above, "ms"), (below, "MiB")):
                    figures = [row[f"{model}, {unit}"] for row in rows]
                    drawn.plot([row[axis] for row in rows], figures, label=model, **style)
            below.set_xlabel(axis)
        above.set_xlabel(axis)
        for drawn in (above, below):
            drawn.set_ylim(0, 1.05 * drawn.get_ylim()[1])
            drawn.locator_params(axis="x", integer=True)
            drawn.grid(alpha=0.25)
            drawn.spines[["top", "right"]].set_visible(False)
        if axis in (axes[0], "devices"):
            above.legend(frameon=False)
    grid[0, 0].set_ylabel("a step, ms")
    grid[1, 0].set_ylabel("memory of a step, MiB")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, write the result and draw it."""
    parser = results.parser("scaling", __doc__)
    results.add_numbers(parser, rounds=5)
    parser.add_argument("--smallest", action="store_true", help="only the two smallest sizes of everything, as a trial")
    args = parser.parse_args()
    most = 2 if args.smallest else None
    tables: dict[str, Any] = {axis: [{axis: size} for size in sizes[:most]] for axis, sizes in AXES.items()}
    for model in MODELS:
        for axis, rows in tables.items():
            sizes = [row[axis] for row in rows]
            points = in_new_process(measure_line, model, axis, sizes, args.rounds, JAX_PLATFORMS="cpu")
            for row, point in zip(rows, points, strict=True):
                row |= {f"{model}, ms": round(point.milliseconds), f"{model}, MiB": round(point.mib)}
            print(f"{model}, {axis}: {', '.join(f'{point.milliseconds:.0f} ms' for point in points)}", flush=True)
    tables["devices"] = measure_devices(args.rounds, DEVICES[:most])
    with tempfile.TemporaryDirectory() as name:
        tables["input"] = [in_new_process(read_corpus, corpus) for corpus in corpora(Path(name), COPIES[:most])]
    draw(tables, results.picture(args.out))
    results.write(args.out, [], tables)
