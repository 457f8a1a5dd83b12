"""Golden rows: every length has some, and each text has the shortest length that holds it."""

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import zoo
from zoo import CASES

from bertzoo.conversion.tokenizers import write_tokenizer
from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.data.tokenizers.wordpiece import WordPiece, WordPieceTokenizer
from bertzoo.export.check import golden, verify
from bertzoo.export.convert import _request
from bertzoo.export.options import ExportOptions
from bertzoo.heads import SequenceClassification
from bertzoo.models import Bert

BERT = Bert(**zoo.SIZES, layers=1, heads=4, feed_forward_size=20)


@pytest.fixture(scope="module", params=[120, 600])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """One with short pieces, and one that has most words as a whole."""
    return tokenizers.build(WordPiece(vocab_size=request.param), lambda: iter(verify.TEXT * 20))


@pytest.mark.parametrize("lengths", [(32, 64, 128), (128, 64, 32, 256, 384, 512), (8,), (512,)])
def test_every_length_has_rows(tokenizer: Tokenizer, lengths: tuple[int, ...]):
    found = golden.place_texts(tokenizer, lengths)
    for texts, length in found:
        count = len(golden.encode_texts(tokenizer, texts)[0])
        assert max((other for other in lengths if other < length), default=0) < count <= length, texts
    for length in lengths:
        of = [texts for texts, other in found if other == length]
        assert len(of) >= 3 and len(set(of)) == len(of), length
        fullest = max(len(golden.encode_texts(tokenizer, texts)[0]) for texts in of)
        assert fullest >= length - 12, length  # up to one word, of at most a dozen pieces here
    assert max(lengths) == 8 or any(len(texts) == 2 for texts, _ in found)


def test_all_texts_follow_a_question_on_request(tokenizer: Tokenizer):
    """So that every row has a text to answer from."""
    found = golden.place_texts(tokenizer, (32, 64, 128), questions=True)
    assert all(len(texts) == 2 and len(texts[0]) < 80 for texts, _ in found)
    assert {length for _, length in found} == {32, 64, 128}
    counts = [len(golden.encode_texts(tokenizer, texts)[0]) for texts, length in found if length == 128]
    assert 116 <= max(counts) <= 128


def test_a_length_too_short_for_any_word_has_no_rows(tokenizer: Tokenizer):
    assert golden.place_texts(tokenizer, (2,)) == [] and golden.place_texts(tokenizer, (2, 64))


def test_a_text_may_fill_its_row(tokenizer: Tokenizer):
    texts = golden.TEXTS[0]
    count = len(golden.encode_texts(tokenizer, texts)[0])
    assert golden.place_texts(tokenizer, (count, 512))[0] == (texts, count)


def test_a_row_attends_to_its_tokens_and_to_no_padding(tokenizer: Tokenizer):
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    ids, types = golden.encode_texts(tokenizer, ("What is a clock?", "A clock."))
    row = golden.pad_row(names, tokenizer, ids, types, len(ids) + 3)
    assert row["attention_mask"].tolist() == [1] * len(ids) + [0] * 3
    assert row["input_ids"].tolist() == [*ids.tolist(), *[tokenizer.specials.pad] * 3]
    second = ids.tolist().index(tokenizer.specials.sep) + 1
    assert row["token_type_ids"].tolist() == [0] * second + [1] * (len(ids) - second) + [0] * 3
    full = golden.pad_row(names, tokenizer, ids, types, len(ids))
    assert np.all(full["attention_mask"] == 1)


def test_rows_to_verify_a_file_have_padding_pairs_and_a_mask(tokenizer: Tokenizer):
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    model = SimpleNamespace(embedding=SimpleNamespace(word=SimpleNamespace(rows=tokenizer.vocab_size)))
    rows: list[Any] = verify.sample_rows(cast(Any, SimpleNamespace(inputs=names, model=model)), tokenizer, 32)
    assert [int(row["attention_mask"].sum()) for row in rows] == [32, 24, 16, 8]
    assert [bool(row["token_type_ids"].any()) for row in rows] == [False, True, False, True]
    specials = tokenizer.specials
    for row in rows:
        ids, types, tokens = row["input_ids"][0], row["token_type_ids"][0], row["attention_mask"][0] > 0
        assert (ids[0], ids[tokens][-1]) == (specials.cls, specials.sep) and not types[~tokens].any()
        assert (ids[~tokens] == specials.pad).all() and specials.pad not in ids[tokens]
        assert ids[row["masked_positions"][0]].tolist() == [specials.mask]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café CRÈME", "cafe creme"),
        ("İstanbul", "istanbul"),
        ("zero\u200bwidth", "zerowidth"),
        ("a\tb\u00a0c", "a b c"),
        ("ΟΔΟΣ", "οδοσ"),
    ],
)
def test_a_text_prepared_for_a_tokenizer_in_a_file(text: str, expected: str):
    assert golden.prepared(text, {"lowercase": True, "strip_accents": True}) == expected
    assert golden.prepared("Café\xad", {"lowercase": True, "strip_accents": False}) == "café"
    assert golden.prepared("CAFÉ\u200b", {"lowercase": False, "strip_accents": False}) == "CAFÉ"


def test_sample_apps_get_the_ids_of_unusual_texts(tokenizer: Tokenizer, tmp_path, monkeypatch):
    """examples/tokens.py writes tokens.json, which the apps' own tests compare with their tokenizers."""
    folder = tmp_path / "model.tflite.files"
    folder.mkdir()
    write_tokenizer(tokenizer, folder, CASES["bert"][0])
    (tmp_path / "model.tflite.json").write_text('{"head": {"kind": "none"}}')
    monkeypatch.setattr(sys, "argv", ["tokens.py", str(tmp_path / "model.tflite")])
    runpy.run_path(str(Path(__file__).parents[2] / "examples/tokens.py"), run_name="__main__")
    rows = json.loads((folder / "tokens.json").read_text(encoding="utf-8"))
    texts = [row["text"] for row in rows]
    assert {*golden.TRICKY} < {*texts} and len({*texts}) == len(texts)
    assert [row["ids"] for row in rows] == [ids.tolist() for ids in tokenizer.encode_batch(texts)]


def test_a_file_depends_on_its_models_config_labels_and_vocabulary(tokenizer: Tokenizer):
    made = replace(zoo.pretrained(BERT, SequenceClassification(labels=("a", "b"))), tokenizer=tokenizer)
    entries = [tokenizer.token(index) for index in range(tokenizer.vocab_size)]
    swapped = WordPieceTokenizer(tokenizer.config, [*entries[:-2], *entries[:-3:-1]], "here")
    others = [
        replace(made, model=replace(BERT, activation="relu")),
        replace(made, head=replace(made.head, labels=("a", "c"))),
        replace(made, tokenizer=swapped),
    ]
    requests = {_request(ExportOptions(to="litert"), one, (), {}) for one in (made, *others)}
    assert len(requests) == 4 and _request(ExportOptions(to="litert"), made, (), {}) in requests
