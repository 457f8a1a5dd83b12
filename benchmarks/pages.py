"""Sections of docs/results.md, each written by one script between its marks."""

from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results.md"
END = "<!-- end -->"


def write_section(script: str, section: str, page: Path = RESULTS) -> None:
    """Put a script's section in the place of the one before, or at the end of the page, which need not be there."""
    begin = f"<!-- benchmarks/{script} -->"
    text = page.read_text(encoding="utf-8") if page.exists() else "# Results\n"
    if begin not in text:
        text += f"\n{begin}\n{END}\n"
    before, rest = text.split(begin, 1)
    page.write_text(f"{before}{begin}\n{section.strip()}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
