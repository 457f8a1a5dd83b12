"""Speed of the input pipeline: batches on one core, packing, and tokenisation, beside what they must reach.

    python benchmarks/input.py                                   the embedded documentation
    python benchmarks/input.py --source 'books/*.txt.xz' [--vocabulary vocab.txt]
    python benchmarks/input.py --corpus DIRECTORY                a tokenised corpus (tokenisation is then not measured)

The process binds itself to one core. Both clocks are shown: other work on the machine slows the wall clock, not the
processor's.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bertzoo.data import source, tokenizer
from bertzoo.data.corpus import Corpus
from bertzoo.data.mask import Masking
from bertzoo.data.pack import Plan, Sentence, SentencePacking, plan
from bertzoo.data.pipeline import Batches
from bertzoo.data.settings import Data
from bertzoo.data.tokenize import tokenize
from bertzoo.data.wordpiece import WordPiece

BATCH, LENGTH, PREDICTIONS = 256, 128, 20


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the table; speeds per second of the wall clock and of processor time."""

    name: str
    unit: str
    target: float | None
    wall: float
    processor: float


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
        for piece in source.pieces(data.parts, heldout=data.heldout, piece_bytes=data.piece_bytes)
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
    plans: dict[Sentence, Plan] = {}
    sentence: Sentence
    for sentence in ("none", "nsp", "sop"):

        def pack(sentence: Sentence = sentence) -> None:
            where = Path(tempfile.mkdtemp(dir=directory))
            plans[sentence] = plan(
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


def print_table(results: list[Result]) -> None:
    """A Markdown table."""
    print("| on one core | unit | target | wall clock | processor time | reached |")
    print("|---|---|---:|---:|---:|---|")
    for result in results:
        target = "" if result.target is None else f"{result.target:,.0f}"
        reached = "" if result.target is None else ("yes" if result.processor >= result.target else "NO")
        speeds = " | ".join(f"{s:,.0f}" if s >= 100 else f"{s:.2f}" for s in (result.wall, result.processor))
        print(f"| {result.name} | {result.unit} | {target} | {speeds} | {reached} |")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=Data().source)
    parser.add_argument("--vocabulary", default="", help="a vocab.txt; without it, one of 8,000 entries is trained")
    parser.add_argument("--corpus", type=Path, help="a tokenised corpus to read instead of a source")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    vocabulary = WordPiece(path=options.vocabulary) if options.vocabulary else WordPiece(vocab_size=8000)
    with tempfile.TemporaryDirectory() as name:
        directory, results = Path(name), []
        if options.corpus is None:
            results.append(measure_tokenisation(Data(source=options.source, tokenizer=vocabulary), directory))
        corpus = Corpus.open(options.corpus or directory / "corpus")
        print_table(results + measure_batches(corpus, directory))


if __name__ == "__main__":
    main()
