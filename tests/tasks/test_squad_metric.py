"""EM and F1 against our transcription of the official definition, thresholds against brute force, and the files."""

import json
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.core.errors import UserError
from bertzoo.tasks import squad_tasks as metric
from bertzoo.tasks.answers import Answered, Candidate
from bertzoo.tasks.squad import Answer, Question

many = settings(max_examples=150, deadline=None, derandomize=True)
PARTS = ["the", "The", "a", "an", "Another", "cat", "cats", "é", "É", ",", ".", "'s", "’s", "-", "İ", "1"]
PARTS += [" ", "\u00a0", "\n"]
texts = st.lists(st.sampled_from(PARTS), max_size=7).map("".join)


def words(text):
    """The official scripts' normalisation in other words: letter by letter, then word by word."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in re.split(r"\b(?:a|an|the)\b|\s+", kept) if word]


def overlap(predicted, gold):
    ours, theirs = words(predicted), words(gold)
    rest, same = list(theirs), 0
    for word in ours:
        if word in rest:
            rest.remove(word)
            same += 1
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


@many
@given(texts, texts)
def test_em_and_f1_are_the_official_ones(predicted, gold):
    assert metric.normalize(predicted) == " ".join(words(predicted))
    assert metric.exact(predicted, gold) == (words(predicted) == words(gold))
    assert metric.f1(predicted, gold) == pytest.approx(overlap(predicted, gold))
    either = not words(predicted) or not words(gold)
    expected = float(words(predicted) == words(gold)) if either else overlap(predicted, gold)
    assert metric.f1_or_none(predicted, gold) == pytest.approx(expected)


KNOWN = [
    ("The Cat!", "cat", 1.0, 1.0),
    ("a cat and an owl", "cat owl", 0.0, 0.8),
    ("U.S.", "us", 1.0, 1.0),
    ("Smith’s", "Smiths", 0.0, 0.0),  # a typographic apostrophe is no ASCII punctuation
    ("Smith's", "Smiths", 1.0, 1.0),
    ("twenty-one", "twentyone", 1.0, 1.0),
    ("Beyoncé", "Beyonce", 0.0, 0.0),
    ("the", "", 1.0, 0.0),  # the first script's F1 is 0 for an answer without words
    ("cat cat dog", "cat dog dog", 0.0, 2 / 3),
    ("theatre", "atre", 0.0, 0.0),
]


@pytest.mark.parametrize(("predicted", "gold", "em", "f1"), KNOWN)
def test_known_cases(predicted, gold, em, f1):
    assert metric.exact(predicted, gold) == em and metric.f1(predicted, gold) == pytest.approx(f1)
    assert metric.f1_or_none("the", "") == 1.0 and metric.f1_or_none("cat", "") == 0.0


def asked(key, *golds):
    return Question(key, "?", "", tuple(Answer(gold, 0) for gold in golds), not golds, "", f"here question {key}")


def test_the_first_version_takes_the_best_of_the_answers_and_0_without_a_prediction():
    questions = [asked("a", "cat", "the big cat"), asked("b", "dog"), asked("c", "owl")]
    found = metric.score_1(questions, {"a": "big cat", "b": "dog owl", "other": "x"})
    assert found == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(100 * (1 + 2 / 3) / 3)}
    with pytest.raises(UserError, match=mentioning("prediction")):
        metric.score_1([asked("d")], {})
    with pytest.raises(UserError, match=mentioning("question")):
        metric.score_1([], {})


def test_the_second_version_withholds_answers_above_the_threshold():
    questions = [asked("a", "cat"), asked("b"), asked("c"), asked("d", "dog", "the")]
    predictions = {"a": "a cat sat", "b": "", "c": "cat", "d": "dog"}
    odds = {"a": 0.2, "b": 0.5, "c": 0.9, "d": 0.95}

    def scores(several, predictions, threshold=1.0):
        found = metric.score_2(several, predictions, odds, threshold)
        assert list(found) == ["exact", "f1", "best_exact", "best_exact_thresh", "best_f1", "best_f1_thresh"]
        return found["exact"], found["f1"]

    assert scores(questions, predictions) == pytest.approx((50.0, 25 * (2 / 3 + 1 + 0 + 1)))
    assert scores(questions, predictions, 0.8) == pytest.approx((50.0, 25 * (2 / 3 + 1 + 1 + 0)))
    assert scores([asked("b")], {"b": "the"})[0] == 100.0  # empty after normalisation
    assert scores([asked("b", "dog", "the")], {"b": "a"})[0] == 0.0  # which is then no answer among others
    for what, given_ in (("prediction", ({}, odds)), ("null odds", (predictions, {}))):
        with pytest.raises(UserError, match=mentioning("here question a", what)):
            metric.score_2(questions, *given_, threshold=1.0)


cases = st.lists(
    st.tuples(st.sampled_from(["", "cat", "the Cat 1"]), texts, st.integers(-9, 9)),
    min_size=1,
    max_size=8,
    unique_by=lambda case: case[2],
)


@settings(many, max_examples=100)
@given(cases)
def test_the_best_threshold_is_optimal(several):
    questions = [asked(str(index), *([gold] if gold else [])) for index, (gold, _, _) in enumerate(several)]
    predictions = {str(index): text for index, (_, text, _) in enumerate(several)}
    odds = {str(index): rank + 0.5 for index, (_, _, rank) in enumerate(several)}  # never 0, which stands for nothing
    found = metric.score_2(questions, predictions, odds, threshold=1.0)
    for name, one in (("exact", lambda text, gold: float(words(text) == words(gold))), ("f1", metric.f1_or_none)):
        tried = {}
        for threshold in (-100, *odds.values()):
            total = 0.0
            for question, text in zip(questions, predictions.values(), strict=True):
                given_ = odds[question.key] <= threshold
                if not question.answers:
                    total += not (given_ and text)  # any text is wrong, where scoring alone would let "the" pass
                elif given_:
                    total += max(one(text, answer.text) for answer in question.answers)
            tried[threshold] = 100 * total / len(questions)
        best = max(tried.values())
        assert found[f"best_{name}"] == pytest.approx(best)
        chosen = found[f"best_{name}_thresh"]
        assert tried[chosen] == pytest.approx(best) if chosen in tried else chosen == 0.0 and best == tried[-100]


def test_without_a_better_threshold_it_is_zero():
    questions = [asked("a", "cat"), asked("b")]
    predictions, odds = {"a": "dog", "b": "owl"}, {"a": -3.0, "b": -4.0}
    raw = {"a": 0.0, "b": 0.0}
    assert metric.best_threshold(questions, predictions, raw, odds) == (50.0, 0.0)
    for text in ("owl", ""):  # of equal thresholds the least
        given_ = {"a": "cat", "b": text}
        found = metric.best_threshold(questions, given_, {"a": 1.0, "b": 0.0}, {"a": -5.0, "b": 2.0})
        assert found == (100.0, -5.0)


def test_files_match_the_official_scripts(tmp_path):
    answered = [
        Answered("b", "Café", "Café", -1.5, [Candidate("Café", 2.0, 1.0, 0.75), Candidate("", 1.0, 0.9, 0.25)]),
        Answered("a", "", "cat", 1e6, []),
    ]
    paths = metric.save(tmp_path / "new", answered)
    assert [path.name for path in paths] == ["predictions.json", "null_odds.json", "nbest_predictions.json"]
    tables = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    assert list(tables[0].items()) == [("b", "Café"), ("a", "")]
    assert tables[1] == {"b": -1.5, "a": 1e6}
    assert tables[2]["b"][0] == {"text": "Café", "probability": 0.75, "start_logit": 2.0, "end_logit": 1.0}
    paths = metric.save(tmp_path / "first", [answer._replace(null_odds=None) for answer in answered])
    assert [path.name for path in paths] == ["predictions.json", "nbest_predictions.json"]
