"""The examples that a fine-tuned model was scored on, as another device is asked them, in JSON, and what it scores.

An exam has `kind`, `rows`, each with its signature, its inputs and what its output is scored by, and what the file said
here of them all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.export.litert.litert import signature
from bertzoo.tasks import metrics, squad_tasks
from bertzoo.tasks.answers import Answered, Decoding, decode
from bertzoo.tasks.paragraphs import Paragraphs, Pieces, Window, max_context
from bertzoo.tasks.rows import Rows, Slot
from bertzoo.tasks.squad import Answer, Question
from bertzoo.tasks.task import Example, Task

Exam = dict[str, Any]
Outputs = Sequence[Mapping[str, np.ndarray]]  # one of every row


class Points(NamedTuple):
    """How many examples were asked whole, and what the device and the file here score on them."""

    examples: int
    phone: dict[str, float]
    here: dict[str, float]


def asked(slots: Sequence[Slot], given: Outputs) -> list[Exam]:
    """Signature and inputs of all rows, in their order; every slot has one, `given` (1,L) each."""
    found = [dict[str, Any]() for _ in slots]
    for slot, row in zip(slots, given, strict=True):
        inputs = {name: array[0].tolist() for name, array in row.items()}
        found[int(slot.rows[0])] = {"signature": signature(slot.length), "inputs": inputs}
    return found


def of_labels(task: Task, scale: float, examples: Sequence[Example], rows: Sequence[Exam], logits: np.ndarray) -> Exam:
    """Of classes, or of numbers, which `scale` gives of the logits; logits: (rows, C), the file's here."""
    made = [
        row | {"label": example.label, "logits": each.tolist()}
        for row, example, each in zip(rows, examples, logits, strict=True)
    ]
    return {"kind": task.kind, "metrics": task.metrics, "scale": scale, "rows": made}


def of_words(
    task: Task, encoded: Rows, examples: Sequence[Example], rows: Sequence[Exam], tags: Sequence[np.ndarray]
) -> Exam:
    """Of words; tags: the file's here, -1 of a word that was cut off."""
    assert encoded.first is not None
    made = []
    for row, start, length, example, said in zip(rows, encoded.starts, encoded.lengths, examples, tags, strict=True):
        first = np.flatnonzero(encoded.first[start : start + length]).tolist()
        made.append(row | {"label": example.label, "first": first, "tags": said.tolist()})
    return {"kind": task.kind, "metrics": task.metrics, "labels": task.labels, "rows": made}


def of_questions(
    windows: Paragraphs, nulls: bool, decoding: Decoding, rows: Sequence[Exam], answered: Sequence[Answered]
) -> Exam:
    """Of questions in windows; answered: by the file here, in the questions' order."""
    places = {text: place for place, text in enumerate(windows.pieces)}
    paragraphs = [{"text": text, "offsets": pieces.offsets.tolist()} for text, pieces in windows.pieces.items()]
    questions = [
        {
            "key": question.key,
            "text": question.text,
            "paragraph": places[question.context],
            "answers": question.answers,
            "impossible": question.impossible,
            "said": [said.text, said.best, said.null_odds],
        }
        for question, said in zip(windows.questions, answered, strict=True)
    ]
    made = [
        row | {"window": [window.question, window.context, window.first, window.size, window.number]}
        for row, window in zip(rows, windows.windows, strict=True)
    ]
    decoded = {name: getattr(decoding, name) for name in Decoding.__dataclass_fields__}
    head = {"kind": "span", "nulls": nulls, "decoding": decoded}
    return head | {"paragraphs": paragraphs, "questions": questions, "rows": made}


def check(exam: Exam, count: int | None) -> None:
    """Raise UserError where the first `count` rows are some, but hold no question whole."""
    rows = exam["rows"][:count]
    if exam["kind"] == "span" and rows and not _whole(exam, len(rows)):
        least = sum(row["window"][0] == rows[0]["window"][0] for row in exam["rows"])
        raise UserError(f"{len(rows)} rows hold no question whole, as the first has {least}: give at least that many")


def points(exam: Exam, outputs: Outputs) -> Points | None:
    """What is scored on the first rows, as many as there are outputs, one (...) each; None where that is nothing.

    The device's scores are NaN where an output is not finite.
    """
    rows, outputs = exam["rows"][: len(outputs)], candidates(outputs)
    scored = KINDS[exam["kind"]]
    finite = all(np.isfinite(array).all() for output in outputs for array in output.values())
    found = scored(exam, rows, outputs if finite else None) if rows else None
    return found if finite or found is None else found._replace(phone=dict.fromkeys(found.here, np.nan))


def _labels(exam: Exam, rows: Sequence[Exam], outputs: Outputs | None) -> Points:
    labels = np.asarray([row["label"] for row in rows])

    def score(logits: Any) -> dict[str, float]:
        said = logits[:, 0] * exam["scale"] if exam["kind"] == "regression" else logits.argmax(-1)
        return metrics.points(exam["kind"], exam["metrics"], (), said, labels)

    here = score(np.asarray([row["logits"] for row in rows]))
    return Points(len(rows), score(np.stack([output["logits"] for output in outputs])) if outputs else here, here)


def _words(exam: Exam, rows: Sequence[Exam], outputs: Outputs | None) -> Points:
    labels = [row["label"] for row in rows]

    def score(tags: Sequence[Sequence[int]]) -> dict[str, float]:
        return metrics.points("tokens", exam["metrics"], exam["labels"], tags, labels)

    def tags(row: Exam, output: Mapping[str, np.ndarray]) -> list[int]:
        said = output["logits"].argmax(-1)[row["first"]].tolist()
        return said + [-1] * (len(row["label"]) - len(said))

    here = score([row["tags"] for row in rows])
    phone = score([tags(row, output) for row, output in zip(rows, outputs, strict=True)]) if outputs else here
    return Points(len(rows), phone, here)


def _questions(exam: Exam, rows: Sequence[Exam], outputs: Outputs | None) -> Points | None:
    if not (kept := _whole(exam, len(rows))):
        return None
    windows, decoding = _windows(exam, rows, kept), Decoding(**exam["decoding"])

    def score(answered: Sequence[Answered]) -> dict[str, float]:
        return squad_tasks.score(exam["nulls"], windows.questions, answered, decoding.threshold)

    here = score([_said(exam["questions"][question]) for question in kept])
    if outputs is None:
        return Points(len(kept), here, here)
    given = [output for row, output in zip(rows, outputs, strict=True) if row["window"][0] in kept]
    phone = score(decode(windows, given, decoding))
    return Points(len(kept), phone, here)


def _said(question: Exam) -> Answered:
    text, best, odds = question["said"]
    return Answered(question["key"], text, best, odds, [])


def _whole(exam: Exam, count: int) -> dict[int, int]:
    """The questions all of whose rows are among the first `count`, each with its place among them; those without a row
    count as the last of these does.
    """
    here, all_of_it = (Counter(row["window"][0] for row in part) for part in (exam["rows"][:count], exam["rows"]))
    kept = [question for question in here if here[question] == all_of_it[question]]
    if not kept:
        return {}
    last = len(exam["questions"]) if count == len(exam["rows"]) else max(kept) + 1
    bare = [question for question in range(last) if question not in all_of_it]
    return {question: place for place, question in enumerate(sorted([*kept, *bare]))}


def _windows(exam: Exam, rows: Sequence[Exam], kept: Mapping[int, int]) -> Paragraphs:
    """The windows of the questions that are kept, in their order."""
    texts = [paragraph["text"] for paragraph in exam["paragraphs"]]
    nothing = np.zeros(0, np.int32)  # of ids and words, which no answer needs
    pieces = {
        paragraph["text"]: Pieces(nothing, np.asarray(paragraph["offsets"], np.int64).reshape(-1, 2), nothing, nothing)
        for paragraph in exam["paragraphs"]
    }
    asked = [exam["questions"][question] for question in kept]
    questions = [
        Question(
            key=each["key"],
            text=each["text"],
            context=texts[each["paragraph"]],
            answers=tuple(Answer(*answer) for answer in each["answers"]),
            impossible=each["impossible"],
            article="",
            place=f"question {each['key']}",
        )
        for each in asked
    ]
    parts: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        question, _, first, size, _ = row["window"]
        parts.setdefault(question, []).append((first, size))
    owners = {
        question: max_context(parts[question], len(pieces[questions[place].context].offsets))
        for question, place in kept.items()
        if question in parts
    }
    windows = [
        Window(kept[question], context, first, size, number, owners[question], 0, 0)
        for question, context, first, size, number in (row["window"] for row in rows)
        if question in kept
    ]
    return Paragraphs(questions=questions, windows=windows, pieces=pieces)


def candidates(outputs: Outputs) -> list[Mapping[str, np.ndarray]]:
    """The outputs of rows as they are decoded: a joint head's by its search, others as they are."""
    if not outputs or "null_logit" not in outputs[0]:
        return list(outputs)
    return [_searched(output) for output in outputs]


def _searched(output: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    import jax  # whose import takes a second

    from bertzoo.nn import span_candidates

    names = ("start_logits", "starts", "end_logits", "null_logit")
    start_BL, starts_BK, end_BKL, null_B1 = (jax.numpy.asarray(output[name])[None] for name in names)
    found = jax.device_get(span_candidates(start_BL, starts_BK, end_BKL, null_B1[:, 0]))
    return {name: array[0] for name, array in found.items()}


KINDS = {"classification": _labels, "regression": _labels, "tokens": _words, "span": _questions}
