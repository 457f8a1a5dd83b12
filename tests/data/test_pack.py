"""Packing: single rows lose no token; pairs equal a plain transcription of the papers' procedure."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up_documents, small, write_documents
from messages import mentioning, mentions

from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus.reader import Split
from bertzoo.data.corpus.tokenize import tokenize
from bertzoo.data.hashes import is_heldout
from bertzoo.data.pack import RowPlan, Sentence, SentencePacking, pair_rows, plan_rows, single_rows
from bertzoo.data.rng import SplitMix

DOCUMENTS = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=2, max_size=6)


def addresses(documents):
    offsets = np.concatenate([[0], np.cumsum([length for document in documents for length in document])])
    return offsets, np.concatenate([[0], np.cumsum([len(document) for document in documents])])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=40), st.integers(1, 60), st.data())
def test_single_rows_tile_the_document(sentences, room, data):
    target = data.draw(st.integers(1, room))
    bounds = (7 + np.concatenate([[0], np.cumsum(sentences)])).tolist()
    rows = list(single_rows(bounds, room, target, 3))
    position = bounds[0]
    for a_start, _, a_length, b_length, document, label, fallback in rows:
        assert a_start == position and 0 < a_length <= room
        assert (b_length, document, label, fallback) == (0, 3, 0, 0)
        position += a_length
        if position not in bounds:  # cut only where a sentence (or the rest of one) does not fit a row
            assert a_length == room and a_start + room < min(b for b in bounds if b > a_start)
        elif position != bounds[-1]:  # full: the target is reached, or the next sentence does not fit
            following = min(b for b in bounds if b > position)
            assert a_length >= target or following - a_start > room
        inner = [b - a_start for b in bounds if a_start < b < position]
        assert all(length < target for length in inner)
    assert position == bounds[-1]


def transcription(documents, room, target, document_index, sentence, random):
    """create_instances_from_document of BERT (nsp) and ALBERT (sop), on lists of token addresses, loop by loop."""
    offsets, firsts = addresses(documents)
    every = [
        [list(range(offsets[s], offsets[s + 1])) for s in range(firsts[d], firsts[d + 1])]
        for d in range(len(documents))
    ]
    document, instances, chunk, length, i = every[document_index], [], [], 0, 0
    while i < len(document):
        chunk.append(document[i])
        length += len(document[i])
        if i == len(document) - 1 or length >= target:
            a_end = 1
            if len(chunk) >= 2:
                a_end = random.integer(1, len(chunk) - 1)
            a, b, label = flat(chunk[:a_end]), [], 0
            if len(chunk) == 1 or (sentence == "nsp" and random.random() < 0.5):
                label = 1
                wanted = target - len(a)
                for _ in range(10):
                    other = random.integer(0, len(every) - 1)
                    if other != document_index:
                        break
                first = random.integer(int(firsts[other]), int(firsts[other + 1]) - 1) - int(firsts[other])
                for piece in every[other][first:]:
                    b += piece
                    if len(b) >= wanted:
                        break
                i -= len(chunk) - a_end
            elif sentence == "sop" and random.random() < 0.5:
                label = 1
                a, b = flat(chunk[a_end:]), a
            else:
                b = flat(chunk[a_end:])
            instances.append((*truncate(a, b, room, random), label, sentence == "sop" and len(chunk) == 1))
            chunk, length = [], 0
        i += 1
    return instances


def flat(lists):
    return [item for inner in lists for item in inner]


def truncate(a, b, room, random):
    """Token by token: from the longer one, B when equal. Which end is a coin: as many heads, tokens off the front."""
    cut_a = cut_b = 0
    while len(a) - cut_a + len(b) - cut_b > room:
        if len(a) - cut_a > len(b) - cut_b:
            cut_a += 1
        else:
            cut_b += 1
    front_a, front_b = (random.heads(cut_a), random.heads(cut_b)) if cut_a + cut_b else (0, 0)
    return a[front_a : len(a) - (cut_a - front_a)], b[front_b : len(b) - (cut_b - front_b)]


@settings(max_examples=300, deadline=None)
@given(DOCUMENTS, st.integers(4, 80), st.sampled_from(["nsp", "sop"]), st.integers(0, 2**32), st.data())
def test_pairs_equal_the_transcription(documents, room, sentence, seed, data):
    target = data.draw(st.integers(2, room))
    number = data.draw(st.integers(0, len(documents) - 1))
    offsets, firsts = addresses(documents)
    bounds = offsets[firsts[number] : firsts[number + 1] + 1].tolist()
    rows = list(pair_rows(bounds, room, target, number, sentence, SplitMix(seed), offsets, firsts))
    expected = transcription(documents, room, target, number, sentence, SplitMix(seed))
    assert len(rows) == len(expected)
    for (a_start, b_start, a_length, b_length, document, *flags), (a, b, *expected_flags) in zip(
        rows, expected, strict=True
    ):
        assert list(range(a_start, a_start + a_length)) == a and list(range(b_start, b_start + b_length)) == b
        assert flags == expected_flags and document == number and a and b and len(a) + len(b) <= room


def make(corpus, tmp_path, sentence: Sentence, split: Split = "train", **changes: Any) -> RowPlan:
    settings: dict[str, Any] = {"max_length": 64, "seed": 1, "directory": tmp_path, "packing": SentencePacking()}
    return plan_rows(corpus, split, sentence=sentence, **settings | changes)


def test_a_plan_without_pairs_holds_every_token_once(corpus, tmp_path):
    for split in ("train", "heldout"):
        rows = make(corpus, tmp_path, "none", split).rows
        assert rows["a_start"][0] == 0
        np.testing.assert_array_equal(rows["a_start"][1:], np.cumsum(rows["a_length"][:-1]))
        assert rows["a_length"].sum() == corpus.manifest.splits[split].tokens
        assert rows["a_length"].max() <= 62 and not rows["b_length"].any()


def test_every_pass_packs_every_document_differently(corpus, tmp_path):
    once, twice = (make(corpus, tmp_path, "sop", packing=SentencePacking(passes=n)).rows for n in (1, 2))
    np.testing.assert_array_equal(twice[: len(once)], once)
    assert not np.array_equal(twice[len(once) :], once)
    assert set(twice[len(once) :]["document"]) == set(range(corpus.manifest.splits["train"].documents))


def test_short_rows_are_as_frequent_as_configured(corpus, tmp_path):
    means = [
        make(corpus, tmp_path, "none", packing=SentencePacking(short_share=share)).rows["a_length"].mean()
        for share in (0, 0.5, 1)
    ]
    assert means[0] > means[1] + 3 and means[1] > means[2] + 3
    longest = corpus.split("train").sentences.max()
    full = make(corpus, tmp_path, "none", packing=SentencePacking(short_share=0)).rows
    goes_on = np.diff(full["document"]) == 0  # the last row of a document may be short, no other
    assert full["a_length"][:-1][goes_on].min() > 62 - longest


def test_statistics_of_next_sentence_prediction(corpus, tmp_path):
    rows = make(corpus, tmp_path, "nsp", packing=SentencePacking(passes=8)).rows
    real = rows["label"] == 0
    # A lone sentence always gets a random next: less than half are real.
    assert 0.3 < real.mean() < 0.5 - 3 * np.sqrt(0.25 / len(rows))
    firsts = corpus.split("train").offsets[corpus.split("train").documents]
    documents = np.searchsorted(firsts, rows["b_start"], "right") - 1
    np.testing.assert_array_equal(documents == rows["document"], real)
    used = np.bincount(documents[~real], minlength=corpus.manifest.splits["train"].documents)
    assert (used > 0).mean() > 0.95 and used.max() < 10 * used.mean()  # every document is drawn


def test_too_many_fallbacks_are_warned_of(corpus, tmp_path):
    assert make(corpus, tmp_path, "sop", max_length=512).warning == ""
    warning = make(corpus, tmp_path, "sop", max_length=16).warning
    assert mentions(warning, 16)
    assert make(corpus, tmp_path, "nsp", max_length=16).warning == ""


def test_plans_depend_on_everything_that_they_are_named_after(corpus, tmp_path):
    base = make(corpus, tmp_path, "sop").rows
    packing = SentencePacking(short_share=0.2)
    for changes in ({"seed": 2}, {"max_length": 65}, {"packing": packing}, {"split": "heldout"}):
        assert not np.array_equal(make(corpus, tmp_path, "sop", **changes).rows, base)
    assert len(list(tmp_path.glob("*.npy"))) == 5
    np.testing.assert_array_equal(make(corpus, tmp_path / "elsewhere", "sop").rows, base)


def test_a_plan_is_computed_once_and_mapped(corpus, tmp_path):
    first = make(corpus, tmp_path, "sop")
    (path,) = tmp_path.glob("*.npy")
    stamp = path.stat().st_mtime_ns
    again = make(corpus, tmp_path, "sop")
    assert path.stat().st_mtime_ns == stamp and isinstance(again.rows, np.memmap)
    assert replace(again, rows=0) == replace(first, rows=0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("size", [0, 50, 5000])
def test_a_plan_that_is_cut_short_is_computed_again(corpus, tmp_path, size):
    right = np.array(make(corpus, tmp_path, "sop").rows)
    (rows,) = tmp_path.glob("*.npy")
    rows.write_bytes(rows.read_bytes()[:size])
    np.testing.assert_array_equal(make(corpus, tmp_path, "sop").rows, right)


def test_impossible_packings_raise(corpus, tmp_path):
    smallest: list[tuple[Sentence, int]] = [("none", 2), ("sop", 4), ("nsp", 4)]
    for sentence, length in smallest:
        with pytest.raises(ConfigError, match=mentioning("max_length", length)):
            make(corpus, tmp_path, sentence, max_length=length)
        assert len(make(corpus, tmp_path, sentence, max_length=length + 1).rows)
    with pytest.raises(ConfigError, match=mentioning("short_share", 1.5)):
        SentencePacking(short_share=1.5)
    with pytest.raises(ConfigError, match=mentioning("passes", "0")):
        SentencePacking(passes=0)


def test_pairs_need_two_documents(tmp_path):
    documents = made_up_documents(400)
    one = next(document for document in documents if is_heldout("\n".join(document), 0.1))
    rest = [document for document in documents if not is_heldout("\n".join(document), 0.1)]
    source = write_documents(tmp_path / "text.txt", [*rest[:10], one])
    corpus = tokenize(small(source), tmp_path / "c", workers=1)
    assert corpus.manifest.splits["heldout"].documents == 1
    with pytest.raises(CorpusError, match=mentioning("heldout", "one document")):
        make(corpus, tmp_path, "nsp", "heldout")
    assert len(make(corpus, tmp_path, "none", "heldout").rows)
