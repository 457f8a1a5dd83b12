"""docs/howto/extend.md names files that exist, and names that these files hold."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "extend.md").read_text(encoding="utf-8")
# A paragraph or an item of a list, with the paths in it; NAME and KIND are the reader's.
ITEMS = re.split(r"\n\n|\n *(?:-|\d\.) ", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
PATH = re.compile(r"`([\w/]+(?:/|\.)[\w/.]+)`")
NAME = re.compile(r"`(_?[A-Za-z]+[A-Z_][A-Za-z_]*|_?[A-Z]{4,}|_rows)`")


def files_of(item: str) -> list[Path]:
    """The files and folders that an item names, in the package or the repository."""
    names = [name for name in PATH.findall(item) if not re.search("NAME|model.toml", name)]
    return [ROOT / name if (ROOT / name).exists() else ROOT / "bertzoo" / name for name in names]


NAMES = [(name, item) for item in ITEMS for name in NAME.findall(item) if files_of(item)]


def test_the_files_exist() -> None:
    files = [file for item in ITEMS for file in files_of(item)]
    assert len(files) > 25
    assert not [file for file in files if not file.exists()]


@pytest.mark.parametrize(("name", "item"), NAMES, ids=[name for name, _ in NAMES])
def test_a_file_of_the_item_holds_the_name(name: str, item: str) -> None:
    texts = [
        file.read_text(encoding="utf-8")
        for path in files_of(item)
        for file in ([path] if path.is_file() else path.rglob("*.py"))
    ]
    assert any(re.search(rf"\b{name}\b", text) for text in texts)


def test_the_names_are_seen() -> None:
    assert {"LEAVES", "PRINTED", "WORD_KINDS", "GlueLayout", "per_tensor", "SUFFIXES"} <= {name for name, _ in NAMES}
