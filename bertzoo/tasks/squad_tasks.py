"""Options of question answering tasks, the tasks of SQuAD, and the definitions of its official scripts.

These are exact match, F1 and the files of predictions of SQuAD 1.1 and 2.0.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bertzoo.core import atomic
from bertzoo.core.config import check_range
from bertzoo.core.errors import UserError
from bertzoo.tasks import squad
from bertzoo.tasks.answers import Answered, Decoding
from bertzoo.tasks.squad import Question
from bertzoo.tasks.task import SplitExamples
from bertzoo.tasks.windows import Windowing

ELECTRA_THRESHOLD = -2.75
SplitName = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class SquadOptions:
    """The config table [squad]: options for encoding questions and decoding answers. `max_length`, outside of this
    table, limits a row's tokens.
    """

    # share of the training articles whose questions become the development set; 0: use the development file
    heldout: float = 0.0
    stride: int = Windowing.stride  # tokens between the starts of two windows of a paragraph
    max_question: int = Windowing.max_question  # maximum number of tokens of a question; further tokens are dropped
    longest: int = Decoding.longest  # maximum number of tokens of an answer
    # maximum of starts per window, ends per window (if joint, per start) and candidate answers per question
    candidates: int = Decoding.candidates
    joint: bool = False  # use ELECTRA's head, which predicts the end given the start, and whether there is an answer
    # null odds (score of "no answer") above which the prediction is "no answer"; "none": 0, or -2.75 if joint
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_range(self, "heldout", least=0, below=1, advice="Use a share in that range.")

    def windowing(self, max_length: int) -> Windowing:
        """Return a Windowing with these options; raises ConfigError if one is below 1 or `max_length` is too small."""
        return Windowing(max_length=max_length, stride=self.stride, max_question=self.max_question)

    def decoding(self, nulls: bool) -> Decoding:
        """Return a Decoding with these options; raises ConfigError if one is out of range. nulls: as in Decoding."""
        usual = ELECTRA_THRESHOLD if self.joint else Decoding.threshold
        threshold = usual if self.threshold is None else self.threshold
        return Decoding(candidates=self.candidates, longest=self.longest, nulls=nulls, threshold=threshold)


@dataclass(frozen=True, kw_only=True)
class SpanTask:
    """A task with questions whose answers are spans of paragraphs; `read(split, directory)` returns a split.

    nulls: whether some questions have no answer (SQuAD 2.0).
    """

    name: str
    nulls: bool
    read: Callable[[SplitName, Path | str], SplitExamples]

    def check(self, questions: Sequence[Question]) -> None:
        """Raise UserError if a question has no answer, unless the task has unanswerable questions (`nulls`)."""
        if not self.nulls and (bare := next((q for q in questions if not q.answers), None)):
            raise UserError(f"{bare.location} has no answer, so no prediction can be scored. Use a split with answers.")


def _squad(version: squad.Version) -> Callable[[SplitName, Path | str], SplitExamples]:
    def read(split: SplitName, source: Path | str) -> SplitExamples:
        if split == "test":
            raise UserError(f"SQuAD {version} has no public test set. Use dev.")
        if split == "dev" and Path(source).is_file():
            raise UserError(
                f"data_dir = {source} is one file, which leaves no questions for scoring. Name a directory with "
                "the train and dev files, or set squad.heldout."
            )
        return SplitExamples(squad.load_squad(source, split, version))

    return read


SQUAD = {
    "squad1": SpanTask(name="squad1", nulls=False, read=_squad("1.1")),
    "squad2": SpanTask(name="squad2", nulls=True, read=_squad("2.0")),
}


PREDICTIONS, NULL_ODDS, CANDIDATES = "predictions.json", "null_odds.json", "nbest_predictions.json"
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and the articles a, an and the, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(predicted: str, gold: str) -> float:
    """Return 1 if both texts are equal after `normalize`, else 0."""
    return float(normalize(predicted) == normalize(gold))


def f1(predicted: str, gold: str) -> float:
    """Return the F1 (0 to 1) of two texts' words after `normalize`; 0 without a common word, even if both are empty."""
    ours, theirs = (Counter(normalize(text).split()) for text in (predicted, gold))
    common = (ours & theirs).total()
    if not common:
        return 0.0
    precision, recall = common / ours.total(), common / theirs.total()
    return 2 * precision * recall / (precision + recall)


def f1_or_none(predicted: str, gold: str) -> float:
    """Return `f1`, but 1 if both texts are empty after `normalize`."""
    return f1(predicted, gold) if normalize(predicted) or normalize(gold) else 1.0


def score_1(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return `exact_match` and `f1` of SQuAD 1.1 in percent. A question's score is the best over its answers.

    predictions: by question id; a question without a prediction scores 0. Raises UserError naming a question that has
    no answer.
    """
    totals = {"exact_match": 0.0, "f1": 0.0}
    for question in _counted(questions):
        if not question.answers:
            raise UserError(
                f"{question.location} has no answer, so no prediction can be scored. Use a split with answers."
            )
        if question.key in predictions:
            text = predictions[question.key]
            totals["exact_match"] += max(exact(text, answer.text) for answer in question.answers)
            totals["f1"] += max(f1(text, answer.text) for answer in question.answers)
    return {name: 100.0 * total / len(questions) for name, total in totals.items()}


def score_2(
    questions: Sequence[Question], predictions: Mapping[str, str], null_odds: Mapping[str, float], threshold: float
) -> dict[str, float]:
    """Return `exact` and `f1` of SQuAD 2.0 in percent, and the best of each over all thresholds of the null odds.

    The keys are those of the official script: `exact`, `f1`, `best_exact`, `best_exact_thresh`, `best_f1` and
    `best_f1_thresh`, the thresholds of the best scores.

    predictions, null_odds: by question id. A prediction whose null odds exceed `threshold` counts as "no answer".
    Raises UserError naming a question without a prediction.
    """
    for question in _counted(questions):
        for name, table in (("prediction", predictions), ("null odds", null_odds)):
            if question.key not in table:
                raise UserError(f"{question.location} has no {name}. Predict every question.")
    chosen: dict[str, float] = {}
    best: dict[str, float] = {}
    for name, metric in (("exact", exact), ("f1", f1_or_none)):
        scores = {}
        for question in questions:  # one without an answer in words counts as having the answer ""
            golds = [answer.text for answer in question.answers if normalize(answer.text)] or [""]
            scores[question.key] = max(metric(predictions[question.key], gold) for gold in golds)
        total = sum(float(not q.answers) if null_odds[q.key] > threshold else scores[q.key] for q in questions)
        chosen[name] = 100.0 * total / len(questions)
        best[f"best_{name}"], best[f"best_{name}_thresh"] = best_threshold(questions, predictions, scores, null_odds)
    return chosen | best


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """Return the highest score in percent over all thresholds of the null odds, and its threshold.

    predictions, scores (0 to 1), null_odds: by question id.

    The result is that of the official script. The threshold is 0.0 if "no answer" to every question scores best. Among
    questions whose odds equal the threshold, the score may count some with their answer and some as "no answer".
    """
    current = highest = float(sum(not question.answers for question in questions))
    threshold = 0.0
    for question in sorted(questions, key=lambda question: null_odds[question.key]):
        if question.answers:
            current += scores[question.key]
        elif predictions[question.key]:
            current -= 1
        if current > highest:
            highest, threshold = current, null_odds[question.key]
    return 100.0 * highest / len(questions), threshold


def save(directory: Path, answered: Iterable[Answered]) -> list[Path]:
    """Write answers and any null odds, by question id, as the official scripts read them; returns the files' paths.

    Also writes the candidates with their scores, in BERT's format.
    """
    answers = list(answered)
    tables: dict[str, Any] = {PREDICTIONS: {answer.key: answer.text for answer in answers}}
    if any(answer.null_odds is not None for answer in answers):
        tables[NULL_ODDS] = {answer.key: answer.null_odds for answer in answers}
    tables[CANDIDATES] = {
        answer.key: [
            {"text": c.text, "probability": c.probability, "start_logit": c.start, "end_logit": c.end}
            for c in answer.candidates
        ]
        for answer in answers
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        text = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        atomic.write_bytes(directory / name, text.encode())
    return [directory / name for name in tables]


def _counted(questions: Sequence[Question]) -> Sequence[Question]:
    if not questions:
        raise UserError("there is no question to score. Use a split with questions.")
    return questions
