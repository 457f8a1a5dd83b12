"""Reading a tokenised corpus: random access equals the stream, and damage is named."""

import json
import math
import shutil
from collections import Counter

import numpy as np
import pytest
from damage import flip
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning, mentions

from bertzoo.core.errors import CorpusError
from bertzoo.data.corpus import shard
from bertzoo.data.corpus.reader import Corpus, unigram_losses
from bertzoo.data.corpus.shard import BLOCK


@pytest.fixture
def copy(corpus, tmp_path):
    return shutil.copytree(corpus.directory, tmp_path / "copy")


def stream(corpus, split):
    return np.concatenate(list(corpus.stream(split, blocks_at_once=3)))


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_indexes_agree_with_the_tokens(corpus, split):
    index, record = corpus.split(split), corpus.manifest.splits[split]
    assert len(stream(corpus, split)) == record.tokens == int(index.sentences.sum()) == int(index.offsets[-1])
    assert len(index.sentences) == record.sentences == int(index.documents[-1]) and index.documents[0] == 0
    assert len(index.documents) == record.documents + 1 and np.all(np.diff(index.documents) > 0)
    assert len(record.shards) > 1 and record.shards[0].tokens % BLOCK


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_access_equals_the_stream(corpus, data):
    split = data.draw(st.sampled_from(["train", "heldout"]))
    flat, index = stream(corpus, split), corpus.split(split)
    ranges = []
    for _ in range(data.draw(st.integers(1, 20))):
        document = data.draw(st.integers(0, len(index.documents) - 2))
        low, high = index.offsets[index.documents[document : document + 2]]
        start = data.draw(st.integers(int(low), int(high) - 1))
        ranges.append((start, data.draw(st.integers(1, int(high) - start))))
    starts, lengths = np.array(ranges).T
    tokens = corpus.tokens(split, starts, lengths)
    assert tokens.shape == (len(ranges), lengths.max()) and tokens.dtype == np.int32
    for row, (start, length) in zip(tokens, ranges, strict=True):
        np.testing.assert_array_equal(row[:length], flat[start : start + length])
        assert not row[length:].any()


def test_long_and_short_lists_of_blocks_are_read_alike(corpus, monkeypatch):
    flat = stream(corpus, "train")
    monkeypatch.setattr(shard, "_SHORT_LIST", 0)
    np.testing.assert_array_equal(stream(corpus, "train"), flat)


def test_the_limit_of_open_files_is_raised_or_named(corpus, monkeypatch):
    asked = []
    monkeypatch.setattr(shard.resource, "setrlimit", lambda _, limits: asked.append(limits))
    monkeypatch.setattr(shard.resource, "getrlimit", lambda _: (100, 100_000))
    Corpus.open(corpus.directory)
    shards = len(corpus.manifest.splits["train"].shards)
    assert asked[0] == (shards + 512, 100_000)
    monkeypatch.setattr(shard.resource, "getrlimit", lambda _: (100, 200))
    with pytest.raises(CorpusError, match=mentioning("shards", 200)):
        Corpus.open(corpus.directory)


def test_every_block_border_is_crossed_correctly(corpus):
    flat = stream(corpus, "train")
    shard = corpus.manifest.splits["train"].shards[0].tokens
    starts = np.arange(BLOCK - 5, shard - 2100, BLOCK)
    tokens = corpus.tokens("train", starts, np.full(len(starts), 2100))
    np.testing.assert_array_equal(tokens, flat[starts[:, None] + np.arange(2100)])
    with pytest.raises(ValueError, match=mentioning("shard")):
        corpus.tokens("train", np.array([shard - 1]), np.array([2]))


NAMES = ["train-00000.array_record", "heldout-00000.array_record", "train.sentences.npy", "heldout.documents.npy"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_or_truncated_file_is_named_when_opening(copy, name):
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-1])
    with pytest.raises(CorpusError, match=mentioning(name, f"{len(data) - 1:,}", f"{len(data):,}")):
        Corpus.open(copy)
    (copy / name).unlink()
    with pytest.raises(CorpusError, match=mentioning(copy / name)):
        Corpus.open(copy)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_named(copy, name, place):
    flip(copy / name, place)
    with pytest.raises(CorpusError, match=mentioning(copy / name, "SHA-256")):
        Corpus.open(copy).verify()


def test_reading_detects_a_flipped_bit_in_a_shard(copy, corpus):
    path = copy / "train-00000.array_record"
    data, right, found = path.read_bytes(), stream(corpus, "train"), 0
    for place in range(70, 12_000, 601):  # the library aligns blocks: most of a small file is padding that nobody reads
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            np.testing.assert_array_equal(stream(Corpus.open(copy), "train"), right)
        except CorpusError as error:
            assert mentions(str(error), "train-00000.array_record")
            found += 1
    assert found > 10


def test_a_damaged_tokenizer_is_named(copy):
    flip(copy / "tokenizer" / "vocab.txt", 0.999)
    with pytest.raises(CorpusError, match=mentioning(copy / "tokenizer")):
        Corpus.open(copy)


def test_every_missing_key_of_the_manifest_is_named(copy):
    path = copy / "manifest.json"
    raw = json.loads(path.read_text())
    for key in raw:
        path.write_text(json.dumps({name: value for name, value in raw.items() if name != key}))
        with pytest.raises(CorpusError, match=mentioning("manifest.json")):
            Corpus.open(copy)
    del raw["splits"]["train"]["shards"][0]["sha256"]
    path.write_text(json.dumps(raw))
    with pytest.raises(CorpusError, match=mentioning("manifest.json")):
        Corpus.open(copy)


def test_a_changed_cut_or_absent_manifest_is_named(copy):
    path = copy / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"heldout": 0.1', '"heldout": 0.2'))
    with pytest.raises(CorpusError, match=mentioning(path, "hash")):
        Corpus.open(copy)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(CorpusError, match=mentioning(path, "damaged")):
        Corpus.open(copy)
    path.write_text(text.replace('"format": 1', '"format": 99'))
    with pytest.raises(CorpusError, match=mentioning(path, "format", 99)):
        Corpus.open(copy)
    path.unlink()
    with pytest.raises(CorpusError, match=mentioning(path)):
        Corpus.open(copy)


def test_entropies_equal_a_count_by_hand(corpus):
    train, heldout = (Counter(np.concatenate(list(corpus.stream(split))).tolist()) for split in ("train", "heldout"))
    total, entries = sum(heldout.values()), corpus.tokenizer.vocab_size - 4  # all but [PAD] [CLS] [SEP] [MASK]
    assert not {0, 2, 3, 4} & (train.keys() | heldout.keys())
    entropy = -sum(n / total * math.log(n / total) for n in heldout.values())
    smoothed = {token: (train[token] + 1) / (sum(train.values()) + entries) for token in heldout}
    cross = -sum(n / total * math.log(smoothed[token]) for token, n in heldout.items())
    result = unigram_losses(corpus)
    assert result == pytest.approx({"unigram_entropy": entropy, "unigram_cross_entropy": cross}, rel=1e-12)
    assert 0 < result["unigram_entropy"] < result["unigram_cross_entropy"] < math.log(entries) * 1.5
