"""The user's own questions: a row of a table each, with its paragraph and its answer, in columns that `own` names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.tasks import fields
from bertzoo.tasks.custom import Own, rows
from bertzoo.tasks.squad import Answer, Question, checked
from bertzoo.tasks.squad_tasks import Asked, SpanTask, Split


def task(own: Own) -> SpanTask:
    """The task of the files and columns that `own` names."""
    return SpanTask(
        name="own",
        nulls=own.unanswerable,
        read=lambda split, directory: read(own, split, directory),
        dev=bool(own.dev),
    )


def read(own: Own, split: Split, directory: Path | str) -> Asked:
    """The questions of a split; raises UserError naming file and line.

    Where no column says where an answer starts, it is where it occurs first; one that does not occur starts nowhere,
    and is scored but cannot be learnt. A test set may lack answers.
    """
    table = own.open(split, directory)
    hidden = split == "test" and own.answer not in table.columns
    wanted = [own.question, own.context, *([] if hidden else [own.answer, *filter(None, [own.start])])]
    wanted += filter(None, [own.id])
    questions, ambiguous = [], 0
    for nth, (place, row) in enumerate(rows(table, wanted)):
        found = dict(zip(wanted, row, strict=True))
        context = fields.filled(found[own.context], place, own.context)
        text = fields.filled(found[own.question], place, own.question)
        key = _key(found[own.id], place, own.id) if own.id else str(nth)
        answers = () if hidden else _answers(own, found, context, place)
        if not (answers or own.unanswerable or split == "test"):
            raise UserError(
                f"{place} has no answer in the column {own.answer!r}: give one, leave the row out, or set"
                " own.unanswerable where questions may have none"
            )
        ambiguous += bool(answers and not own.start and _again(context, answers[0]))
        impossible = not answers and own.unanswerable
        questions.append(Question(key, text, context, answers, impossible, context, place))
    return Asked(checked(questions, table.name), ambiguous, hidden)


def _answers(own: Own, found: dict[str, Any], context: str, place: str) -> tuple[Answer, ...]:
    """Those of one row: a text, or a list of them, and as many starts where a column has these."""
    texts = [fields.text(cell, place, own.answer) for cell in _several(found[own.answer])]
    if not any(text.strip() for text in texts):
        return ()
    if not own.start:
        stripped = [text.strip() for text in texts if text.strip()]
        places = [context.find(text) for text in stripped]
        return tuple(Answer(text, None if at < 0 else at) for text, at in zip(stripped, places, strict=True))
    starts = [_start(cell, place, own.start) for cell in _several(found[own.start])]
    if len(starts) != len(texts):
        raise UserError(f"{place} has {len(texts)} answers in {own.answer!r} and {len(starts)} in {own.start!r}")
    return tuple(Answer(text, start) for text, start in zip(texts, starts, strict=True))


def _key(cell: Any, place: str, column: str) -> str:
    return str(cell) if type(cell) is int else fields.filled(cell, place, column)


def _several(cell: Any) -> Sequence[Any]:
    if cell is None:
        return []
    return cell if isinstance(cell, list | tuple) else [cell]


def _start(cell: Any, place: str, column: str) -> int:
    number = fields.number(cell, place, column)
    if not number.is_integer():
        raise UserError(f"{place} has {cell!r} in the column {column!r}, which is not the number of a character")
    return int(number)


def _again(context: str, answer: Answer) -> bool:
    return answer.start is not None and context.find(answer.text, answer.start + 1) >= 0
