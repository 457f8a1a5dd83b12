"""English prose that every machine with this package has: the documentation inside the Python installation.

The source is `pydoc_data.topics` and the docstrings over 80 characters of the standard library and of the installed
numeric packages. They are read with `ast`: nothing is imported or downloaded. One module (or topic) is one document,
with one paragraph per line.

`paragraphs` cuts text at blank lines and at changes of indentation and removes reStructuredText marks. It keeps a
paragraph of at least six words that starts with a capital or a quote, ends like a sentence and is 97 % letters, spaces
and ordinary punctuation. That drops code, doctests, signatures, parameter tables and headings. `documents` drops
repeated paragraphs and modules with fewer than four remaining paragraphs.
"""

import ast
import functools
import importlib.util
import itertools
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = "embedded:python"
PACKAGES = ("jax", "numpy", "scipy", "flax", "optax", "orbax", "matplotlib", "grain")
FEWEST_WORDS = 6

_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}
_MARKS = (
    (re.compile(r":[a-zA-Z:+-]+:`~?([^`<]*?)(?: ?<[^`]*>)?`"), r"\1"),  # :func:`name`
    (re.compile(r"`([^`<]+?) ?<[^`]*>`_+"), r"\1"),  # `title <address>`_
    (re.compile(r" ?\[\d+\]_|\|(?=\w)|(?<=\w)\|"), ""),  # footnotes, substitutions
    (re.compile(r"`+|(?<!\w)\*{1,2}(?=\w)|(?<=\w)\*{1,2}(?!\w)"), ""),  # code, emphasis
    (re.compile(r"\s+"), " "),
)
_NOT_PROSE = re.compile(r"[^A-Za-z ,.;:'\"()?!\-]")
_START = re.compile(r"[\"'(]?[A-Z]")
_END = re.compile(r"[.!?:][\"')]*$")


@functools.cache  # a corpus reads them three times, and parsing the packages takes seconds
def documents() -> tuple[str, ...]:
    """Return all documents, one paragraph per line; equal versions of the packages give equal documents."""
    previous: set[str] = set()
    result = []
    for texts in itertools.chain(_topics(), map(_docstrings, _modules())):
        fresh = [p for text in texts for p in paragraphs(text) if not (p in previous or previous.add(p))]
        if len(fresh) >= 4:
            result.append("\n".join(fresh))
    return tuple(result)


def paragraphs(text: str) -> Iterator[str]:
    """Yield a docstring's paragraphs of prose, without markup, one line each."""
    for _, lines in itertools.groupby(text.expandtabs().splitlines(), key=_indentation):
        paragraph = " ".join(line.strip() for line in lines)
        if paragraph.count(" ") < FEWEST_WORDS - 1:
            continue
        for pattern, replacement in _MARKS:
            paragraph = pattern.sub(replacement, paragraph)
        paragraph = re.sub(r":+$", ":", paragraph.strip())
        if (
            len(paragraph.split()) >= FEWEST_WORDS
            and _START.match(paragraph)
            and _END.search(paragraph)
            and len(_NOT_PROSE.findall(paragraph)) <= (1 - 0.97) * len(paragraph)
        ):
            yield paragraph


def module_paragraphs(path: Path) -> list[str]:
    """Return the paragraphs of prose in a Python file's docstrings."""
    return [paragraph for text in _docstrings(path) for paragraph in paragraphs(text)]


def _indentation(line: str) -> int:
    """Return the indentation of a line, or -1 for a blank line or a heading's underline, which both end a paragraph."""
    return len(line) - len(line.lstrip()) if any(map(str.isalnum, line)) else -1


def _modules() -> Iterator[Path]:
    roots = [Path(sysconfig.get_path("stdlib"))]
    for name in PACKAGES:
        specification = importlib.util.find_spec(name)
        if specification is not None:
            roots += map(Path, specification.submodule_search_locations or ())
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if not _SKIPPED.intersection(inside.parts) and inside.parts[0] != "pydoc_data":
                yield path


def _docstrings(path: Path) -> list[str]:
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes, which as errors would hide modules
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates and files for other Pythons
        return []
    return [text for text in _of_node(tree) if len(text) > 80]


def _of_node(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    if text := ast.get_docstring(node):
        yield text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_node(child)


def _topics() -> Iterator[Iterable[str]]:
    path = Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"
    if not path.is_file():  # some distributions leave it out
        return
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from ([text] for _, text in sorted(ast.literal_eval(node.value).items()))
