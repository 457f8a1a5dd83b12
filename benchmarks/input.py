"""Speed of the input pipeline: batches on one core, packing, and tokenisation, beside what they must reach; and the
share of a training step that waits for its batch.

    python benchmarks/input.py                                   the embedded documentation
    python benchmarks/input.py --source 'books/*.txt.xz' [--vocabulary vocab.txt]
    python benchmarks/input.py --corpus DIRECTORY                a tokenised corpus (tokenisation is then not measured)
    python benchmarks/input.py --train [--config squeezebert --devices 8 --batch 16 --steps 6 --workers 0]

Without --train the process binds itself to one core. Both clocks are shown: other work on the machine slows the wall
clock, not the processor's. With it, CPU devices train on the corpus, on all cores. A step waits while the loop
asks for a batch and while it puts one onto the devices; the first step, which is compiled, does not count.
The exit code is 1 where a target is missed.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import tokenize
from bertzoo.data.mask import Masking
from bertzoo.data.pack import RowPlan, Sentence, SentencePacking, plan_rows
from bertzoo.data.pipeline import Batch, Batches
from bertzoo.data.settings import Data
from bertzoo.data.sources.pieces import cut_pieces
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece

BATCH, LENGTH, PREDICTIONS = 256, 128, 20
WAITING = 0.02  # of a step, at most


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table; speeds per second of the wall clock and of processor time."""

    name: str
    unit: str
    target: float | None
    wall: float
    processor: float

    @property
    def reached(self) -> bool:
        """Whether it is as fast as it must be."""
        return self.target is None or self.processor >= self.target


def measure(
    name: str, unit: str, target: float | None, amount: float, work: Callable[[], object], repeats: int
) -> Result:
    """The best of several runs of some work on `amount` units."""
    wall, processor = [], []
    for _ in range(repeats):
        clock, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - clock)
        processor.append(time.process_time() - used)
    return Result(name=name, unit=unit, target=target, wall=amount / min(wall), processor=amount / min(processor))


def measure_tokenisation(data: Data, directory: Path) -> Result:
    """Megabytes of text a second from the source's files to finished shards, with the vocabulary ready."""
    texts = [
        document
        for piece in cut_pieces(data.parts, heldout=data.heldout, piece_bytes=data.piece_bytes)
        for document in piece.documents
    ]
    if not data.tokenizer.path:
        trained = tokenizer.build(data.tokenizer, lambda: iter(texts))
        tokenizer.save(trained, data.tokenizer, directory / "vocabulary")
        vocabulary = directory / "vocabulary" / "vocab.txt"
        data = replace(data, tokenizer=replace(data.tokenizer, path=str(vocabulary)))
    size = sum(len(text.encode()) for text in texts)
    return measure(
        "tokenise", "MB/s", None, size / 1e6, lambda: tokenize(data, directory / "corpus", workers=1), repeats=1
    )


def measure_batches(corpus: Corpus, directory: Path) -> list[Result]:
    """Packing of every objective, then masked batches of sentence order prediction with every kind of masking."""
    results = []
    sentences = corpus.manifest.splits["train"].sentences
    plans: dict[Sentence, RowPlan] = {}
    sentence: Sentence
    for sentence in ("none", "nsp", "sop"):

        def pack(sentence: Sentence = sentence) -> None:
            where = Path(tempfile.mkdtemp(dir=directory))
            plans[sentence] = plan_rows(
                corpus, "train", SentencePacking(), sentence=sentence, max_length=LENGTH, seed=0, directory=where
            )

        results.append(measure(f"pack, {sentence}", "sentences/s", 300_000, sentences, pack, repeats=2))
    for kind in ("token", "word", "ngram", "span"):
        batches = Batches(
            corpus,
            "train",
            plans["sop"],
            Masking(kind=kind),
            max_length=LENGTH,
            max_predictions=PREDICTIONS,
            seed=0,
        )
        steps = max(1, min(40, batches.rows // BATCH))
        size = min(BATCH, batches.rows)

        def read(batches=batches, steps=steps, size=size) -> None:
            for step in range(steps):
                batches.batch(step, size)

        target = 20_000 if kind == "token" else None
        name = f"batches of {size} x {LENGTH}, sop, {kind}"
        results.append(measure(name, "examples/s", target, steps * size, read, repeats=5))
    return results


class Clock:
    """Batches, and the times at which each was asked for and given."""

    def __init__(self, batches: Iterator[Batch]):
        self._batches = batches
        self.asked: list[float] = []
        self.given: list[float] = []

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self.asked.append(time.perf_counter())
        batch = next(self._batches)
        self.given.append(time.perf_counter())
        return batch


def measure_waiting(options: argparse.Namespace, corpus: Corpus, directory: Path) -> bool:
    """Trains a few steps and prints what of them was waiting; whether that is little enough."""
    from bertzoo.core import config
    from bertzoo.runs import phases
    from bertzoo.runs.batches import RunBatches
    from bertzoo.runs.pretrain_config import Pretrain
    from bertzoo.train import loop, sharding
    from bertzoo.train.step import put_batch

    overrides = [
        ("compute.dtype", "float32"),
        ("stages.0.batch_size", str(options.batch)),
        ("stages.0.steps", str(options.steps)),
        ("run.evaluate_every", "0"),
        ("run.save_every", "0"),
    ]
    recipe = config.load(Pretrain, [options.config], overrides)
    recipe = replace(recipe, stages=recipe.stages[:1])
    mesh = sharding.make_mesh(recipe.mesh)
    feed = RunBatches(recipe, corpus, directory / "plans", print, workers=options.workers)
    clocks: list[Clock] = []

    def batches(stage: int, row: int) -> Clock:
        clocks.append(Clock(feed.train(stage, row)))
        return clocks[0]

    job = loop.Job(
        setups=phases.of(recipe),
        stages=recipe.stages,
        config=recipe.run,
        mesh=mesh,
        seed=0,
        batches=batches,
    )
    loop.run(job)
    end = time.perf_counter()
    (clock,) = clocks
    waited = sum(given - asked for asked, given in zip(clock.asked[1:], clock.given[1:], strict=True))
    batch = feed.stage(0, "train").batch(0, options.batch)
    start = time.perf_counter()
    for _ in range(20):
        jax.block_until_ready(put_batch(batch, mesh))
    put = (time.perf_counter() - start) / 20
    steps = options.steps - 1
    total = end - clock.asked[1]
    shape = f"{options.config}, {options.batch} x {recipe.stages[0].max_length} on {len(jax.devices())} devices"
    print("| training | seconds a step | waiting for a batch, ms | putting it, ms | share | target | reached |")
    print("|---|---:|---:|---:|---:|---:|---|")
    share = (waited / steps + put) / (total / steps)
    numbers = f"{total / steps:.2f} | {1e3 * waited / steps:.2f} | {1e3 * put:.2f} | {share:.2%}"
    print(f"| {shape} | {numbers} | {WAITING:.0%} | {'yes' if share < WAITING else 'NO'} |")
    return share < WAITING


def print_table(results: list[Result]) -> None:
    """A Markdown table."""
    print("| on one core | unit | target | wall clock | processor time | reached |")
    print("|---|---|---:|---:|---:|---|")
    for result in results:
        target = "" if result.target is None else f"{result.target:,.0f}"
        reached = "" if result.target is None else ("yes" if result.reached else "NO")
        speeds = " | ".join(f"{s:,.0f}" if s >= 100 else f"{s:.2f}" for s in (result.wall, result.processor))
        print(f"| {result.name} | {result.unit} | {target} | {speeds} | {reached} |")


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 where a target is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=Data().source)
    parser.add_argument("--vocabulary", default="", help="a vocab.txt; without it, one of 8,000 entries is trained")
    parser.add_argument("--corpus", type=Path, help="a tokenised corpus to read instead of a source")
    parser.add_argument("--train", action="store_true", help="measure what of a training step is waiting, instead")
    parser.add_argument("--config", default="squeezebert", help="what is trained")
    parser.add_argument("--devices", type=int, default=8, help="CPU devices that train")
    parser.add_argument("--batch", type=int, default=16, help="rows of a step, on all devices together")
    parser.add_argument("--workers", type=int, default=0, help="processes that make the batches; 0: a thread")
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args(argv)
    if options.train:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", options.devices)
    elif hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    vocabulary = WordPiece(path=options.vocabulary) if options.vocabulary else WordPiece(vocab_size=8000)
    with tempfile.TemporaryDirectory() as name:
        directory, results = Path(name), []
        data = Data(source=options.source, tokenizer=vocabulary)
        if options.corpus is None and options.train:
            tokenize(data, directory / "corpus")
        elif options.corpus is None:
            results.append(measure_tokenisation(data, directory))
        corpus = Corpus.open(options.corpus or directory / "corpus")
        if options.train:
            return int(not measure_waiting(options, corpus, directory))
        results += measure_batches(corpus, directory)
    print_table(results)
    return int(not all(result.reached for result in results))


if __name__ == "__main__":
    sys.exit(main())
