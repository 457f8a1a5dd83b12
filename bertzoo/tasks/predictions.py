"""Predictions as records, one an example, and as JSONL or TSV."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.tasks.answers import Answered
from bertzoo.tasks.task import Example

CUT = "-"  # in a TSV, the tag of a word that was cut off, and a place that is none
PREDICTIONS = ".json"  # SQuAD's: answers by the ids of the questions
_COLUMNS = ("index", "label", "answer", "start", "end", "probability", "null_odds", "number", "tags")
_SPACE = re.compile(r"\s")
SUFFIXES = (".jsonl", ".tsv", PREDICTIONS)


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


def answers(answered: Iterable[Answered]) -> Iterator[dict[str, Any]]:
    """In the order of the questions: index, the answer, its first character and the one after its last in the text, its
    probability among the candidates, and where there may be none the odds of that; without an answer it is empty, and
    its places are None, as its probability is where that is not told.
    """
    for each in answered:
        given = each.given
        start = None if given is None else given.at
        found: dict[str, Any] = {"index": each.key, "answer": each.text, "start": start}
        found["end"] = None if start is None else start + len(each.text)
        found["probability"] = None if given is None else given.probability
        if each.null_odds is not None:
            found["null_odds"] = each.null_odds
        yield found


def predictions(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The lines of SQuAD's JSON of answers by id."""
    table = {each["index"]: each["answer"] for each in found}
    yield json.dumps(table, indent=1, ensure_ascii=False)


def jsonl(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A JSON object a line."""
    return (json.dumps(each, ensure_ascii=False) for each in found)


def tsv(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines under a header: index and label and probability, or number, or the tags separated by spaces, or all of an
    answer; every tab and line break in these is a space.
    """
    for nth, each in enumerate(found):
        if not nth:
            yield "\t".join(_columns(each))
        yield "\t".join(_cell(each[name]) for name in _columns(each))


def form(name: str) -> str:
    """The suffix of a file to write; raises UserError for one of another form."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        raise UserError(f"--output={name}: name it .jsonl or .tsv, or for answers to questions {PREDICTIONS}")
    return suffix


def _columns(each: dict[str, Any]) -> list[str]:
    return [name for name in _COLUMNS if name in each]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(CUT if tag is None else tag for tag in value)
    if value is None:
        return CUT
    if isinstance(value, str):
        return _SPACE.sub(" ", value)
    return f"{value:.6f}" if isinstance(value, float) else str(value)
