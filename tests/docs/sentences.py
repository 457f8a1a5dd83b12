"""Find long sentences in Markdown: `python tests/docs/sentences.py [FILE …]`. Exit code 1 if there are any.

Without files: the README, the home page, docs/start and docs/tutorials. Code blocks, tables and headings do not count,
and code in a line counts as one word.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 30  # words
PAGES = ("README.md", "docs/index.md", "docs/start/*.md", "docs/tutorials/*.md")
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# A list item, a table row, a heading, a quotation, an HTML tag or an admonition begins a block of its own.
BLOCK = re.compile(r" *([-*+] |\d+\. |\||#|>|<|!!!)")
END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!et al\.)(?<=[.!?])[)\"”*]*\s+(?=[\"“(*]*[A-Z0-9`«])")


def blocks(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs and list items of a page with the number of their first line."""

    def blank(match: re.Match) -> str:
        return "\n" * match[0].count("\n")

    text, start = "", 0
    for number, line in enumerate([*COMMENT.sub(blank, FENCE.sub(blank, markdown)).splitlines(), ""], start=1):
        marker = BLOCK.match(line)
        if not line.strip() or marker:
            if text:
                yield start, text
            text = ""
        if line.strip() and not re.match(r" *([|#<]|!!!)", line):
            start = start if text else number
            text = f"{text} {line[marker.end() if marker else 0 :].strip()}".strip()


def long_sentences(markdown: str, limit: int = LIMIT) -> list[tuple[int, int, str]]:
    """Return every sentence above `limit` words: line of its paragraph, number of words, text."""
    found = []
    for line, text in blocks(markdown):
        text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]+`", "`code`", text))
        for sentence in END.split(text):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > limit:
                found.append((line, len(words), sentence))
    return found


def main(argv: list[str]) -> int:
    """Print the long sentences of the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--limit", type=int, default=LIMIT)
    args = parser.parse_args(argv)
    files = args.files or [file for pattern in PAGES for file in sorted(ROOT.glob(pattern))]
    failed = False
    for file in files:
        for line, words, sentence in long_sentences(file.read_text(encoding="utf-8"), args.limit):
            print(f"{file}:{line}: {words} words, more than {args.limit}: {sentence}")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
