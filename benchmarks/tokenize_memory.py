"""Memory and speed of `bertzoo tokenize` for corpora of several sizes, of the same text over and over with changes.

    python benchmarks/tokenize_memory.py --source 'books/*.txt.xz' --megabytes 100 1000 --vocabulary vocab.txt

Every document of a repetition ends in its number, so that none equals another. Shown are the peaks of resident memory
of the process that reads, and of the largest of those that tokenise; without a vocabulary the former trains one first.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bertzoo.data.sources.mixture import MixturePart
from bertzoo.data.sources.pieces import readings

LINES = 20  # of a document: those of the source may be whole books
CHILD = """
import resource, sys
from bertzoo.cli.main import main
code = main(sys.argv[1:])
peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print("peaks", *peaks, file=sys.stderr)
sys.exit(code)
"""


def documents(name: str) -> Iterator[str]:
    """The source again and again, every time with other endings."""
    for repetition in itertools.count():
        number = 0
        for reading in readings([MixturePart(source=name, text_field="text")], 0.5):
            for document in reading.origin.documents():
                lines = document.split("\n")
                for start in range(0, len(lines), LINES):
                    number += 1
                    yield "\n".join([*lines[start : start + LINES], f"This was number {number} of {repetition}."])


def write(path: Path, name: str, size: int) -> None:
    """A file of about `size` bytes."""
    written = 0
    with open(path, "w", encoding="utf-8") as file:
        for document in documents(name):
            written += file.write(document + "\n\n")
            if written >= size:
                return


def measure(text: Path, corpus: Path, vocabulary: str, workers: int) -> tuple[float, dict, int, int]:
    """Seconds, what the verb printed, and the two peaks in bytes."""
    options = [f"--data.tokenizer.path={vocabulary}"] if vocabulary else []
    command = [
        sys.executable,
        "-c",
        CHILD,
        "tokenize",
        str(text),
        str(corpus),
        f"--workers={workers}",
        "--json",
        *options,
    ]
    start = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.monotonic() - start
    own, children = (1024 * int(number) for number in done.stderr.split()[-2:])
    return seconds, json.loads(done.stdout), own, children


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default="embedded:python")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--vocabulary", default="", help="a vocab.txt; without it, one is trained")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print("| text, MB | documents | seconds | MB/s | reading, MB | one worker, MB |")
    print("|---:|---:|---:|---:|---:|---:|")
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as name:
            text = Path(name) / "text.txt"
            write(text, options.source, megabytes * 10**6)
            seconds, told, own, child = measure(text, Path(name) / "corpus", options.vocabulary, options.workers)
        count = sum(split["documents"] for split in told["splits"].values())
        speed = f"{seconds:.0f} | {megabytes / seconds:.1f}"
        print(f"| {megabytes} | {count:,} | {speed} | {own / 1e6:.0f} | {child / 1e6:.0f} |", flush=True)


if __name__ == "__main__":
    main()
