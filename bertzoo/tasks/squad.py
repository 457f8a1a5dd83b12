"""Read the questions of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018) from JSON or Parquet."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core.documents import DocumentError, fitting, read_json
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.data.hashes import is_heldout
from bertzoo.tasks import fields, readers

Version = Literal["1.1", "2.0"]
_JSON = {"train": "train-v{}.json", "dev": "dev-v{}.json"}
_SPLITS = {"train": "train", "dev": "validation"}  # Hugging Face's names of the splits
# Patterns of core/documents.
_ARTICLES = {"data": [{"paragraphs": [{"context": str, "qas": [dict]}]}]}
_QUESTION = {"id": str, "question": str, "answers?": list | None, "is_impossible?": bool}
_ANSWER = {"text": str, "answer_start": int}
_ADVICE = (
    "Use SQuAD's layout: in JSON data, paragraphs, qas, answers, in a table a question, context and answers per row."
)


class Answer(NamedTuple):
    """An answer's text, and the offset of its first character in the paragraph, or None if the text is not there."""

    text: str
    start: int | None


class Question(NamedTuple):
    """A question on a paragraph.

    key: id of the question.
    context: the paragraph.
    answers: answers of several annotators; the first is the target in training.
    impossible: whether the question is known to have no answer.
    article: title of the paragraph's article, by which `hold_out` chooses.
    location: name of the question in messages, such as its file and id.
    """

    key: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    impossible: bool
    article: str
    location: str

    @property
    def texts(self) -> tuple[str, str]:
        return self.text, self.context


def load_squad(source: Path | str, split: Literal["train", "dev"], version: Version) -> list[Question]:
    """Return the questions of a split, in the order of the file.

    source: a file, or a directory with the published JSON or Parquet files. Raises UserError if the file is missing or
    damaged, or if its questions do not fit `version`: 1.1 has no unanswerable question, 2.0 has some.
    """
    file = _find(on_disk(source, "the data set", "Copy the files to this machine and name the copy."), split, version)
    questions = read_questions(file)
    if version == "2.0" and not any(question.impossible for question in questions):
        raise UserError(
            f"{file} has only answerable questions, unlike SQuAD 2.0. Use the task squad1, or name a file of SQuAD 2.0."
        )
    if version == "1.1" and (first := next((q for q in questions if q.impossible), None)):
        raise UserError(f"{first.location} has no answer, which SQuAD 1.1 does not allow. Use the task squad2.")
    return questions


def read_questions(file: Path) -> list[Question]:
    """Return the questions of a JSON or Parquet file; raises UserError if it is missing or damaged."""
    if file.suffix != readers.PARQUET:
        return check_questions(list(_read_json(file)), str(file))
    table = readers.read_table(file)
    rows = (dict(zip(table.columns, cells, strict=True)) for _, cells in table.valid_rows(table.columns))
    return check_questions(list(_from_rows(rows, str(file))), str(file))


def hold_out(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Return the questions to train on, and the questions to hold out.

    Articles are held out whole: about `share` (0 to 1) of all articles, chosen by hashes of their titles. Raises
    UserError if either list is empty.
    """
    held = {article for article in {q.article for q in questions} if is_heldout(article, share)}
    lists = [q for q in questions if q.article not in held], [q for q in questions if q.article in held]
    if not all(lists):
        raise UserError(
            f"squad.heldout = {share} of {len({q.article for q in questions})} articles leaves training or scoring "
            "without an article. Use another share."
        )
    return lists


def _find(path: Path, split: str, version: str) -> Path:
    if path.is_file():
        return path
    name = _JSON[split].format(version)
    if (path / name).is_file():
        return path / name
    files = sorted([*path.glob(f"{_SPLITS[split]}*.parquet"), *path.glob(f"*/{_SPLITS[split]}*.parquet")])
    if len(files) == 1:
        return files[0]
    if files:
        raise UserError(f"{path} holds {len(files)} files {_SPLITS[split]}*.parquet, not one. Name the one to read.")
    raise UserError(
        f"neither {path / name} nor {path}/{_SPLITS[split]}*.parquet exists. Add one of these files, or name the file "
        "itself."
    )


def check_questions(questions: list[Question], origin: str) -> list[Question]:
    """Return `questions`; raises UserError if there are none or two share an id. origin: the source, in messages."""
    if not questions:
        raise UserError(f"{origin} holds no question. Name another file.")
    locations: dict[str, str] = {}
    for question in questions:
        if question.key in locations:
            raise UserError(f"{question.location} has the same id as {locations[question.key]}. Make the ids unique.")
        locations[question.key] = question.location
    return questions


def _read_json(file: Path) -> Iterator[Question]:
    try:
        articles = read_json(file, _ARTICLES, f"Correct the file or download it again. {_ADVICE}")["data"]
    except FileNotFoundError as error:
        raise UserError(f"{file} does not exist. Correct data_dir.") from error
    for i, article in enumerate(articles):
        for j, paragraph in enumerate(article["paragraphs"]):
            location, title = f"{file} article {i} paragraph {j}", str(article.get("title", f"article {i}"))
            for k, record in enumerate(paragraph["qas"]):
                yield _question(record, paragraph["context"], title, location, f"question {k}")


def _question(record: dict[str, Any], context: Any, article: str, location: str, number: str) -> Question:
    try:
        listed = fitting(record, _QUESTION).get("answers") or []
        fitting(listed, [_ANSWER], "answers")
    except DocumentError as error:
        raise UserError(f"{location} {number}: {error}. {_ADVICE}") from error
    location = f"{location} question {record['id']}"
    key, text, paragraph = (
        fields.text(cell, location, name)
        for name, cell in (("id", record["id"]), ("question", record["question"]), ("context", context))
    )
    answers = tuple(Answer(fields.text(answer["text"], location, "text"), answer["answer_start"]) for answer in listed)
    impossible = record.get("is_impossible", record.get("answers") == [])
    if impossible and answers:
        raise UserError(
            f"{location} has is_impossible = true and the answer {answers[0].text[:50]!r}. Remove one of the two."
        )
    return Question(key, text, paragraph, answers, impossible, article, location)


def _from_rows(rows: Iterable[dict[str, Any]], origin: str) -> Iterator[Question]:
    """Yield the questions in Hugging Face's rows; a row has a list of answer texts and a list of starts."""
    for number, row in enumerate(rows):
        location = f"{origin} row {number}"
        answers = row.get("answers")
        columns = [answers.get(name) if isinstance(answers, dict) else None for name in ("text", "answer_start")]
        if not all(isinstance(column, list) for column in columns):
            raise UserError(f"{location} has no answers with text and answer_start. Use a data set in SQuAD's layout.")
        pairs = zip(*columns, strict=False)
        record = {**row, "answers": [{"text": text, "answer_start": start} for text, start in pairs]}
        yield _question(record, row.get("context"), str(row.get("title", "")), origin, f"row {number}")
