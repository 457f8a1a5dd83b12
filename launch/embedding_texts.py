"""Write short texts, whose vectors a student learns from a teacher: sentences, headings and sections.

python launch/embedding_texts.py OUT SOURCE[:MOST] … [--questions SOURCE[:MOST] …]

A source is a text file (.txt, .gz or .xz; "= = = Title = = =" begins an article), a folder of HTML pages, a folder with
WordNet's files data.noun, data.verb and so on, or SQuAD's train-v1.1.json, whose texts are its questions. Of the
sources after --questions, only texts that end with a question mark count. OUT/train.jsonl and OUT/dev.jsonl (every
100th text) have the column `text`. No text occurs twice. Of a source with more than MOST texts (30,000), those with the
least hashes are kept.
"""

import argparse
import gzip
import hashlib
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

from title_sections import read_pairs, write

LEAST, LONGEST = 10, 240  # characters of a text
MOST = "30000"  # texts of a source
SECTION = 240  # characters of a section's beginning, about 55 tokens
DEV = 100  # of so many texts one is for development
OPEN = {".xz": lzma.open, ".gz": gzip.open}
END = re.compile(r"(?<=[.!?][\"'”’)])\s+|(?<=[.!?])\s+(?=[\"'“‘(]?[A-Z0-9])")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; a cut after an abbreviation does no harm here."""
    yield from END.split(" ".join(text.split()))


def read_file(file: Path) -> Iterator[str]:
    """Yield the sentences and titles of a text file."""
    with OPEN.get(file.suffix, open)(file, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            for part in re.split(r"= (?:= )+(.*?) (?:= )+", line):
                yield from sentences(part)


def read_pages(folder: Path) -> Iterator[str]:
    """Yield the headings, the sentences and the beginning of each section of a folder's HTML pages."""
    for _, heading, text in read_pairs(folder):
        yield heading
        yield from sentences(text)
        yield f"{heading}. {text}"[:SECTION].rsplit(" ", 1)[0]


def read_wordnet(folder: Path) -> Iterator[str]:
    """Yield the definitions and the examples of WordNet."""
    for file in sorted(folder.rglob("data.*")):
        for line in file.read_text(encoding="utf-8").splitlines():
            gloss = line.partition(" | ")[2]
            yield re.sub(r"\s*;?\s*\"[^\"]*\"", "", gloss).strip()
            yield from re.findall(r'"([^"]*)"', gloss)


def read_squad(file: Path) -> Iterator[str]:
    """Yield the questions of a file of SQuAD."""
    for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            yield from (" ".join(asked["question"].split()) for asked in paragraph["qas"])


def read(source: Path) -> Iterator[str]:
    """Yield the texts of a source."""
    if source.suffix == ".json":
        return read_squad(source)
    if source.is_file():
        return read_file(source)
    return read_wordnet(source) if next(source.rglob("data.noun"), None) else read_pages(source)


def order(text: str) -> int:
    """Return a number for a text that its hash decides."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def main() -> None:
    """Write the files and print how many texts each source and each file has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--questions", nargs="+", default=[], metavar="SOURCE")
    args = parser.parse_args()
    chosen: dict[str, int] = {}
    for name, end in [(name, "") for name in args.sources] + [(name, "?") for name in args.questions]:
        source, most = Path(name.partition(":")[0]), int(name.partition(":")[2] or MOST)
        if not source.exists():
            parser.error(f"{source} does not exist. Name a file or a folder.")
        found = {text for text in read(source) if LEAST <= len(text) <= LONGEST and re.search("[a-z]{3}", text)}
        found = {text for text in found if text.endswith(end)}
        kept = sorted((order(text), text) for text in found - chosen.keys())[:most]
        print(f"{source}: {len(kept):,} texts of {len(found):,}")
        chosen |= {text: number for number, text in kept}
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("train", "dev"):
        part = [text for text, number in chosen.items() if (number % DEV == 0) == (name == "dev")]
        write(args.out / f"{name}.jsonl", [json.dumps({"text": text}) for text in sorted(part, key=chosen.__getitem__)])


if __name__ == "__main__":
    main()
