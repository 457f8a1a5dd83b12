"""Read the user's own questions from tables; [own] names the columns of questions, paragraphs and answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError
from bertzoo.tasks import fields
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.squad import Answer, Question, check_questions
from bertzoo.tasks.squad_tasks import SpanTask, SplitName
from bertzoo.tasks.task import SplitExamples


def question_task(own: CustomFiles) -> SpanTask:
    """Return the question answering task with the files and columns that the config table [own] names."""

    def read(split: SplitName, directory: Path | str) -> SplitExamples:
        return read_question_set(own, split, directory)

    return SpanTask(name="own", nulls=own.unanswerable, read=read, dev=bool(own.dev))


def read_question_set(own: CustomFiles, split: SplitName, directory: Path | str) -> SplitExamples:
    """Return the questions of a split; raises UserError naming file and line.

    Without the column `own.start`, an answer starts at its first occurrence in the paragraph. An answer that does not
    occur has the start None, and its question is scored but not trained on. A test set may lack answers.
    """
    table = own.open(split, directory)
    hidden = split == "test" and own.answer not in table.columns
    columns = [own.question, own.context, *([] if hidden else [own.answer, *filter(None, [own.start])])]
    columns += filter(None, [own.id])
    questions, ambiguous = [], 0
    for nth, (place, cells) in enumerate(table.valid_rows(columns)):
        row = dict(zip(columns, cells, strict=True))
        context = fields.nonblank(row[own.context], place, own.context)
        text = fields.nonblank(row[own.question], place, own.question)
        key = _key(row[own.id], place, own.id) if own.id else str(nth)
        answers = () if hidden else _answers(own, row, context, place)
        if not (answers or own.unanswerable or split == "test"):
            raise UserError(
                f"{place} has no answer in the column {own.answer!r}. Add an answer, remove the row, or set "
                "own.unanswerable if questions may have no answer."
            )
        if answers and not own.start and (start := answers[0].start) is not None:
            ambiguous += context.find(answers[0].text, start + 1) >= 0
        impossible = not answers and own.unanswerable
        questions.append(Question(key, text, context, answers, impossible, context, place))
    return SplitExamples(check_questions(questions, table.name), ambiguous=ambiguous, hidden=hidden)


def _answers(own: CustomFiles, row: dict[str, Any], context: str, place: str) -> tuple[Answer, ...]:
    """Return a table row's answers; raises UserError if the numbers of answers and of starts differ."""
    texts = [fields.text(cell, place, own.answer) for cell in _as_list(row[own.answer])]
    if not any(text.strip() for text in texts):
        return ()
    if not own.start:
        places = ((text.strip(), context.find(text.strip())) for text in texts if text.strip())
        return tuple(Answer(text, None if start < 0 else start) for text, start in places)
    starts = [_start(cell, place, own.start) for cell in _as_list(row[own.start])]
    if len(starts) != len(texts):
        raise UserError(
            f"{place} has {len(texts)} answers in {own.answer!r}, but {len(starts)} in {own.start!r}. Give one start "
            "for each answer."
        )
    return tuple(Answer(text, start) for text, start in zip(texts, starts, strict=True))


def _key(cell: Any, place: str, column: str) -> str:
    return str(cell) if type(cell) is int else fields.nonblank(cell, place, column)


def _as_list(cell: Any) -> Sequence[Any]:
    if cell is None:
        return []
    return cell if isinstance(cell, list | tuple) else [cell]


def _start(cell: Any, place: str, column: str) -> int:
    number = fields.number(cell, place, column)
    if not number.is_integer():
        raise UserError(
            f"{place} has {cell!r} in the column {column!r}, which is not a character position. Use a whole number "
            "from 0."
        )
    return int(number)
