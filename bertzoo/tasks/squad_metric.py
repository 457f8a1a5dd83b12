"""Compute exact match and F1, and write prediction files, as the official scripts of SQuAD 1.1 and 2.0 define them."""

import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
                f"{question.place} has no answer, so predictions cannot be scored. Use a split with answers."
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
    `best_f1_thresh`, the thresholds that reach the best scores.

    predictions, null_odds: by question id. A prediction whose null odds exceed `threshold` counts as "no answer".
    Raises UserError naming a question without a prediction.
    """
    for question in _counted(questions):
        for name, table in (("prediction", predictions), ("null odds", null_odds)):
            if question.key not in table:
                raise UserError(f"{question.place} has no {name}. Predict every question.")
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
    """Return the highest score in percent over all thresholds of the null odds, and the threshold that reaches it.

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
