"""Speed of the input pipeline on one core: tokenising, packing and batches.

    python -m benchmarks speed.input_pipeline                                   the embedded documentation
    python -m benchmarks speed.input_pipeline --source 'books/*.txt.xz' [--vocabulary vocab.txt]
    python -m benchmarks speed.input_pipeline --corpus DIRECTORY                a tokenised corpus; skips tokenising

Shows wall clock and processor time, as other work on the machine slows only the former. Fails if a target is missed.
"""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from benchmarks.lib import results
from bertzoo.data.corpus.reader import Corpus
from bertzoo.data.corpus.tokenize import tokenize
from bertzoo.data.mask import Masking
from bertzoo.data.pack import RowPlan, Sentence, SentencePacking, plan_rows
from bertzoo.data.pipeline import Batches
from bertzoo.data.settings import Data
from bertzoo.data.sources.pieces import cut_pieces
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece

BATCH, LENGTH, PREDICTIONS = 256, 128, 20
SENTENCES: tuple[Sentence, ...] = ("none", "nsp", "sop")


def measure(
    name: str, unit: str, target: float | None, amount: float, work: Callable[[], object], repeats: int
) -> dict[str, Any]:
    """The best speed of several runs of some work on `amount` units, by wall clock and by processor time."""
    wall, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    by_clock, by_processor = (round(amount / min(times), 1) for times in (wall, processor))
    row = {"on one core": name, "unit": unit, "target": target, "wall clock": by_clock, "processor time": by_processor}
    return row | {"met": None if target is None else by_processor >= target}


def measure_tokenisation(data: Data, directory: Path) -> dict[str, Any]:
    """Megabytes of text a second from the source's files to finished shards, with the vocabulary ready."""
    pieces = cut_pieces(data.parts, heldout=data.heldout, piece_bytes=data.piece_bytes)
    texts = [document for piece in pieces for document in piece.documents]
    if not data.tokenizer.path:
        trained = tokenizer.build(data.tokenizer, lambda: iter(texts))
        tokenizer.save(trained, data.tokenizer, directory / "vocabulary")
        vocabulary = directory / "vocabulary" / "vocab.txt"
        data = replace(data, tokenizer=replace(data.tokenizer, path=str(vocabulary)))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    return measure("tokenise", "MB/s", None, megabytes, lambda: tokenize(data, directory / "corpus", workers=1), 1)


def measure_batches(corpus: Corpus, directory: Path) -> list[dict[str, Any]]:
    """Packing for every sentence objective, then sentence-order batches with every kind of masking."""
    rows = []
    sentences = corpus.manifest.splits["train"].sentences
    plans: dict[Sentence, RowPlan] = {}
    for sentence in SENTENCES:

        def pack(sentence: Sentence = sentence) -> None:
            folder = Path(tempfile.mkdtemp(dir=directory))
            options: dict[str, Any] = {"sentence": sentence, "max_length": LENGTH, "seed": 0, "directory": folder}
            plans[sentence] = plan_rows(corpus, "train", SentencePacking(), **options)

        rows.append(measure(f"pack, {sentence}", "sentences/s", 300_000, sentences, pack, repeats=2))
    shape: dict[str, int] = {"max_length": LENGTH, "max_predictions": PREDICTIONS, "seed": 0}
    for kind in get_args(get_type_hints(Masking)["kind"]):
        batches = Batches(corpus, "train", plans["sop"], Masking(kind=kind), **shape)
        steps, size = max(1, min(40, batches.rows // BATCH)), min(BATCH, batches.rows)

        def read(batches: Batches = batches, steps: int = steps, size: int = size) -> None:
            for step in range(steps):
                batches.batch(step, size)

        target = 20_000 if kind == "token" else None
        name = f"batches of {size} x {LENGTH}, sop, {kind}"
        rows.append(measure(name, "examples/s", target, steps * size, read, repeats=5))
    return rows


def main() -> None:
    """Measure and write the result."""
    parser = results.parser("input_pipeline", __doc__)
    parser.add_argument("--source", default=Data().source)
    parser.add_argument("--vocabulary", default="", help="a vocab.txt; without it, one of 8,000 entries is trained")
    parser.add_argument("--corpus", type=Path, help="a tokenised corpus to read instead of a source")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    vocabulary = WordPiece(path=args.vocabulary) if args.vocabulary else WordPiece(vocab_size=8000)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if args.corpus is None:
            rows.append(measure_tokenisation(Data(source=args.source, tokenizer=vocabulary), directory))
        rows += measure_batches(Corpus.open(args.corpus or directory / "corpus"), directory)
    results.write(args.out, [], {"speeds": rows})
