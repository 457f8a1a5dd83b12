"""Tokenizers against a plain greedy matcher, their files, and errors."""

import subprocess
import sys

import numpy as np
import pytest
from messages import mentioning
from tiers import quick

from bertzoo.core.errors import ConfigError, CorpusError, UserError
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.sentencepiece import SentencePiece, sentencepiece_library
from bertzoo.data.tokenizers.tokenizer import build
from bertzoo.data.tokenizers.wordpiece import WordPiece

TEXTS = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Wording words in a wordy world; worlds apart.",
    "Café au lait: 日本 and 12,345 things (or [MASK] more).",
] * 20
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONFIGS = [WordPiece(vocab_size=120), SentencePiece(vocab_size=60), SentencePiece(vocab_size=60, algorithm="bpe")]


@pytest.fixture(scope="module", params=CONFIGS)
def trained(request):
    return build(request.param, lambda: iter(TEXTS))


def vocabulary(tmp_path, entries):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(entries) + "\n", encoding="utf-8")
    return str(path)


def greedy(words, entries):
    """WordPiece from its definition: the longest entry that matches, again and again (Devlin et al. 2019)."""
    pieces = []
    for word in words:
        start, found = 0, []
        while start < len(word):
            ends = (e for e in range(len(word), start, -1) if ("##" if start else "") + word[start:e] in entries)
            end = next(ends, None)
            if end is None:
                found = ["[UNK]"]
                break
            found.append(("##" if start else "") + word[start:end])
            start = end
        pieces += found
    return pieces


def test_wordpiece_matches_greedily():
    trained = build(WordPiece(vocab_size=120), lambda: iter(TEXTS))
    entries = {trained.token(i) for i in range(trained.vocab_size)}
    words = ["the", "wordy", "fox", ",", "worlding", "lazily", "zzz", "!", "doesnt", "apart"]
    ids = trained.encode_batch([" ".join(words)])[0]
    assert [trained.token(i) for i in ids] == greedy(words, entries)
    assert ids.dtype == np.int32 and "[UNK]" in greedy(words, entries)


def test_layout_continuation_and_round_trip(trained, tmp_path):
    assert list(vars(trained.specials).values()) == [0, 1, 2, 3, 4]
    assert not trained.continuation[:5].any() and trained.continuation.any()
    assert len(trained.continuation) == trained.vocab_size <= trained.config.vocab_size
    tokenizer.save(trained, trained.config, tmp_path)
    loaded = tokenizer.load(tmp_path)
    texts = ["The lazy dog words", "", "日本 café"]
    for ours, theirs in zip(trained.encode_batch(texts), loaded.encode_batch(texts), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.decode(loaded.encode_batch(["The lazy dog"])[0]) == "the lazy dog"
    assert "[MASK]" in loaded.decode([loaded.specials.mask])


def test_special_tokens_in_the_text_become_ids_only_on_request(trained):
    ids = trained.encode_batch(["a [MASK] and [SEP] [CLS] [PAD] <pad>"])[0]
    assert not np.isin(ids, [0, 2, 3, 4]).any()
    quick, fox = (ids.tolist() for ids in trained.encode_batch(["the quick", "brown fox"]))
    names = [trained.token(index) for index in range(5)]
    texts = [f"the quick {names[4]} brown fox", f"{names[2]}the quick{names[3]}{names[0]}", "", names[4], "the quick"]
    encoded = trained.encode_batch(texts, specials=True)
    assert [ids.tolist() for ids in encoded] == [[*quick, 4, *fox], [2, *quick, 3, 0], [], [4], quick]
    assert {ids.dtype for ids in encoded} == {np.dtype(np.int32)}
    for specials in (False, True):
        with pytest.raises(UserError, match=mentioning("'the quick'")):
            trained.encode_batch("the quick", specials=specials)


def test_continuation_marks_where_words_begin(trained):
    text = "quick brown worlds apart"
    ids = trained.encode_batch([text])[0]
    assert int((~trained.continuation[ids]).sum()) >= len(text.split())
    first = [trained.encode_batch([word])[0][0] for word in text.split()]
    assert not trained.continuation[first].any()


@pytest.mark.parametrize(
    ("config", "text", "decoded"),
    [
        (WordPiece(vocab_size=200), "Café", "cafe"),
        (WordPiece(vocab_size=200, strip_accents=False), "Café", "café"),
        (WordPiece(vocab_size=200, lowercase=False), "Café", "Café"),
        (WordPiece(vocab_size=200, lowercase=False, strip_accents=True), "Café", "Cafe"),
        (SentencePiece(vocab_size=80), "Café", "cafe"),
        (SentencePiece(vocab_size=80, strip_accents=False), "Café", "café"),
        (SentencePiece(vocab_size=80, lowercase=False), "Café", "Cafe"),
    ],
)
def test_case_and_accents_follow_the_options(config, text, decoded):
    trained = build(config, lambda: iter(TEXTS))
    assert trained.decode(trained.encode_batch([text])[0]) == decoded


def test_cjk_characters_are_split_only_if_configured():
    split, whole = (build(WordPiece(vocab_size=200, split_cjk=flag), lambda: iter(TEXTS)) for flag in (True, False))
    assert [split.token(i) for i in split.encode_batch(["日本"])[0]] == ["日", "本"]
    assert "".join(whole.token(i) for i in whole.encode_batch(["日本"])[0]).replace("##", "") == "日本"
    assert whole.continuation[whole.encode_batch(["日本"])[0]][1:].all()


SCRIPT = """
import sys, pathlib
from bertzoo.data.tokenizers import tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
config = {"wordpiece": WordPiece, "sentencepiece": SentencePiece}[sys.argv[1]](vocab_size=150)
texts = [f"the {a}{b} {b}{c} {c}{a}" for a in "abcdefgh" for b in "stuvwxyz" for c in "klmnop"]
tokenizer.save(tokenizer.build(config, lambda: iter(texts)), config, pathlib.Path(sys.argv[2]))
print(tokenizer.fingerprint(pathlib.Path(sys.argv[2])))
"""


@pytest.mark.parametrize("kind", quick(["wordpiece", "sentencepiece"], "wordpiece"))
def test_training_is_the_same_in_every_process(kind, tmp_path):
    prints = [
        subprocess.check_output(
            [sys.executable, "-c", SCRIPT, kind, str(tmp_path / str(seed))],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path), "RAYON_NUM_THREADS": str(seed)},
            text=True,
        )
        for seed in (1, 2, 3)
    ]
    assert len(set(prints)) == 1 and len(prints[0]) == 65


def test_bad_vocabularies_raise_by_name(tmp_path):
    for missing in SPECIALS:
        path = vocabulary(tmp_path, [entry for entry in [*SPECIALS, "a", "b"] if entry != missing])
        with pytest.raises(CorpusError, match=mentioning("vocab.txt", missing)):
            WordPiece(path=path).load()
    with pytest.raises(CorpusError, match=mentioning("nothing.txt")):
        WordPiece(path=str(tmp_path / "nothing.txt")).load()
    with pytest.raises(CorpusError, match=mentioning("'a'")):
        WordPiece(path=vocabulary(tmp_path, [*SPECIALS, "a", "a"])).load()
    with pytest.raises(CorpusError, match=mentioning(7, "vocab_size", 6)):
        WordPiece(path=vocabulary(tmp_path, [*SPECIALS, "a", "b"]), vocab_size=6).load()
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\n\xff\xfe")
    with pytest.raises(CorpusError, match=mentioning("vocab.txt", "UTF-8")):
        WordPiece(path=str(tmp_path / "vocab.txt")).load()
    with pytest.raises(CorpusError, match=mentioning("vocab.txt", "SentencePiece")):
        SentencePiece(path=str(tmp_path / "vocab.txt")).load()
    with pytest.raises(CorpusError, match=mentioning("source")):
        build(WordPiece(), lambda: iter(()))
    with pytest.raises(ConfigError, match=mentioning("vocab_size", 5)):
        WordPiece(vocab_size=5)


@pytest.mark.parametrize("entry", ["a\0b", "a\rb", "\r", "ab\r"])
def test_a_vocabulary_with_nul_or_carriage_return_raises(tmp_path, entry):
    names = [*SPECIALS, "a"]
    file = tmp_path / "vocab.txt"
    file.write_bytes("\n".join([*names, entry, ""]).encode())
    with pytest.raises(CorpusError, match=mentioning(file, repr(entry), 6)):
        WordPiece(path=str(file)).load()
    file.write_bytes("\r\n".join([*names, "b", ""]).encode())  # a file of Windows
    made = WordPiece(path=str(file)).load()
    assert [made.token(index) for index in range(made.vocab_size)] == [*names, "b"]


def test_a_sentencepiece_model_without_mask_raises(tmp_path):
    sentencepiece_library().SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with pytest.raises(CorpusError, match=mentioning("spiece.model", "<pad>, [CLS], [SEP], [MASK]")):
        SentencePiece(path=str(tmp_path / "spiece.model")).load()


def test_a_damaged_directory_raises(tmp_path):
    config = WordPiece(vocab_size=120)
    with pytest.raises(CorpusError, match=mentioning("settings.json")):
        tokenizer.load(tmp_path)
    tokenizer.save(build(config, lambda: iter(TEXTS)), config, tmp_path)
    (tmp_path / "settings.json").write_text('{"kind": "wordpiece"')
    with pytest.raises(CorpusError, match=mentioning("settings.json")):
        tokenizer.load(tmp_path)


def test_offsets_count_characters_of_the_original_text(trained):
    """In ASCII text every character except spaces is in one piece; in any text the ids equal encode_batch's."""
    texts = [TEXTS[0], "The café's ﬁsh, 日本; cafe\u0301 A\u00a0B ☃ ½", "12,345, or 19,", "``The fox''", "", " \u0301"]
    for text, ids, (same, offsets) in zip(
        texts, trained.encode_batch(texts), trained.encode_offsets(texts), strict=True
    ):
        np.testing.assert_array_equal(same, ids)
        assert offsets.shape == (len(ids), 2) and offsets.dtype == np.int32
        covered = [text[start:end].replace(" ", "") for start, end in offsets]
        if text.isascii():
            assert "".join(covered) == text.replace(" ", "")
        for part, index in zip(covered, ids, strict=True):
            entry = trained.token(index).removeprefix("##").removeprefix("▁")
            if part.isascii() and part and index != trained.specials.unk:
                assert part.lower().replace("``", '"').replace("''", '"') == entry
    (_, offsets) = trained.encode_offsets(["Éa ½"])[0]
    assert offsets.tolist()[-1] == [3, 4] and [0, 1] in offsets.tolist()


def test_a_number_and_its_comma_have_offsets_of_their_own():
    """ALBERT's code cuts such pieces; within a text, where a space belongs to the piece, as at its beginning."""
    texts = ["of " + " ".join(f"{i}," for i in range(10, 100))] * 50
    trained = build(SentencePiece(vocab_size=60), lambda: iter(texts))
    assert "▁99," in [trained.token(index) for index in range(trained.vocab_size)]
    for text in ("99,", "of 99, 19, f"):
        ids, offsets = trained.encode_offsets([text])[0]
        places = map(tuple, offsets.tolist())
        commas = [place for index, place in zip(ids, places, strict=True) if trained.token(index) == ","]
        assert commas == [(i, i + 1) for i, character in enumerate(text) if character == ","]
        before = [text[a:b] for a, b in offsets.tolist() if (b, b + 1) in commas]
        assert len(before) == text.count(",") and all(part.strip().isdigit() for part in before)


def test_a_missing_sentencepiece_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match=mentioning("needs the extra sentencepiece", "'.[sentencepiece]'")):
        SentencePiece(vocab_size=50).train(lambda: iter(["some text"]))
