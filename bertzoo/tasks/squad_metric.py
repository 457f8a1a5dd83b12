"""Exact match and F1 as the official scripts of SQuAD 1.1 and 2.0 define them, and the files that those read.

A score is a percentage. The names of the second version's are its script's.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.tasks.answers import Answered
from bertzoo.tasks.squad import Question

PREDICTIONS, NULL_ODDS, CANDIDATES = "predictions.json", "null_odds.json", "nbest_predictions.json"
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """In lower case, without ASCII punctuation and then without articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(predicted: str, gold: str) -> float:
    """1 where both are the same when normalised, otherwise 0."""
    return float(normalize(predicted) == normalize(gold))


def f1(predicted: str, gold: str) -> float:
    """The harmonic mean of precision and recall over the words of the normalised texts, as bags; 0 without a word in
    common, even where neither has any.
    """
    ours, theirs = (Counter(normalize(text).split()) for text in (predicted, gold))
    common = (ours & theirs).total()
    if not common:
        return 0.0
    precision, recall = common / ours.total(), common / theirs.total()
    return 2 * precision * recall / (precision + recall)


def f1_or_none(predicted: str, gold: str) -> float:
    """As `f1`, but 1 where neither has a word."""
    return f1(predicted, gold) if normalize(predicted) or normalize(gold) else 1.0


def score_1(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1: the best over the answers of each, 0 for a question without a prediction.

    Raises UserError naming a question that has no answer to compare with.
    """
    totals = {"exact_match": 0.0, "f1": 0.0}
    for question in _counted(questions):
        if not question.answers:
            raise UserError(f"{question.place} has no answer that a prediction could be compared with")
        if question.key in predictions:
            text = predictions[question.key]
            totals["exact_match"] += max(exact(text, answer.text) for answer in question.answers)
            totals["f1"] += max(f1(text, answer.text) for answer in question.answers)
    return {name: 100.0 * total / len(questions) for name, total in totals.items()}


def score_2(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """`exact`, `f1` and `total` of SQuAD 2.0, the same of the questions with (`HasAns_`) and without an answer
    (`NoAns_`), and with null odds the best that a threshold on these can make of them, `best_exact` and `best_f1`, and
    that threshold (`_thresh`).

    A prediction counts as none where its null odds are above `threshold`. Raises UserError naming a question without a
    prediction.
    """
    odds = {question.key: 0.0 for question in questions} if null_odds is None else null_odds
    for question in _counted(questions):
        for what, given in (("prediction", predictions), ("null odds", odds)):
            if question.key not in given:
                raise UserError(f"{question.place} has no {what}")
    raw = {"exact": _scores(questions, predictions, exact), "f1": _scores(questions, predictions, f1_or_none)}
    groups = {
        "": questions,
        "HasAns_": [question for question in questions if question.answers],
        "NoAns_": [question for question in questions if not question.answers],
    }
    found: dict[str, float] = {}
    for prefix, group in groups.items():
        for name, scores in raw.items() if group else ():
            total = sum(
                float(not question.answers) if odds[question.key] > threshold else scores[question.key]
                for question in group
            )
            found[prefix + name] = 100.0 * total / len(group)
        if group:
            found[f"{prefix}total"] = len(group)
    if null_odds is not None:
        for name, scores in raw.items():
            found[f"best_{name}"], found[f"best_{name}_thresh"] = best_threshold(questions, predictions, scores, odds)
    return found


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
) -> tuple[float, float]:
    """The highest score when predictions whose null odds are above some threshold count as none, and that threshold.

    As the script: 0.0 where nothing is better than no answer at all; and of equal odds each is a threshold of its own.
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
    """Writes the files that the official scripts read, in the questions' order: the answers under their ids, and where
    they were decoded with nulls the null odds; and the best candidates. Gives the paths.
    """
    several = list(answered)
    tables: dict[str, Any] = {PREDICTIONS: {answer.key: answer.text for answer in several}}
    if any(answer.null_odds is not None for answer in several):
        tables[NULL_ODDS] = {answer.key: answer.null_odds for answer in several}
    tables[CANDIDATES] = {answer.key: [_plain(candidate) for candidate in answer.candidates] for answer in several}
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        text = json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        atomic.write_bytes(directory / name, text.encode())
    return [directory / name for name in tables]


def _plain(candidate: Any) -> dict[str, Any]:
    """A candidate under the names that BERT's code writes."""
    return {
        "text": candidate.text,
        "probability": candidate.probability,
        "start_logit": candidate.start,
        "end_logit": candidate.end,
    }


def _counted(questions: Sequence[Question]) -> Sequence[Question]:
    if not questions:
        raise UserError("there is no question to be scored")
    return questions


def _scores(
    questions: Sequence[Question], predictions: Mapping[str, str], metric: Callable[[str, str], float]
) -> dict[str, float]:
    """The best over the answers of each that are not empty when normalised; without any, against no answer."""
    found = {}
    for question in questions:
        golds = [answer.text for answer in question.answers if normalize(answer.text)] or [""]
        found[question.key] = max(metric(predictions[question.key], gold) for gold in golds)
    return found
