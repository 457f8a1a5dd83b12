"""Every message of ours that docs/faq.md quotes still exists: a changed message must change the page too.

A message is put together from strings of the package and from values. So every plain word of a quotation must stand in
the fixed text of a string that matches, or come from the command above it.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(<!-- third party -->\n)?^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
OURS = [block for foreign, block in BLOCK.findall(PAGE) if not foreign]
WORD = re.compile(r"(?<![\w/.'_=-])[A-Za-z][a-z]+(?![\w/_=-]|\.\w)")
# Names that fill a message.
VALUES = {"squeezebert", "limit", "free", "duplicate", "short", "train", "document", "accuracy", "masked", "sentence"}


def fixed_texts() -> set[tuple[str, ...]]:
    """The fixed parts of every string in the package but docstrings, each string as a tuple."""
    texts = set()
    for file in (ROOT / "bertzoo").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            parts = tuple(
                part.value for part in values if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
            if id(node) not in inside and len(re.findall(r"[A-Za-z]{2,}", " ".join(parts))) > 1:
                texts.add(parts)
    return texts


TEXTS = fixed_texts()


def uncovered(quotation: str) -> set[str]:
    """The plain words of a quoted message that no string of the package holds."""
    command = "\n".join(line for line in quotation.splitlines() if line.startswith("$ "))
    message = " ".join(line for line in quotation.splitlines() if not line.startswith("$ "))
    message = message.removeprefix("bertzoo: ")
    covered: set[int] = set()
    for parts in TEXTS:
        if all(part in message for part in parts) and (
            match := re.search("(.*?)".join(f"({re.escape(part)})" for part in parts), message)
        ):
            for group in range(1, 2 * len(parts), 2):
                covered |= set(range(*match.span(group)))
    words = {match[0] for match in WORD.finditer(message) if not set(range(*match.span())) <= covered}
    return words - set(re.findall(r"\w+", command)) - VALUES


def test_the_page_has_25_messages() -> None:
    assert len(BLOCK.findall(PAGE)) == 25 == len(re.findall(r"^### ", PAGE, re.MULTILINE))
    assert len(OURS) == 20


@pytest.mark.parametrize("quotation", OURS, ids=lambda text: text.splitlines()[0])
def test_a_quoted_message_exists(quotation: str) -> None:
    assert not uncovered(quotation)


@pytest.mark.parametrize("quotation", OURS, ids=lambda text: text.splitlines()[0])
def test_another_wording_is_noticed(quotation: str) -> None:
    command, message = quotation.split("\n", 1)
    words = [word for word in WORD.findall(message) if word not in command and len(word) > 3 and word != "bertzoo"]
    assert len(words) > 1
    assert all(uncovered(f"{command}\n{re.sub(rf'{word}', 'reworded', message, count=1)}") for word in words)
