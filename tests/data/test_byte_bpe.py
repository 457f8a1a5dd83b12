"""Byte pairs: no text is unknown, text comes back, offsets, kept entries, and files that are something else."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.byte_bpe import ByteBpe, ByteBpeTokenizer

TEXTS = ["the model reads the text, and the text is read", "naïve models read text twice\n\nor not"] * 5


@pytest.fixture(scope="module")
def words() -> ByteBpeTokenizer:
    return ByteBpe(vocab_size=320).train(lambda: iter(TEXTS))


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_text_comes_back_and_is_never_unknown(words: ByteBpeTokenizer, text: str) -> None:
    (ids,), ((same, offsets),) = words.encode_batch([text]), words.encode_offsets([text])
    assert np.array_equal(ids, same) and words.specials.unk not in ids
    assert words.decode(ids) == unicodedata.normalize("NFC", text)
    assert all(0 <= start <= end <= len(text) for start, end in offsets.tolist())


def test_offsets_are_those_of_the_pieces(words: ByteBpeTokenizer) -> None:
    text = "the text 😀 twice"
    ids, offsets = words.encode_offsets([text])[0]
    spans = dict.fromkeys(map(tuple, offsets.tolist()))  # the bytes of a character share its span
    assert "".join(text[start:end] for start, end in spans) == text.replace(" ", "")
    assert words.word_starts(ids).sum() == 4


def test_punctuation_ends_a_word(words: ByteBpeTokenizer) -> None:
    text = "naïve Berlin. a[0], don't 3,000"
    ids, offsets = words.encode_offsets([text])[0]
    starts = [int(start) for start, _ in offsets[words.word_starts(ids)].tolist()]
    found = "|".join(text[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True))
    assert found.replace("| ", " |").replace(" ", "") == "naïve|Berlin|.|a|[|0|]|,|don|'|t|3|,|000"


def test_names_of_special_tokens_are_text_unless_asked_for(words: ByteBpeTokenizer) -> None:
    (plain,), (special,) = words.encode_batch(["a [MASK] b"]), words.encode_batch(["a [MASK] b"], specials=True)
    assert words.specials.mask not in plain and words.specials.mask in special
    assert words.decode(plain) == "a [MASK] b"


def test_training_loading_and_saving_agree(words: ByteBpeTokenizer, tmp_path: Path) -> None:
    assert ByteBpe(vocab_size=320).train(lambda: iter(TEXTS)).contents == words.contents
    tokenizer.save(words, words.config, tmp_path)
    again = tokenizer.load(tmp_path)
    assert again.contents == words.contents and tokenizer.difference(words, again) is None


def test_the_kept_entries_split_the_texts_alike(words: ByteBpeTokenizer) -> None:
    texts = ["the text is read", "naïve"]
    kept = np.unique(np.concatenate([[*words.needed], *words.occurring(texts)]))
    smaller = words.subset(kept.tolist())
    assert len(kept) == smaller.vocab_size < words.vocab_size
    for old, new in zip(words.encode_batch(texts), smaller.encode_batch(texts), strict=True):
        assert np.array_equal(old, kept[new])
    other = "Zürich wins 😀"
    assert smaller.decode(smaller.encode_batch([other])[0]) == other


def test_files_that_are_something_else(words: ByteBpeTokenizer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=mentioning("vocab_size = 260", 261)):
        ByteBpe(vocab_size=260)
    whole, file = json.loads(words.contents), tmp_path / "tokenizer.json"
    changes = (
        ({"model": {"type": "BPE"}}, ""),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "Whitespace"),
        ({"pre_tokenizer": None}, "None"),
        ({"model": whole["model"] | {"dropout": 0.5}}, "dropout"),
    )
    changed = [(json.dumps(whole | change).encode(), part) for change, part in changes]
    for content, part in ((b"\xff\xfe", ""), (b"", ""), (b"{", ""), (b"[]", ""), (b"{}", ""), *changed):
        file.write_bytes(content)
        with pytest.raises(CorpusError, match=mentioning(file, part)):
            ByteBpe(path=str(file)).load()
