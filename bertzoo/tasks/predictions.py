"""Convert predictions to records, a dict per example, and records to JSONL, TSV or SQuAD's JSON."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.tasks.answers import Answered
from bertzoo.tasks.task import Example

NO_VALUE = "-"  # in a TSV, for the tag of a word that was cut off and for an unknown start or end
_COLUMNS = ("index", "label", "labels", "answer", "start", "end", "probability", "null_odds", "number", "tags")
_ENTITY = ("index", "start", "end", "label", "score", "text")
_SPACE = re.compile(r"\s")
Records = Iterable[dict[str, Any]]


def label_records(
    examples: Sequence[Example], labels: Sequence[str], values: Any, chances: Any, cut: Any
) -> Iterator[dict[str, Any]]:
    """Yield a record per example, in order.

    A record has the example's key as `index`, the prediction and, if the text was cut, `cut`. The kind of task decides
    the keys of the prediction:
    classification: `label`, its `probability`, and `probabilities` {label: probability}. `label` is None if no label
    reaches its threshold, and `probability` is then that of the likeliest one.
    multi_label: `labels`, those predicted, and `probabilities` {label: probability}.
    regression: `number`.
    tokens: `words`, `tags` and `probabilities`, lists by word. A word that was cut off has None as tag and probability.

    values: the prediction for each example: a label's index or -1 (classification), 1 or 0 for each label
    (multi_label), a number (regression), or an array of tag indices by word, -1 for a word that was cut off (tokens).
    chances: for each example, the probability of every label. For tokens, the probability of each word's tag, negative
    for a word that was cut off. Not used for regression.
    cut: for each example, whether its text was cut.
    """
    for nth, example in enumerate(examples):
        record: dict[str, Any] = {"index": example.key}
        if example.words is not None:
            record["words"] = list(example.words)
            record["tags"] = [labels[tag] if tag >= 0 else None for tag in values[nth].tolist()]
            record["probabilities"] = [round(p, 6) if p >= 0 else None for p in chances[nth].tolist()]
        elif labels:
            if np.ndim(values[nth]):
                record["labels"] = [label for label, chosen in zip(labels, values[nth], strict=True) if chosen]
            else:
                index = int(values[nth])
                chance = max(chances[nth]) if index < 0 else chances[nth][index]
                record |= {"label": None if index < 0 else labels[index], "probability": float(chance)}
            record["probabilities"] = dict(zip(labels, map(float, chances[nth]), strict=True))
        else:
            record["number"] = float(values[nth])
        if cut[nth]:
            record["cut"] = True
        yield record


def answer_records(answered: Iterable[Answered]) -> Iterator[dict[str, Any]]:
    """Yield a record per question, in order.

    index: id of the question.
    answer: text of the answer.
    start, end: offsets of the answer in the paragraph; None if unknown.
    probability: probability of the answer among the question's candidates; None if unknown.
    null_odds: score of "no answer"; absent if unknown.
    """
    for answer in answered:
        chosen = answer.selected
        start = None if chosen is None else chosen.at
        record: dict[str, Any] = {"index": answer.key, "answer": answer.text, "start": start}
        record["end"] = None if start is None else start + len(answer.text)
        record["probability"] = None if chosen is None else chosen.probability
        if answer.null_odds is not None:
            record["null_odds"] = answer.null_odds
        yield record


def squad_json(records: Records) -> Iterator[str]:
    """Yield one string, the JSON that SQuAD's scripts read: the answers by question id."""
    answers = {record["index"]: record["answer"] for record in records}
    yield json.dumps(answers, indent=1, ensure_ascii=False)


def jsonl(records: Records) -> Iterator[str]:
    """Yield a line of JSON per record."""
    return (json.dumps(record, ensure_ascii=False) for record in records)


def tsv(records: Records) -> Iterator[str]:
    """Yield a header with the names of columns, and a line per record; tabs and line breaks in cells become spaces.

    For multi_label, a `;` separates the predicted labels, and every label has a column with its probability. Entities
    have a line each.
    """
    for nth, record in enumerate(records):
        if "entities" in record:
            if not nth:
                yield "\t".join(_ENTITY)
            for entity in record["entities"]:
                yield "\t".join(_cell((record | entity)[name]) for name in _ENTITY)
            continue
        cells = [(name, record[name]) for name in _COLUMNS if name in record]
        if "labels" in record:
            cells = [(name, ";".join(value) if name == "labels" else value) for name, value in cells]
            cells += record["probabilities"].items()
        if not nth:
            yield "\t".join(_cell(name) for name, _ in cells)
        yield "\t".join(_cell(value) for _, value in cells)


FORMATS: dict[str, Callable[[Records], Iterator[str]]] = {".jsonl": jsonl, ".tsv": tsv, ".json": squad_json}


def output_format(name: str) -> str:
    """Return the suffix of the output file `name`; raises UserError if it is not in FORMATS."""
    for suffix in FORMATS:
        if name.endswith(suffix):
            return suffix
    raise UserError(f"--output={name} has an unknown suffix. Use .jsonl or .tsv, or .json for answers to questions.")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(NO_VALUE if tag is None else tag for tag in value)
    if value is None:
        return NO_VALUE
    if isinstance(value, str):
        return _SPACE.sub(" ", value)
    return f"{value:.6f}" if isinstance(value, float) else str(value)
