"""The prose inside the Python installation: which parts of a docstring are kept."""

import csv
import runpy
import sysconfig
from collections import Counter
from pathlib import Path

from bertzoo.core import config
from bertzoo.data.sources import embedded
from bertzoo.data.sources.embedded import paragraphs
from bertzoo.finetuning.settings import Finetune

DOCSTRING = """Return the sum of :func:`~math.fsum` and ``x`` over *all* the elements [1]_.

    Parameters
    ----------
    x : array_like
        Input values, which must be finite numbers of one kind.
        They may be nested.
    axis : {0, 1}, optional

    >>> total(x_1=[1, 2, 3], axis=0, keepdims=False)
    6

    .. math:: \\sum_{i=0}^{n} x_i = y_{i+1}^2 \\cdot \\alpha_{jk} \\over 2^{n+1}

    See the `documentation of sums <https://example.org>`_ for what may happen::

        for i in range(10): total(i)
"""


def test_prose_is_kept_without_code_tables_and_markup():
    assert list(paragraphs(DOCSTRING)) == [
        "Return the sum of math.fsum and x over all the elements.",
        "Input values, which must be finite numbers of one kind. They may be nested.",
        "See the documentation of sums for what may happen:",
    ]


def test_text_unlike_prose_is_dropped():
    for text in (
        "too short to keep.",
        "lower case starts no sentence that we would keep.",
        "No full stop ends this line of plain words",
        "Value = {a: 1, b_2: [3, 4]} <x> == $y$ / #z @w __init__().",
    ):
        assert list(paragraphs(text)) == []


def test_documents_are_modules_without_repetition(tmp_path, monkeypatch):
    sentence = "This is sentence number {} of the module and it is long enough: it takes more than eighty characters."
    words = ["one", "two", "three", "four", "five"]
    body = "".join(f'def f_{w}():\n    """{sentence.format(w)}"""\n' for w in words)
    body += '"\\d"\n'  # an invalid escape sequence is a warning, which here is an error, and must not hide the module
    for name in ("a.py", "b.py"):  # the same text twice: the second is dropped
        (tmp_path / name).write_text(f'"""Short."""\n{body}')
    (tmp_path / "c.py").write_text("not python at all (")
    (tmp_path / "d.py").write_text(f'"""{sentence.format("six")}"""')  # too few paragraphs
    monkeypatch.setattr(embedded, "_modules", lambda: sorted(tmp_path.glob("*.py")))
    monkeypatch.setattr(embedded, "_topics", lambda: iter(()))
    assert embedded.documents.__wrapped__() == ("\n".join(sentence.format(w) for w in words),)


def test_the_standard_library_contains_prose(monkeypatch):
    root = Path(sysconfig.get_path("stdlib"))
    modules = [root / name for name in ("argparse.py", "decimal.py", "pickletools.py", "subprocess.py")]
    monkeypatch.setattr(embedded, "_modules", lambda: modules)
    documents = embedded.documents.__wrapped__()
    lines = [line for document in documents for line in document.split("\n")]
    assert len(documents) > 30 and len(lines) == len(set(lines)) > 500  # the language reference and four modules
    assert sum(len(line) for line in lines) > 100_000
    assert not any(">>>" in line or "``" in line for line in lines)
    assert documents == embedded.documents.__wrapped__()


def test_the_demos_labelled_set_is_balanced_with_disjoint_splits(tmp_path: Path) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "launch" / "demo_labels.py"))["main"](tmp_path)
    parts = {}
    for name in ("train", "dev"):
        with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            parts[name] = [(row["text"], row["label"]) for row in csv.DictReader(file)]
    for rows in parts.values():
        counts = Counter(label for _, label in rows)
        assert set(counts) == {"arrays", "text", "files"} and len(set(counts.values())) == 1
    assert len(parts["train"]) > 600 and len(parts["dev"]) > 150
    assert not {text for text, _ in parts["train"]} & {text for text, _ in parts["dev"]}
    recipe = config.load(Finetune, ["demo_finetune"])
    assert (recipe.task, recipe.own.train, recipe.own.dev) == ("own", "train.csv", "dev.csv")
