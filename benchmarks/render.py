"""Write the measured parts of docs/*.md from docs/data.

    python -m benchmarks render

A page has blocks that end in `<!-- end -->`: `<!-- table FILE.NAME -->` starts a table of docs/data/FILE.json, and
`<!-- source FILE -->` its command, software and machine. All else on a page is written by hand.
"""

import argparse
import json
import re
from pathlib import Path

from benchmarks.lib import results, tables

PAGES = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"(<!-- (source|table) ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render(text: str, data: Path = results.DATA) -> str:
    """The text of a page with every block written anew."""

    def block(match: re.Match[str]) -> str:
        file, _, name = match[3].partition(".")
        record = json.loads((data / f"{file}.json").read_text(encoding="utf-8"))
        if match[2] == "table":
            inside = tables.table(record["tables"][name])
        else:
            inside = "; ".join([f"Measured by `{record['command']}`", *record["context"]]) + "."
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
