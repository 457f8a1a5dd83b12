"""Write pairs of a title and its section from folders of HTML pages, to train and to score a search.

python launch/title_sections.py OUT FOLDER … [--heldout FOLDER …]

OUT/train.jsonl and OUT/dev.jsonl (every 50th page) have the sections of each FOLDER: `text` is the heading, `partner`
the text under it. OUT/retrieval has the held-out folders as `bertzoo evaluate --task=retrieval` reads them.
"""

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

HEADINGS = ("h1", "h2", "h3", "h4")
SKIPPED = ("script", "style", "nav", "pre", "table", "title")
LEAST, MOST = 80, 1000  # characters of a section
COMMON = 5  # a heading that occurs more often, such as "Options", names no section
DEV = 50  # of so many pages one is for development


class Sections(HTMLParser):
    """Collects the headings of a page, each with the text up to the next heading."""

    def __init__(self) -> None:
        super().__init__()
        self.sections: list[list[str]] = []
        self._heading, self._skipped = False, 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in SKIPPED
        if tag in HEADINGS and not self._skipped:
            self.sections.append(["", ""])
            self._heading = True

    def handle_endtag(self, tag: str) -> None:
        self._skipped = max(0, self._skipped - (tag in SKIPPED))
        self._heading = self._heading and tag not in HEADINGS

    def handle_data(self, data: str) -> None:
        if self.sections and not self._skipped:
            self.sections[-1][not self._heading] += data


def read_pairs(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield (page, heading, text) of every section that is long enough, in the order of the pages' names."""
    for page in sorted(folder.rglob("*.html")):
        parser = Sections()
        parser.feed(page.read_text(encoding="utf-8", errors="replace"))
        for heading, text in parser.sections:
            heading = re.sub(r"^[\d.]+\s|[¶#]\s*$", "", " ".join(heading.split())).strip()
            text = " ".join(text.split())
            if len(heading) > 3 and len(text) >= LEAST:
                yield page, heading, text[:MOST]


def distinct(folders: list[Path]) -> list[tuple[Path, str, str]]:
    """Return the sections of folders without repeated texts, and without headings that occur more than COMMON times."""
    found = {text: (page, heading, text) for folder in folders for page, heading, text in read_pairs(folder)}
    often = Counter(heading.casefold() for _, heading, _ in found.values())
    return [each for each in found.values() if often[each[1].casefold()] <= COMMON]


def main() -> None:
    """Write the files and print how many pairs each has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--heldout", type=Path, nargs="+", default=[])
    args = parser.parse_args()
    if missing := [folder for folder in (*args.folders, *args.heldout) if not folder.is_dir()]:
        parser.error(f"{missing[0]} is not a folder. Name a folder of HTML pages.")
    args.out.mkdir(parents=True, exist_ok=True)
    lines: dict[str, list[str]] = {"train": [], "dev": []}
    seen = set()
    for page, heading, text in distinct(args.folders):
        seen.add(text)
        name = next(str(page.relative_to(folder)) for folder in args.folders if page.is_relative_to(folder))
        part = int(hashlib.sha256(name.encode()).hexdigest(), 16) % DEV
        lines["train" if part else "dev"].append(json.dumps({"text": heading, "partner": text}))
    for name, pairs in lines.items():
        write(args.out / f"{name}.jsonl", pairs)
    if args.heldout:
        sections = [section for section in distinct(args.heldout) if section[2] not in seen]
        queries = {heading: f"q{i}" for i, heading in enumerate(dict.fromkeys(heading for _, heading, _ in sections))}
        folder = args.out / "retrieval"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        write(folder / "corpus.jsonl", [json.dumps({"_id": f"d{i}", "text": s[2]}) for i, s in enumerate(sections)])
        write(folder / "queries.jsonl", [json.dumps({"_id": name, "text": text}) for text, name in queries.items()])
        judged = [f"{queries[heading]}\td{i}\t1" for i, (_, heading, _) in enumerate(sections)]
        write(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", *judged])


def write(file: Path, lines: list[str]) -> None:
    """Write lines and print their number."""
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{file}: {len(lines):,} lines")


if __name__ == "__main__":
    main()
