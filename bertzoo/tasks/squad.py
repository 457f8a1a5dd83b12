"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): questions on paragraphs, from their JSON, Parquet or TFDS."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk
from bertzoo.data.hashes import is_heldout

Version = Literal["1.1", "2.0"]
TFDS = "tfds:"
_JSON = {"train": "train-v{}.json", "dev": "dev-v{}.json"}
_PARTS = {"train": "train", "dev": "validation"}  # what Hugging Face and TFDS call the splits


class Answer(NamedTuple):
    """A text, and the character of the paragraph at which it begins; None where it is not in the paragraph."""

    text: str
    start: int | None


class Question(NamedTuple):
    """A question on a paragraph; `place` is what messages call it, `key` what a submission names it by.

    The answers are the annotators', of which the first is learnt; without any the question may be `impossible`, that
    is known to have none in the paragraph.
    """

    key: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    impossible: bool
    article: str
    place: str


def load(source: Path | str, split: Literal["train", "dev"], version: Version) -> list[Question]:
    """The questions of a split, in order, from a file, from a directory that holds it under its published name, as JSON
    or Parquet, or from `tfds:squad`.

    Raises UserError naming file, paragraph and question where something is amiss, where a file of version 1.1 has
    questions without an answer or one of 2.0 has none, and saying where to put a file that is missing.
    """
    if str(source).startswith(TFDS):
        origin, questions = source, _read_tfds(str(source), split)
    else:
        origin = _find(on_disk(source, "the data set", "copy it to this machine and name the copy"), split, version)
        questions = read(origin)
    if version == "2.0" and not any(question.impossible for question in questions):
        raise UserError(
            f"{origin} has no question without an answer, which SQuAD 2.0 has: take squad1, or name a file of 2.0 or "
            f"{TFDS}squad/v2.0"
        )
    if version == "1.1" and (first := next((q for q in questions if q.impossible), None)):
        raise UserError(f"{first.place} has no answer, which SQuAD 1.1 does not have: take the task of SQuAD 2.0")
    return questions


def read(file: Path) -> list[Question]:
    """The questions of one JSON or Parquet file; raises UserError as `load` does."""
    questions = list(_rows(file) if file.suffix == ".parquet" else _json(file))
    return checked(questions, str(file))


def hold_out(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """The questions on some articles, and those on about a `share` of them, which the hash of an article's title picks.

    Raises UserError where either would be none.
    """
    held = {article for article in {q.article for q in questions} if is_heldout(article, share)}
    parts = [q for q in questions if q.article not in held], [q for q in questions if q.article in held]
    if not all(parts):
        raise UserError(f"a share of {share} of {len({q.article for q in questions})} articles leaves none on one side")
    return parts


def _find(path: Path, split: str, version: str) -> Path:
    if path.is_file():
        return path
    name = _JSON[split].format(version)
    if (path / name).is_file():
        return path / name
    found = sorted([*path.glob(f"{_PARTS[split]}*.parquet"), *path.glob(f"*/{_PARTS[split]}*.parquet")])
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{path} holds {len(found)} files {_PARTS[split]}*.parquet, where one is read: name one itself")
    raise UserError(
        f"{path / name} does not exist: put SQuAD's file of that name there, or one named {_PARTS[split]}*.parquet, or"
        " name a file itself"
    )


def checked(questions: list[Question], origin: str) -> list[Question]:
    """The questions; raises UserError where there is none, or two have one id."""
    if not questions:
        raise UserError(f"{origin} holds no question")
    places: dict[str, str] = {}
    for question in questions:
        if question.key in places:
            raise UserError(f"{question.place} has the id of {places[question.key]}: give every question its own")
        places[question.key] = question.place
    return questions


def _json(file: Path) -> Iterator[Question]:
    try:
        table = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise UserError(f"{file} does not exist") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: {error.reason}") from error
    except RecursionError as error:
        raise UserError(f"{file} is nested too deeply to be SQuAD's JSON") from error
    except ValueError as error:
        raise UserError(f"{file} is not JSON: {error}") from error
    for i, article in enumerate(_list(table, "data", str(file))):
        place = f"{file} article {i}"
        title = article.get("title", f"article {i}") if isinstance(article, dict) else ""
        for j, paragraph in enumerate(_list(article, "paragraphs", place)):
            where = f"{place} paragraph {j}"
            for k, asked in enumerate(_list(paragraph, "qas", where)):
                yield _question(asked, _text(paragraph, "context", where), str(title), where, f"question {k}")


def _question(asked: Any, context: str, article: str, place: str, number: str) -> Question:
    key = _text(asked, "id", f"{place} {number}")
    place = f"{place} question {key}"
    given = [] if asked.get("answers") is None else _list(asked, "answers", place)
    answers = tuple(Answer(_text(a, "text", place), _start(a, place)) for a in given)
    impossible = asked.get("is_impossible", asked.get("answers") == [])
    if not isinstance(impossible, bool):
        raise UserError(f"{place} has is_impossible = {impossible!r}, which is neither true nor false")
    if impossible and answers:
        raise UserError(f"{place} is_impossible but has the answer {answers[0].text[:50]!r}")
    return Question(key, _text(asked, "question", place), context, answers, impossible, article, place)


def _start(answer: Any, place: str) -> int:
    start = answer.get("answer_start")
    if type(start) is not int:
        raise UserError(f"{place} has answer_start = {start!r}, which is not the number of a character")
    return start


def _list(table: Any, field: str, place: str) -> list[Any]:
    value = table.get(field) if isinstance(table, dict) else None
    if not isinstance(value, list):
        raise UserError(f"{place} has no list {field!r}: SQuAD's files have data, paragraphs, qas and answers")
    return value


def _text(table: Any, field: str, place: str) -> str:
    value = table.get(field) if isinstance(table, dict) else None
    if not isinstance(value, str):
        raise UserError(f"{place} has no text {field!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place} holds half a surrogate pair in {field!r}, which is not text") from error
    return value


def _rows(file: Path) -> Iterator[Question]:
    """The rows of Hugging Face's `squad` and `squad_v2`."""
    try:
        import pyarrow  # pyright: ignore[reportMissingImports]
        import pyarrow.parquet  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise UserError(
            f"{file} is read with pyarrow, which is missing: `pip install '.[parquet]'` in the checkout adds it"
        ) from error
    try:
        rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    return _flat(rows, str(file))


def _read_tfds(source: str, split: str) -> list[Question]:
    """The examples of `tfds:squad`, read by index and without TensorFlow; `squad/v2.0` is the second version."""
    from bertzoo.data.sources import tfds

    examples = tfds.open_split(source.removeprefix(TFDS), _PARTS[split])
    return checked(list(_flat((_decoded(row) for row in examples), source)), source)


def _decoded(value: Any) -> Any:
    """What TFDS gives (bytes, arrays) as JSON would have it."""
    if isinstance(value, dict):
        return {name: _decoded(inner) for name, inner in value.items()}
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")  # which is refused as text, with the row's number
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_decoded(inner) for inner in value] if isinstance(value, list) else value


def _flat(rows: Iterable[Any], origin: str) -> Iterator[Question]:
    """Questions from flat rows, whose answers are a table of two columns."""
    for number, row in enumerate(rows):
        place = f"{origin} row {number}"
        answers = row.get("answers") if isinstance(row, dict) else None
        columns = [answers.get(name) if isinstance(answers, dict) else None for name in ("text", "answer_start")]
        if not all(isinstance(column, list) for column in columns):
            raise UserError(f"{place} has no answers with text and answer_start: name a file like those of squad")
        pairs = zip(*columns, strict=False)
        asked = {**row, "answers": [{"text": text, "answer_start": start} for text, start in pairs]}
        yield _question(asked, _text(row, "context", place), str(row.get("title", "")), origin, f"row {number}")
