"""Decoding against its definition over all pairs, BERT's realignment of characters, and thresholds."""

import itertools
import math
import unicodedata

import numpy as np
import pytest
from asking import TOKENIZER, question
from messages import mentioning

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.tasks import answers, windows
from bertzoo.tasks.answers import Decoding
from bertzoo.tasks.windows import Windowing

CONTEXT = "The leader was John Smith (1895-1943), born in Japan. Who was in Japan's leader's Café?"


def made(*contexts):
    several = [question(context, key=f"q{index}") for index, context in enumerate(contexts)]
    return windows.make_windows(several, TOKENIZER, Windowing(max_length=16, stride=4, max_question=3), labels=False)


def logits(found, seed=0, length=20):
    """Random ones, for rows that are padded to the length."""
    draw = np.random.default_rng(seed)
    return [
        {name: draw.normal(0, 3, length).astype(np.float32) for name in ("start_logits", "end_logits")}
        for _ in found.windows
    ]


def beams(found, seed=0, length=20, beam=20):
    """Outputs of a joint head: every start has its own ends."""
    draw = np.random.default_rng(seed)
    outputs = []
    for _ in found.windows:
        starts = np.argsort(-draw.normal(size=length))[:beam]
        start_scores = -np.sort(draw.exponential(3, len(starts)))
        ends = np.argsort(-draw.normal(size=(len(starts), length)), axis=1)[:, :beam]
        end_scores = -np.sort(draw.exponential(3, ends.shape), axis=1)
        outputs.append({"starts": starts, "start_scores": start_scores, "ends": ends, "end_scores": end_scores})
        outputs[-1]["null_score"] = np.float32(draw.normal())
    return outputs


def possible(found, row, start, end, longest):
    """Whether BERT's code takes a pair: inside the paragraph, in order, short, and the start in its best window."""
    window = found.windows[row]
    inside = all(window.context <= place < window.length - 1 for place in (start, end))
    return inside and 0 <= end - start < longest and bool(window.best[start - window.context])


def every_pair(found, outputs, decoding):
    """(score, row, start, end) of every possible answer to each question, from the definition."""
    pairs = [[] for _ in found.questions]
    for row, (window, output) in enumerate(zip(found.windows, outputs, strict=True)):
        if "starts" in output:
            scored = [
                (output["start_scores"][i] + output["end_scores"][i, j], int(start), int(output["ends"][i, j]))
                for i, start in enumerate(output["starts"][: decoding.candidates])
                for j in range(min(decoding.candidates, output["ends"].shape[1]))
            ]
        else:
            start, end = (output[name].astype(float)[: window.length] for name in ("start_logits", "end_logits"))
            tops = [sorted(range(len(v)), key=lambda i, v=v: -v[i])[: decoding.candidates] for v in (start, end)]
            scored = [(start[i] + end[j], i, j) for i, j in itertools.product(*tops)]
        pairs[window.question] += [
            (score, row, i, j) for score, i, j in scored if possible(found, row, i, j, decoding.longest)
        ]
    return [sorted(several, key=lambda pair: -pair[0]) for several in pairs]


@pytest.mark.parametrize("make_outputs", [logits, beams])
@pytest.mark.parametrize("decoding", [Decoding(), Decoding(candidates=3, longest=4), Decoding(longest=1)], ids=str)
def test_the_best_pairs_are_the_answers(make_outputs, decoding):
    found = made(CONTEXT, "Japan was in the leader", CONTEXT + " And Smith?")
    assert len(found.windows) > 10
    for seed in range(10):
        outputs = make_outputs(found, seed)
        decoded = answers.decode(found, outputs, decoding)
        assert [answer.key for answer in decoded] == ["q0", "q1", "q2"]
        for answer, pairs in zip(decoded, every_pair(found, outputs, decoding), strict=True):
            best = {}
            for score, row, start, end in pairs:
                best.setdefault(found.text(row, start, end), score)
            expected = list(itertools.islice(best.items(), decoding.candidates))
            assert [(c.text, pytest.approx(c.start + c.end)) for c in answer.candidates] == expected
            assert answer.text == answer.best == (expected[0][0] if expected else "") and answer.null_odds is None
            shares = np.exp([score for _, score in expected])
            np.testing.assert_allclose([c.probability for c in answer.candidates], shares / shares.sum(), rtol=1e-6)


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 1.5])
def test_no_answer_is_where_the_null_odds_are_above_the_threshold(threshold):
    found, decoding = made(CONTEXT, CONTEXT[:50]), Decoding(nulls=True, threshold=threshold)
    kinds = set()
    for seed in range(20):
        outputs = logits(found, seed)
        for array in (array for output in outputs for array in output.values()):
            array[0] += seed / 2
        for index, (answer, pairs) in enumerate(
            zip(answers.decode(found, outputs, decoding), every_pair(found, outputs, decoding), strict=True)
        ):
            rows = [output for output, window in zip(outputs, found.windows, strict=True) if window.question == index]
            null = min(float(output["start_logits"][0]) + float(output["end_logits"][0]) for output in rows)
            assert answer.null_odds == pytest.approx(null - pairs[0][0])
            assert answer.best == found.text(*pairs[0][1:])
            assert answer.text == ("" if answer.null_odds > threshold else answer.best)
            (empty,) = [c for c in answer.candidates if not c.text]
            assert empty.start + empty.end == pytest.approx(null)
            scores = [c.start + c.end for c in answer.candidates]
            ranked = scores if len(scores) <= decoding.candidates else scores[:-1]
            assert ranked == sorted(ranked, reverse=True)
            assert ranked is scores or (empty is answer.candidates[-1] and scores[-1] <= scores[-2])
            kinds.add(answer.text == "")
    assert kinds == {True, False}


def test_the_joint_heads_null_score_becomes_the_null_odds():
    """The least of the windows'; it is no candidate (ELECTRA's qa_metrics.py)."""
    found = made(CONTEXT)
    outputs = beams(found)
    least = min(float(output["null_score"]) for output in outputs)
    for threshold, empty in ((least + 0.1, False), (least - 0.1, True)):
        (answer,) = answers.decode(found, outputs, Decoding(nulls=True, threshold=threshold))
        assert answer.null_odds == least and (answer.text == "") == empty and answer.best
        assert all(candidate.text for candidate in answer.candidates)


def test_without_a_possible_answer_the_text_is_empty():
    found = made("the leader", " \n ", "was born")
    assert found.skipped == {"the paragraph has no token": 1}
    outputs = logits(found)
    first, second, third = answers.decode(found, outputs, Decoding())
    assert first.text and third.text and second == ("q1", "", "", None, [])
    second = answers.decode(found, outputs, Decoding(nulls=True, threshold=1e5))[1]
    assert second == ("q1", "", "", answers.NEVER, [])
    outside = {name: 9.0 * (np.arange(20) == 1) for name in ("start_logits", "end_logits")}
    (one, *_) = answers.decode(found, [outside, outside], Decoding(candidates=1, nulls=True, threshold=1e5))
    assert one.text == one.best == "" and one.null_odds == answers.NEVER and math.isfinite(answers.NEVER)


def test_numbers_that_are_not_finite_raise():
    found = made("the leader")
    outputs = logits(found)
    outputs[0]["end_logits"][3] = np.nan
    with pytest.raises(UserError, match=mentioning("q0")):
        answers.decode(found, outputs, Decoding())
    for name in ("candidates", "longest"):
        with pytest.raises(ConfigError, match=mentioning(name, 0)):
            Decoding(**{name: 0})
    with pytest.raises(ConfigError, match=mentioning("threshold")):
        Decoding(threshold=math.nan)


def basic(text):
    """BERT's words: lower case without accents, every punctuation mark apart (tokenization.py)."""
    words = []
    for word in text.split():
        plain = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")
        spaced = "".join(c if c.isalnum() else f" {c} " for c in plain)
        words += spaced.split()
    return " ".join(words)


def realigned(predicted, words):
    """BERT's get_final_text: locate the pieces' text in the words by counting characters except spaces."""
    normal = basic(words)
    start = normal.find(predicted)
    if start < 0 or len(normal.replace(" ", "")) != len(words.replace(" ", "")):
        return words
    first = len(normal[:start].replace(" ", ""))
    places = [index for index, character in enumerate(words) if character != " "]
    return words[places[first] : places[first + len(predicted.replace(" ", "")) - 1] + 1]


def test_texts_equal_berts_realignment():
    found = windows.make_windows([question(CONTEXT)], TOKENIZER, Windowing(), labels=False)
    (window,), known = found.windows, found.pieces[CONTEXT]
    compared = 0
    for start, end in itertools.combinations(range(window.context, window.length - 1), 2):
        first, last = start - window.context, end - window.context
        inner = "##" in TOKENIZER.token(known.ids[first]) or "unk" in TOKENIZER.decode(known.ids[first : last + 1])
        if inner:  # the reference then finds another place, or takes whole words
            continue
        predicted = " ".join(TOKENIZER.token(i) for i in known.ids[first : last + 1]).replace(" ##", "")
        word, final = np.searchsorted(known.words, (first, last), side="right") - 1
        words = " ".join(CONTEXT[a:b] for a, b in known.spans[word : final + 1])
        assert found.text(0, start, end) == realigned(predicted, words)
        compared += 1
    assert compared > 300
