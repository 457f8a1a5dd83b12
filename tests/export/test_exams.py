"""exam.json: a device is asked the examples that a model was scored on, and what it says scores what it should."""

import json
from collections.abc import Sequence

import numpy as np
import pytest
from asking import TOKENIZER, question
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.export.check import device_cases
from bertzoo.export.check.task_score import Labels, Questions
from bertzoo.tasks import squad_tasks, windows
from bertzoo.tasks.answers import Decoding, decode
from bertzoo.tasks.encode import encode
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.squad import Answer
from bertzoo.tasks.squad_tasks import SpanTask
from bertzoo.tasks.task import Example, Task
from bertzoo.tasks.windows import Windowing

CONTEXTS = [
    "The leader was John Smith (1895-1943), born in Japan. Who was in Japan's leader's Café?",
    "Who leads Japan?",
    " ",  # of no piece
    "Japan's leader, born in Smith: John was the leader who was John.",
]
ANSWERS = ["John Smith", "Japan", "Japan", "John"]
LENGTH = 20


def through_json(exam: device_cases.Exam) -> device_cases.Exam:
    return json.loads(json.dumps(exam))


def quiz(nulls: bool, answers: Sequence[str] = ANSWERS) -> Questions:
    asked = [
        question(context, key=f"q{index}")._replace(answers=(Answer(answer, None),))
        for index, (context, answer) in enumerate(zip(CONTEXTS, answers, strict=True))
    ]
    if nulls:
        asked[1] = asked[1]._replace(answers=(), impossible=True)
    rows = windows.make(asked, TOKENIZER, Windowing(max_length=16, stride=4, max_question=3), labels=False)
    assert len(rows.windows) > 6
    task = SpanTask(name="squad", nulls=nulls, read=lambda *_: squad_tasks.Asked(asked))
    decoding = Decoding(candidates=5, longest=6, nulls=nulls, threshold=-1.5)
    return Questions(task=task, split="dev", whole=9, rows=rows, decoding=decoding)


def random_outputs(found: Questions, joint: bool, seed: int) -> list[dict[str, np.ndarray]]:
    """As a file gives them, (1,...) each, of one row."""
    draw = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return draw.normal(0, 3, shape).astype(np.float32)

    if not joint:
        return [{name: normal(1, LENGTH) for name in ("start_logits", "end_logits")} for _ in found.rows.windows]
    made = []
    for _ in found.rows.windows:
        starts = normal(1, LENGTH)
        best = np.argsort(-starts, axis=-1)[:, :6].astype(np.int32)
        ends = {"starts": best, "end_logits": normal(1, 6, LENGTH), "null_logit": normal(1, 1)}
        made.append({"start_logits": starts, **ends})
    return made


def written(found: Questions, outputs: list[dict[str, np.ndarray]]) -> tuple[device_cases.Exam, dict[str, float]]:
    """The exam, and the scores of these outputs as `scored` has them."""
    slots = [Slot(np.array([row]), 16) for row in reversed(range(len(found.rows.windows)))]  # in an order of their own
    batches = [found.rows.batch(slot, 1) for slot in slots]
    given = [{name: batch[name] for name in ("input_ids", "attention_mask")} for batch in batches]
    read = found.read(slots, outputs[::-1])
    return through_json(found.exam(device_cases.asked(slots, given), read)), found.scores(read)


def of_one(outputs: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    return [{name: array[0] for name, array in output.items()} for output in outputs]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("joint", [False, True])
def test_questions_score_on_a_device_what_they_do_here(nulls: bool, joint: bool) -> None:
    """The file's own outputs, which are right, and others, which score what a model's would here."""
    found = quiz(nulls)
    ours, others = (random_outputs(found, joint, seed) for seed in (0, 3))
    best = [answer.best for answer in decode(found.rows, device_cases.candidates(of_one(ours)), found.decoding)]
    found = quiz(nulls, best)
    exam, here = written(found, ours)
    _, there = written(found, others)
    assert here["f1"] > there["f1"]
    points = device_cases.points(exam, of_one(others))
    assert points is not None and (points.examples, points.phone, points.here) == (4, there, here)
    assert exam["rows"][0]["signature"] == "length_16" and len(exam["rows"][0]["inputs"]["input_ids"]) == 16
    assert (
        exam["rows"][1]["inputs"]["input_ids"] == found.rows.batch(Slot(np.array([1]), 16), 1)["input_ids"][0].tolist()
    )


def test_of_questions_in_part_those_are_scored_that_are_whole() -> None:
    """By their own definition: the questions before the one that is cut, and the windows of these alone."""
    found = quiz(False)
    outputs, others = (random_outputs(found, False, seed) for seed in (0, 4))
    exam, _ = written(found, outputs)
    of_question = [window.question for window in found.rows.windows]
    first = of_question.count(0)
    assert first > 1
    with pytest.raises(UserError, match=mentioning(1, first)):
        device_cases.check(exam, 1)
    device_cases.check(exam, 0)
    for count, whole in ((first, 1), (first + 1, 2), (first + 2, 3), (len(of_question), 4)):
        device_cases.check(exam, count)
        points = device_cases.points(exam, of_one(others[:count]))
        rows = [{name: array[0] for name, array in output.items()} for output in others]
        answered = decode(found.rows, rows, found.decoding)[:whole]
        expected = found.task.score(found.rows.questions[:whole], answered, -1.5)
        if count == first + 2:  # the question without a row is before the one that is cut, and is not counted with it
            whole, expected = 2, found.task.score(found.rows.questions[:2], answered[:2], -1.5)
        assert points is not None and (points.examples, points.phone) == (whole, expected), count
    assert device_cases.points(exam, of_one(others[:1])) is None and device_cases.points(exam, []) is None


WORDS = [("the", "leader", "was"), ("John", "Smith", "was", "born", "in", "Japan"), ("Japan",)]
TAGS = [(1, 0, 1), (0, 0, 1, 1, 1, 2), (2,)]


def test_tags_score_on_a_device_what_they_do_here() -> None:
    """With words of several pieces, and ones that were cut off, which no device can get right."""
    metrics, labels = ("word_accuracy", "entity_f1"), ("B-A", "O", "B-B")
    task = Task(name="own", kind="tokens", metrics=metrics, read=lambda *_: None, labels=labels)
    examples = [
        Example(str(index), " ".join(words), None, tags, words)
        for index, (words, tags) in enumerate(zip(WORDS, TAGS, strict=True))
    ]
    rows = encode(examples, TOKENIZER, 7, "tokens")
    found = Labels(task=task, split="dev", examples=examples, whole=3, rows=rows, scale=1.0)
    slots = [Slot(np.array([row]), 8) for row in (2, 0, 1)]
    given = [{"input_ids": rows.batch(slot, 1)["input_ids"]} for slot in slots]
    draw = np.random.default_rng(0)
    ours, others = ([{"logits": draw.normal(size=(1, 8, 3))} for _ in slots] for _ in range(2))
    exam = through_json(found.exam(device_cases.asked(slots, given), found.read(slots, ours)))
    assert sum(tag < 0 for row in exam["rows"] for tag in row["tags"]) > 0
    said = [others[slot] for slot in (1, 2, 0)]
    points = device_cases.points(exam, of_one(said))
    assert points == (3, found.scores(found.read(slots, others)), found.scores(found.read(slots, ours)))
    assert points.phone != points.here and points.phone["word_accuracy"] > 0


@pytest.mark.parametrize(
    ("joint", "name", "bad"), [(False, "end_logits", np.nan), (True, "start_logits", np.inf), (True, "starts", 1 << 30)]
)
def test_what_is_not_finite_scores_nothing(joint: bool, name: str, bad: float) -> None:
    """Nor does a start that is no position."""
    found = quiz(True)
    outputs = random_outputs(found, joint, 0)
    exam, here = written(found, outputs)
    outputs[-1][name][0, 3] = bad
    points = device_cases.points(exam, of_one(outputs))
    assert points is not None and points.here == here
    assert points.phone.keys() == here.keys() and all(np.isnan(score) for score in points.phone.values())
