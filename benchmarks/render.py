"""Write the measured parts of docs/*.md from docs/data.

    python -m benchmarks render

A page has blocks that end in `<!-- end -->`: `<!-- table FILE.NAME -->` starts a table of docs/data/FILE.json, and
`<!-- source FILE -->` its command, software and machine. All else on a page is written by hand.
"""

import argparse
import functools
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.lib import results, tables

PAGES = Path(__file__).parents[1] / "docs"
COUNTED = {"plans": "benchmarks.speed.plans"}  # result files whose tables a function `tables` of this module computes
BLOCK = re.compile(r"(<!-- (source|table) ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@functools.cache
def read(file: Path) -> tuple[str, Mapping[str, Sequence[tables.Row]]]:
    """The source of a result file, and its tables."""
    record = json.loads(file.read_text(encoding="utf-8"))
    source = "; ".join([f"Measured by `{record['command']}`", *record["context"]]) + "."
    if file.stem in COUNTED:
        return source, importlib.import_module(COUNTED[file.stem]).tables(record)
    return source, record["tables"]


def render(text: str, data: Path = results.DATA) -> str:
    """The text of a page with every block written anew."""

    def block(match: re.Match[str]) -> str:
        file, _, name = match[3].partition(".")
        source, measured = read(data / f"{file}.json")
        inside = tables.table(measured[name]) if match[2] == "table" else source
        return f"{match[1]}{inside}\n{match[4]}"

    return BLOCK.sub(block, text)


def main() -> None:
    """Write every page that differs from its data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (rendered := render(text)) != text:
            page.write_text(rendered, encoding="utf-8")
            print(f"wrote {page}")
