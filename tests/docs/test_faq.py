"""Every message of ours that a page quotes still exists: a changed message must change the page too.

A message is put together from strings of the package and from values. So every plain word of a quotation must stand in
the fixed text of a string that matches, or come from the command above it. The tutorials and the guides quote output,
line by line: its tables' cells are strings of the package, and texts that a model reads stand in the page's commands.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertzoo.core import config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(<!-- third party -->\n)?^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
OURS = [block for foreign, block in BLOCK.findall(PAGE) if not foreign]
WORD = re.compile(r"(?<![\w/.'_=\\-])(?:[A-Za-z][a-z]+|[A-Z]{3,})(?![\w/_=-]|\.\w)")
# Words too common to count as the text of a string that has no other word and few parts.
COMMON = {"of", "to", "at", "in", "is", "are", "and", "the"}
# Names that fill a message.
VALUES = set(
    re.findall(r"\w+", "squeezebert limit free duplicate short train document accuracy masked sentence SIGTERM")
)
# Names that fill a line of output: figures, splits, tasks, events and labels.
NAMES = set(
    re.findall(
        r"\w+",
        "probabilities mlm sop nsp MLM SOP dev test own heldout logits parameters resumed stopped finished signal",
    )
)
NAMES |= set(
    re.findall(r"\w+", "MediaPipe s classifier distillation shards minutes texts arrays files ABSENT MASK hf first")
)
# Commands that a launcher prints, another program's line, a row of the data, tokens and their probabilities.
NOT_OURS = re.compile(r"\+ |\[Gloo\]|[^:]*,(label|arrays)$|    \S+ \d+%,|\S+ \d+\.\d%$")

PAGES = [*sorted((ROOT / "docs").glob("start/*.md")), *sorted((ROOT / "docs").glob("tutorials/*.md"))]
PAGES += [ROOT / "docs" / "transfer.md", ROOT / "docs" / "prune.md"]


def strings_of(file: Path) -> Iterator[tuple[str, ...]]:
    """The fixed parts of every string of a Python or shell file but docstrings."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".sh":
        for string in re.findall(r'(?<=\s)"([^"\n]+)"', text):
            yield tuple(filter(None, re.split(r"\$\w+|\$\{[^}]*\}|\$\(.*?\)", string)))
        return
    tree = ast.parse(text)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        values = node.values if isinstance(node, ast.JoinedStr) else [node]
        parts = [part.value for part in values if isinstance(part, ast.Constant)]
        if id(node) not in inside and parts and all(isinstance(part, str) for part in parts):
            yield tuple(map(str, parts)) if isinstance(node, ast.JoinedStr) else (str(parts[0]),)


SCRIPTS = sorted((ROOT / "launch").glob("*.*"))
STRINGS = {parts for file in [*(ROOT / "bertzoo").rglob("*.py"), *SCRIPTS] for parts in strings_of(file)}


def tells(parts: tuple[str, ...]) -> bool:
    """Whether a string has words enough to be recognised: two, or a part of a sentence that is not a common word."""
    words = re.findall(r"[A-Za-z]{2,}", " ".join(parts))
    bare = len(parts) == 1 and parts[0] == parts[0].strip(" ,:;()")
    few = len([part for part in parts if part.strip()]) < 4
    return len(words) > 1 or (len(words) == 1 and not bare and not (few and words[0] in COMMON))


TEXTS = {parts for parts in STRINGS if tells(parts)}
CELLS = {parts[0].strip() for parts in STRINGS if len(parts) == 1} | set(config.shipped())


def uncovered(quotation: str) -> set[str]:
    """The plain words of a quoted message that no string of the package holds."""
    command = "\n".join(line for line in quotation.splitlines() if line.startswith("$ "))
    message = " ".join(line for line in quotation.splitlines() if not line.startswith("$ "))
    message = message.removeprefix("bertzoo: ")
    covered: set[int] = set()
    for parts in TEXTS:
        if all(part in message for part in parts):
            for match in re.finditer("(.*?)".join(f"({re.escape(part)})" for part in parts), message):
                for group in range(1, 2 * len(parts), 2):
                    covered |= set(range(*match.span(group)))
    words = {match[0] for match in WORD.finditer(message) if not set(range(*match.span())) <= covered}
    return words - set(re.findall(r"\w+", command)) - VALUES


@functools.cache
def texts_of_commands(page: Path) -> str:
    """The commands of a page and the scripts of launch/, which hold the texts that a model reads."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    commands = [block for language, block in blocks if language != "text"]
    return "\n".join([*commands, *(script.read_text(encoding="utf-8") for script in SCRIPTS)])


def reworded(line: str, page: Path) -> set[str]:
    """The plain words of a line of output that neither the package nor the page's commands hold."""
    line = re.sub(r"^\[\d\] |^== |^(\w+ \d+%(, )?)+\t", "", line)
    if re.fullmatch(r"\W*[A-Z_]{2,}\W*", line):  # a placeholder that nobody has filled
        return {line}
    if NOT_OURS.match(line) or line.strip().removesuffix(" …") in texts_of_commands(page):
        return set()
    rest = "  ".join(cell for cell in re.split(" {2,}", line.strip()) if cell not in CELLS)
    words = uncovered(line) & set(WORD.findall(rest)) - NAMES
    return set() if words <= COMMON else words


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


QUOTED = [
    (page, line)
    for page in PAGES
    for block in re.findall(r"^```text\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line != "…"
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_quoted_output_exists(page: Path) -> None:
    assert not {line: words for name, line in QUOTED if name == page and (words := reworded(line, page))}


@pytest.mark.parametrize(
    "line",
    [
        "FILE",
        "bertzoo: stopped by SIGTERM after step 45, saved as runs/checkpoints/45; run the same command again to resume",
        "iteration 1 of 2: 372,608 -> 353,774 parameters, of at most 353,978 now and 335,347 in the end",
        "  f  512 -> 430 to 448, which alone saves 18,834",
        "after step 0  transfer, layer 1 of 2 begins: 100 steps of 128 x 16",
        "step 500/2000  heldout  cost 5.3850  mlm acc 0.155",
        "model  engine  precision  threads",
    ],
)
def test_output_that_nothing_prints_is_noticed(line: str) -> None:
    assert reworded(line, PAGES[0])
