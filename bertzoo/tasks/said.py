"""Predictions as records, one an example, and as JSONL or TSV."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertzoo.errors import UserError
from bertzoo.tasks.task import Example

CUT = "-"  # in a TSV, the tag of a word that was cut off
SUFFIXES = (".jsonl", ".tsv")


def records(
    examples: Sequence[Example], labels: Sequence[str], values: Any, chances: Any, cut: Any
) -> Iterator[dict[str, Any]]:
    """In the order of the examples: index, and label with probability and all probabilities, or number, or words with
    their tags and probabilities; `cut` where the text was cut.

    values: places in the labels, numbers where there are no labels, or of every word its tag's place, -1 where it was
    cut off, whose tag is None; chances: of every label, or of each word's tag; cut: whether a text was cut.
    """
    for nth, example in enumerate(examples):
        found: dict[str, Any] = {"index": example.key}
        if example.words is not None:
            found["words"] = list(example.words)
            found["tags"] = [labels[tag] if tag >= 0 else None for tag in values[nth].tolist()]
            found["probabilities"] = [round(p, 6) if p >= 0 else None for p in chances[nth].tolist()]
        elif labels:
            place = int(values[nth])
            found |= {"label": labels[place], "probability": float(chances[nth][place])}
            found["probabilities"] = dict(zip(labels, map(float, chances[nth]), strict=True))
        else:
            found["number"] = float(values[nth])
        if cut[nth]:
            found["cut"] = True
        yield found


def jsonl(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A JSON object a line."""
    return (json.dumps(each, ensure_ascii=False) for each in found)


def tsv(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines under a header: index and label and probability, or number, or the tags separated by spaces."""
    for nth, each in enumerate(found):
        if not nth:
            yield "\t".join(_columns(each))
        yield "\t".join(_cell(each[name]) for name in _columns(each))


def form(name: str) -> str:
    """The suffix of a file to write; raises UserError for one of another form."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        raise UserError(f"--output={name}: name it {' or '.join(SUFFIXES)} after what it is to hold")
    return suffix


def _columns(each: dict[str, Any]) -> list[str]:
    return ["index", *(name for name in ("label", "probability", "number", "tags") if name in each)]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(CUT if tag is None else tag for tag in value)
    return f"{value:.6f}" if isinstance(value, float) else str(value)
