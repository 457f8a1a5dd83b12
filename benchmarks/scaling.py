"""What a training step costs as the work grows: time and memory by length, batch, layers and devices; and the memory of
the input as the corpus grows.

    python benchmarks/scaling.py

BERT, SqueezeBERT and ConvBERT of the base width and few layers, float32, on this machine's CPU; the points of one line
are measured in turns. Memory of a step is what XLA plans for it beside parameters and moments, and does not vary. More
devices are made of the same cores, so that what their number adds is overhead. The input is read in a process of its
own, whose memory that is no file's is watched. The section of docs/performance.md and docs/scaling.png are then written
anew. Nothing else should run beside it.
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import machine
from pages import write_section
from train_step import adamw, objective, random_batch

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
PICTURE = PAGE.with_name("scaling.png")
MODELS = ("bert_base", "squeezebert", "convbert_base")
LAYERS, ROWS, LENGTH, MASKED = 3, 2, 128, 0.15  # where they are not what grows
AXES = {"length": (128, 256, 384, 512), "batch": (1, 2, 4, 8, 16), "layers": (1, 2, 4, 8, 12)}
DEVICES, COPIES = (1, 2, 4, 8), (1, 2, 4, 8)  # copies of the embedded corpus
STARTS = 3  # processes for each number of devices
SPLIT = {"data": "devices", "fsdp": "devices, each with a part of the parameters"}  # by the mesh's axis
READ = 100  # batches


class Point(NamedTuple):
    """What grows, how large it is, and then the seconds of a step and the bytes that it needs for a while."""

    model: str
    axis: str
    size: int
    seconds: float
    scratch: int


def compiled(model: str, layers: int, rows: int, length: int, split: str = "data") -> tuple[Callable[[], None], int]:
    """A training step, done when it returns, and the bytes of its temporaries; `split`: the axis of all devices."""
    import jax

    from bertzoo.train import optim, sharding
    from bertzoo.train import state as states
    from bertzoo.train import step as steps

    made = objective(model, layers)
    axes = sharding.Mesh(**{"data": 1, split: jax.device_count()})
    optimizer, mesh = optim.build(adamw(), steps=1000), sharding.make_mesh(axes)
    state = states.fresh(made, optimizer, mesh, seed=0)
    train = steps.make_train_step(made, optimizer, shardings=states.shardings_of(state))
    batch = steps.put_batch(random_batch(rows, length, round(MASKED * length), seed=0), mesh)
    program = train.lower(state, None, batch).compile()

    def run() -> None:
        nonlocal state
        state, report = program(state, None, batch)
        jax.block_until_ready(report)

    return run, int(program.memory_analysis().temp_size_in_bytes)


def line(model: str, axis: str, sizes: Sequence[int], rounds: int, split: str = "data") -> list[Point]:
    """The points of one line, in turns."""
    usual = {"layers": LAYERS, "batch": ROWS, "length": LENGTH}
    made = []
    for size in sizes:
        asked = usual | {axis: size}
        made.append(compiled(model, asked["layers"], asked["batch"], asked["length"], split))
    taken: list[list[float]] = [[] for _ in made]
    for index in range(rounds + 1):  # the first warms up
        for place in range(len(made))[:: 1 if index % 2 else -1]:
            began = time.perf_counter()
            made[place][0]()
            taken[place].append(time.perf_counter() - began)
    return [
        Point(model, axis, size, statistics.median(each[1:]), scratch)
        for size, each, (_, scratch) in zip(sizes, taken, made, strict=True)
    ]


def in_a_process(*words: str, **variables: str) -> Any:
    """What this script prints in a process of its own, as JSON."""
    command, known = [sys.executable, __file__, *words], {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=known).stdout)


def on_devices(count: int, split: str, rounds: int) -> Point:
    """A step of the first model on so many devices along an axis of the mesh, of eight rows whatever their number."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
    words = ("--worker=devices", f"--size={count}", f"--axis={split}", f"--rounds={rounds}")
    return Point(*in_a_process(*words, XLA_FLAGS=flags))


def corpora(folder: Path) -> Iterator[tuple[int, Path]]:
    """Tokenised corpora, of more and more copies of the embedded one."""
    from bertzoo.data.corpus.tokenize import tokenize
    from bertzoo.data.settings import Data
    from bertzoo.data.sources.pieces import cut_pieces
    from bertzoo.data.tokenizers.wordpiece import WordPiece

    settings = Data(source="embedded:python", tokenizer=WordPiece(vocab_size=4096))
    pieces = cut_pieces(settings.parts, heldout=settings.heldout, piece_bytes=settings.piece_bytes)
    texts = [document for piece in pieces for document in piece.documents]
    vocabulary = ""
    for copies in COPIES:
        file, made = folder / f"{copies}.jsonl", folder / f"corpus-{copies}"
        with file.open("w", encoding="utf-8") as stream:
            for copy in range(copies):
                stream.writelines(json.dumps({"text": f"{copy}. {text}"}) + "\n" for text in texts)
        words = WordPiece(path=vocabulary) if vocabulary else settings.tokenizer
        tokenize(dataclasses.replace(settings, source=str(file), tokenizer=words), made, workers=1)
        vocabulary = vocabulary or str(made / "tokenizer" / "vocab.txt")
        yield copies, made


def of_devices(rounds: int) -> list[Point]:
    """Each number of devices, split either way, in some processes in turns; of each the median process."""
    found: dict[tuple[str, int], list[Point]] = {(split, count): [] for split in SPLIT for count in DEVICES}
    for _ in range(STARTS):
        for (split, count), own in found.items():
            own.append(on_devices(count, split, rounds))
    return [sorted(own, key=lambda point: point.seconds)[STARTS // 2] for own in found.values()]


@contextmanager
def watched() -> Iterator[list[int]]:
    """The most bytes of this process that belong to no file, in a list that has it at the end."""
    found, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            text = Path("/proc/self/status").read_text(encoding="ascii")
            found[0] = max(found[0], 1024 * int(text.split("RssAnon:")[1].split()[0]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def read(corpus: Path) -> tuple[int, int]:
    """Tokens of a corpus, and the most memory of packing it and reading batches of it."""
    from bertzoo.data.corpus.reader import Corpus
    from bertzoo.data.mask import Masking
    from bertzoo.data.pack import SentencePacking, plan_rows
    from bertzoo.data.pipeline import Batches

    opened = Corpus.open(corpus)
    with tempfile.TemporaryDirectory() as name, watched() as most:
        where = Path(name)
        rows = plan_rows(opened, "train", SentencePacking(), sentence="sop", max_length=LENGTH, seed=0, directory=where)
        given = Batches(opened, "train", rows, Masking(), max_length=LENGTH, max_predictions=20, seed=0)
        for step in range(READ):
            given.batch(step * (given.rows // 256) // READ, min(256, given.rows))
        time.sleep(0.02)
    return opened.manifest.splits["train"].tokens, most[0]


def draw(points: Sequence[Point], inputs: Sequence[tuple[int, int]], path: Path) -> None:
    """A column for each thing that grows: time above, memory below."""
    from matplotlib.figure import Figure

    axes = [*AXES, "devices"]
    figure = Figure(figsize=(3.1 * len(axes), 6), layout="constrained")
    for place, axis in enumerate(axes):
        above, below = (figure.add_subplot(2, len(axes), place + 1 + row * len(axes)) for row in (0, 1))
        for model in MODELS:
            own = [point for point in points if (point.model, point.axis) == (model, axis)]
            if own and axis in AXES:
                sizes = [point.size for point in own]
                above.plot(sizes, [1e3 * point.seconds for point in own], marker="o", clip_on=False, label=model)
                below.plot(sizes, [point.scratch / 2**20 for point in own], marker="o", clip_on=False)
        if axis == "devices":
            for split, style in zip(SPLIT, ("-", "--"), strict=True):
                own = [point for point in points if point.axis == SPLIT[split]]
                times, shown = (
                    [1e3 * point.seconds for point in own],
                    {"color": "C0", "marker": "o", "linestyle": style},
                )
                above.plot([point.size for point in own], times, clip_on=False, label=f"mesh.{split}", **shown)
            above.legend(frameon=False)
            # The memory of a device says nothing of one machine; here the input is drawn.
            below.clear()
            below.plot([n / 1e6 for n, _ in inputs], [most / 2**20 for _, most in inputs], marker="o", color="0.3")
            below.set_xlabel("corpus, million tokens")
            below.set_ylabel("input, MiB")
        else:
            below.set_xlabel(axis)
        above.set_xlabel(axis)
        for drawn in (above, below):
            drawn.set_ylim(0, 1.05 * drawn.get_ylim()[1])
            drawn.locator_params(axis="x", integer=True)
            drawn.grid(alpha=0.25)
            drawn.spines[["top", "right"]].set_visible(False)
        if not place:
            above.set_ylabel("a step, ms")
            below.set_ylabel("memory of a step, MiB")
            above.legend(frameon=False)
    figure.savefig(path, dpi=110)


def devices(points: Sequence[Point]) -> str:
    """Markdown: of eight rows on several devices, in the time of one."""
    lines = [f"| eight rows | {' | '.join(map(str, DEVICES))} |", f"|---|{'---|' * len(DEVICES)}"]
    for axis in SPLIT.values():
        one, *more = [point for point in points if point.axis == axis]
        cells = [f"{1e3 * one.seconds:,.0f} ms, {one.scratch / 2**20:,.0f} MiB"]
        cells += [f"{point.seconds / one.seconds:.2f}, {point.scratch / 2**20:,.0f} MiB each" for point in more]
        lines.append(f"| {axis} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(points: Sequence[Point], inputs: Sequence[tuple[int, int]], rounds: int) -> str:
    """Markdown."""
    tables = []
    for axis in AXES:
        sizes = AXES[axis]
        rows = [f"| {axis} | {' | '.join(map(str, sizes))} |", f"|---|{'---|' * len(sizes)}"]
        for model in MODELS:
            own = [point for point in points if (point.model, point.axis) == (model, axis)]
            cells = [f"{1e3 * point.seconds:,.0f} ms, {point.scratch / 2**20:,.0f} MiB" for point in own]
            rows.append(f"| {model} | {' | '.join(cells)} |")
        tables.append("\n".join(rows))
    tables.append(devices(points))
    memory = ", ".join(f"{tokens / 1e6:.1f} M tokens: {most / 2**20:.0f} MiB" for tokens, most in inputs)
    shown = "\n\n".join(tables)
    return f"""## What a step costs as the work grows

`python benchmarks/scaling.py`: training steps of {LAYERS} layers of the base width, {ROWS} rows of {LENGTH} tokens
where they are not what grows, float32, AdamW, {machine.processor()}, {os.cpu_count()} cores;
medians of {rounds} rounds, the points of one line in turns (the lines one after another, between which the same step
may differ by a fifth), and the memory that XLA plans for a step beside parameters and moments.

{shown}

The last table is of {MODELS[0]} on devices made of the same cores, so that only what they cost is seen: how many times
as long a step takes as on one, the median of {STARTS} processes in turns.

Memory of the input (packing of sentence pairs and {READ} batches of 256 rows), files mapped into memory not counted:
{memory}.

![scaling]({PICTURE.name})"""


def main(words: Sequence[str] | None = None) -> None:
    """Measure, write the section and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", choices=("line", "devices", "input"), help=argparse.SUPPRESS)
    for name in ("model", "axis", "corpus"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.worker == "line":
        print(json.dumps(line(args.model, args.axis, AXES[args.axis], args.rounds)))
    elif args.worker == "devices":
        import jax

        if jax.device_count() != args.size:
            sys.exit(f"{jax.device_count()} devices, not {args.size}")
        ((*_, seconds, scratch),) = line(MODELS[0], "batch", (8,), args.rounds, args.axis)
        print(json.dumps(Point(MODELS[0], SPLIT[args.axis], args.size, seconds, scratch)))
    elif args.worker == "input":
        print(json.dumps(read(Path(args.corpus))))
    else:
        points = []
        for model in MODELS:
            for axis in AXES:
                told = (f"--model={model}", f"--axis={axis}", f"--rounds={args.rounds}")
                points += [Point(*each) for each in in_a_process("--worker=line", *told)]
                print(f"{model}, {axis}: {', '.join(f'{point.seconds:.2f} s' for point in points[-len(AXES[axis]) :])}")
        points += of_devices(args.rounds)
        with tempfile.TemporaryDirectory() as name:
            found = [in_a_process("--worker=input", f"--corpus={made}") for _, made in corpora(Path(name))]
        inputs = [(tokens, most) for tokens, most in found]
        if not PAGE.exists():
            PAGE.write_text("# Performance\n", encoding="utf-8")
        write_section(Path(__file__).name, page(points, inputs, args.rounds), PAGE)
        draw(points, inputs, PICTURE)


if __name__ == "__main__":
    main()
