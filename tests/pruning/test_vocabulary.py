"""A vocabulary cut to some texts: equal tokens and outputs on them, for WordPiece and SentencePiece."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from bertzoo.cli.main import main
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.heads import MaskedLanguageModel
from bertzoo.pruning.vocabulary import count_tokens, prune_vocabulary
from bertzoo.runs import load_model

SENTENCE = "the cat sat on a mat while twenty dogs ran over nineteen hills and 9, 19, or 219, stones fell Down"
WORDS = SENTENCE.split()
TEXT = [" ".join(WORDS[at:] + WORDS[:at]) for at in range(len(WORDS))] * 3
OTHER = [word[::-1] for word in WORDS] * 5  # words that only the whole vocabulary has
KEPT = TEXT[:4]


def tokenizer(kind: str):
    config = WordPiece(vocab_size=150) if kind == "wordpiece" else SentencePiece(vocab_size=150, algorithm=kind)
    return config.train(lambda: iter(TEXT + OTHER))


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: tokenizer(kind) for kind in ("wordpiece", "unigram", "bpe")}


def with_words(name: str, words, rows: int = 0):
    """A model with a tokenizer; its word embeddings have `rows` rows or, for 0, one for each entry of the tokenizer."""
    model, head = zoo.CASES[name]
    pretrained = zoo.pretrained(replace(model, vocab_size=rows or words.vocab_size), head)
    return replace(pretrained, tokenizer=words)


def rows(words, texts):
    ids = [
        np.concatenate([[words.specials.cls], some, [words.specials.sep]])[:16] for some in words.encode_batch(texts)
    ]
    tokens = np.full((len(ids), 16), words.specials.pad)
    for row, some in zip(tokens, ids, strict=True):
        row[: len(some)] = some
    mask = np.arange(16) < np.array([[len(some)] for some in ids])
    return tokens, np.zeros_like(tokens), mask.astype(np.int32)


def outputs(model, texts):
    module, params = model.module()
    masked = [np.array([[1, 3]] * len(texts))] if isinstance(model.head, MaskedLanguageModel) else []
    output = jax.jit(module.apply)({"params": params}, *rows(model.tokenizer, texts), *masked)
    return output.masked_logits if masked else output.logits


@pytest.mark.parametrize(("name", "kind"), [("bert", "wordpiece"), ("albert", "unigram")])
def test_the_texts_have_equal_outputs(name, kind, tokenizers):
    whole = with_words(name, tokenizers[kind])
    cut = prune_vocabulary(whole, KEPT)
    assert cut.model.vocab_size == cut.tokenizer.vocab_size < whole.model.vocab_size
    assert cut.parameter_count < whole.parameter_count
    before, after = outputs(whole, KEPT), outputs(cut, KEPT)
    if name == "albert":  # logits of the entries that are left
        kept = [index for index in range(whole.model.vocab_size) if whole.tokenizer.token(index) in cut_entries(cut)]
        before = before[..., kept]
    np.testing.assert_allclose(after, before, atol=1e-6)


def cut_entries(model):
    return {model.tokenizer.token(index) for index in range(model.tokenizer.vocab_size)}


def test_a_discriminators_generator_is_cut_too(tokenizers, tmp_path):
    whole = with_words("electra-discriminator", tokenizers["wordpiece"])
    model, head = zoo.CASES["albert"]
    filler = zoo.pretrained(replace(model, vocab_size=whole.model.vocab_size), head)
    old, whole = whole.model.vocab_size, replace(whole, generator=filler)
    cut = prune_vocabulary(replace(whole, unused={"table": np.arange(2.0 * old).reshape(2, old)}), KEPT)
    assert cut.generator.model.vocab_size == cut.model.vocab_size
    kept = [index for index in range(old) if whole.tokenizer.token(index) in cut_entries(cut)]
    np.testing.assert_array_equal(cut.unused["table"], [kept, np.add(kept, old)])
    load_model.write_model(replace(cut, generator=None), tmp_path)
    again = load_model.read_model(tmp_path)
    assert cut_entries(again) == cut_entries(cut)
    np.testing.assert_allclose(outputs(again, KEPT), outputs(cut, KEPT))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join))
@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_texts_of_kept_tokens_are_split_as_before(kind, tokenizers, text):
    whole = with_words("bert", tokenizers[kind])
    cut = prune_vocabulary(whole, TEXT)
    spelled = [
        [words.token(index) for index in words.encode_batch([text])[0]] for words in (whole.tokenizer, cut.tokenizer)
    ]
    assert spelled[0] == spelled[1]


def test_other_words_are_spelled_by_their_characters(tokenizers):
    cut = prune_vocabulary(with_words("bert", tokenizers["wordpiece"]), KEPT)
    assert not cut.tokenizer.unknown_share(["tac dellih"])  # characters of the texts
    assert len(cut.tokenizer.encode_batch(["tac"])[0]) == 3


def test_a_size_keeps_the_most_frequent(tokenizers):
    whole = with_words("bert", tokenizers["wordpiece"])
    counts = count_tokens(whole.tokenizer, KEPT)
    every = prune_vocabulary(whole, KEPT).model.vocab_size
    texts = [*KEPT, *["nineteen"] * 9]
    smaller = prune_vocabulary(whole, texts, every - 3)
    assert smaller.model.vocab_size == every - 3 and "nineteen" in cut_entries(smaller)
    assert counts.sum() == sum(map(len, whole.tokenizer.encode_batch(KEPT)))


def test_the_command(tokenizers, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("whole").mkdir()
    load_model.write_model(with_words("bert", tokenizers["wordpiece"]), Path("whole"))
    Path("texts.txt").write_text("\n".join(KEPT))
    command = ["prune", "vocabulary", "whole", "small", "--input=texts.txt"]
    assert main(command) == 0
    small = load_model.read_model(tmp_path / "small")
    assert f"{small.model.vocab_size}" in capsys.readouterr().out
    for words in (
        command,
        [*command[:3], "gs://a/b", "--input=texts.txt"],
        [*command[:3], "other", "--input=texts.txt", "--size=-1"],
        [*command[:3], "other"],
    ):
        assert main(words) == 2  # OUT exists, a URL, a negative size, no texts
    assert not Path("other").exists()


def test_spare_rows_of_the_table_are_cut(tokenizers, tmp_path):
    """A tokenizer that learnt from a short text has far fewer entries than its model has rows."""
    words = tokenizers["wordpiece"]
    load_model.write_model(with_words("bert", words, rows=10 * words.vocab_size), tmp_path)
    whole = load_model.read_model(tmp_path)
    cut = prune_vocabulary(whole, KEPT)
    assert cut.model.vocab_size == cut.tokenizer.vocab_size < words.vocab_size
    np.testing.assert_allclose(outputs(cut, KEPT), outputs(whole, KEPT), atol=1e-6)
    (tmp_path / "few").mkdir()
    load_model.write_model(with_words("bert", words, rows=words.vocab_size - 1), tmp_path / "few")
    with pytest.raises(UserError):
        load_model.read_model(tmp_path / "few")


def test_what_cannot_be_cut(tokenizers):
    whole = with_words("bert", tokenizers["wordpiece"])
    for model, texts, size in (
        (replace(whole, tokenizer=None), KEPT, 0),
        (whole, ["", " "], 0),
        (whole, KEPT, 7),
        (with_words("bert", tokenizers["bpe"]), ["stones"], 0),
    ):
        with pytest.raises(UserError):
            prune_vocabulary(model, texts, size)
