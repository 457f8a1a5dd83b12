"""Entities in raw text: spans become tags of words and return with the same characters; windows, paths, errors."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import tokenizer, write
from messages import mentioning

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.tokenizer import build
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.tasks.custom import CustomFiles
from bertzoo.tasks.entities import (
    Entity,
    best_path,
    by_word,
    entity_records,
    find_words,
    legal_steps,
    make_text_windows,
    tag_words,
    tags_of,
)
from bertzoo.tasks.metrics import entities
from bertzoo.tasks.rows import Slot

NAMES = ["Ada", "Zoë", "José", "日本", "👩\u200d💻", "❤️", "Straße", "ﬁn", "½", "İzmir", "Ὀδυσσεύς", "नमस्ते", "a_b@c.de"]
TEXTS = ["The quick brown fox, Ada's: " + " ".join(NAMES), "Wordy worlds (in a world) of 12,345 things."] * 20
TOKENIZERS = {
    "wordpiece": WordPiece(vocab_size=150),
    "cased": WordPiece(vocab_size=150, lowercase=False),
    "unigram": SentencePiece(vocab_size=110),
    "cased-unigram": SentencePiece(vocab_size=110, lowercase=False, strip_accents=False),
    "bpe": SentencePiece(vocab_size=110, algorithm="bpe"),
}
MADE = {name: build(config, lambda: iter(TEXTS)) for name, config in TOKENIZERS.items()}
ANY = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("aé ,\u0301\u200d\ufe0f👩💻ﬃ½\u3000\tΣ"), max_size=30
)
LETTERS = tokenizer()


def tagged(
    text: str, *spans: tuple[int, int, str], made: Any = LETTERS, aggregation: Any = "first", scheme: Any = "BIO"
):
    """The tags of a text's words, and its words."""
    (pieces,) = find_words([text], made, aggregation)
    tags = tags_of(("NAME", "X"), scheme)
    found = tag_words([Entity(*span, "here") for span in spans], text, pieces, tags)
    return [tags[tag] for tag in found], pieces


@pytest.mark.parametrize("aggregation", ["first", "simple"])
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(before=ANY, after=ANY, entity=st.sampled_from(NAMES))
def test_offsets_are_those_of_the_entity_in_any_text(name: str, aggregation: str, before: str, after: str, entity: str):
    text = f"{before} {entity} {after}"
    start = len(before) + 1
    tags, pieces = tagged(text, (start, start + len(entity), "NAME"), made=MADE[name], aggregation=aggregation)
    (found,) = entity_records(text, pieces, tags, np.ones(len(tags)))
    assert found == {"start": start, "end": start + len(entity), "label": "NAME", "score": 1.0, "text": entity}


@pytest.mark.parametrize("aggregation", ["first", "simple"])
@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=50)
@given(text=ANY, data=st.data())
def test_every_range_of_words_returns(name: str, aggregation: str, text: str, data: st.DataObject):
    _, pieces = tagged(text, made=MADE[name], aggregation=aggregation)
    places = [tuple(place) for place in pieces.spans.tolist() if place[0] < place[1]]
    flat = list(itertools.chain.from_iterable(places))
    assert flat == sorted(flat) and all(0 <= place <= len(text) for place in flat)
    assert all(text[a:b] == text[a:b].strip() for a, b in places)
    if not places:
        return
    borders = sorted(data.draw(st.sets(st.integers(0, len(places)), max_size=4)))
    spans = [(places[a][0], places[b - 1][1], "NAME") for a, b in itertools.pairwise(borders)]
    for scheme in ("BIO", "BIOES"):
        tags, _ = tagged(text, *spans, made=MADE[name], aggregation=aggregation, scheme=scheme)
        found = [(e["start"], e["end"], e["label"]) for e in entity_records(text, pieces, tags, np.ones(len(tags)))]
        assert found == spans
        outside = ["O", *tags, "O"]
        names = [*tags_of(("NAME", "X"), scheme)]
        steps = legal_steps(names)
        assert all(steps[names.index(a), names.index(b)] == 0 for a, b in itertools.pairwise(outside))


def test_punctuation_and_chinese_are_words_in_every_tokenizer():
    text = "(Ada), a.b 日本x"
    for name, made in MADE.items():
        (pieces,) = find_words([text], made, "first")
        words = [text[a:b] for a, b in pieces.spans.tolist() if a < b]
        assert words[:7] == ["(", "Ada", ")", ",", "a", ".", "b"], name
        assert "日" in words and "本" in words and words[-1] == "x", name


def test_spans_that_split_a_word_raise_and_name_the_word():
    text = "the cats, sat"
    assert tagged(text, (4, 8, "NAME"))[0] == ["O", "B-NAME", "O", "O"]
    assert tagged(text, (3, 9, "NAME"))[0] == ["O", "B-NAME", "I-NAME", "O"]  # white space counts nowhere
    assert tagged(text, (4, 8, "NAME"), scheme="BIOES")[0] == ["O", "S-NAME", "O", "O"]
    assert tagged(text, (4, 13, "X"), scheme="BIOES")[0] == ["O", "B-X", "I-X", "E-X"]
    with pytest.raises(UserError, match=mentioning("here", 4, 7, "'cat'", 8, "'cats'", "aggregation", "simple")):
        tagged(text, (4, 7, "NAME"))
    assert tagged(text, (4, 7, "NAME"), aggregation="simple")[0] == ["O", "B-NAME", "O", "O", "O"]
    with pytest.raises(UserError, match=mentioning("here", 3, 4, "no token")):
        tagged(text, (3, 4, "NAME"))


SPANS = [
    ('{"text": "a b"}', ("'spans'", "list")),
    ('{"text": "a b", "spans": {}}', ("'spans'", "object")),
    ('{"text": "a b", "spans": [[0, 1, "X"]]}', ("span 1", "list")),
    ('{"text": "a b", "spans": [{"start": 0, "end": 1}]}', ("span 1", "label")),
    ('{"text": "a b", "spans": [{"start": "0", "end": 1, "label": "X"}]}', ("span 1", "start", "integer")),
    ('{"text": "a b", "spans": [{"start": true, "end": 1, "label": "X"}]}', ("span 1", "start")),
    ('{"text": "a b", "spans": [{"start": 0, "end": 1.0, "label": "X"}]}', ("span 1", "end")),
    ('{"text": "a b", "spans": [{"start": 0, "end": 1, "label": " "}]}', ("span 1", "label")),
    ('{"text": "a b", "spans": [{"start": 2, "end": 4, "label": "X"}]}', ("span 1", "2 to 4", 3)),
    ('{"text": "a b", "spans": [{"start": 1, "end": 1, "label": "X"}]}', ("span 1", "1 to 1")),
    ('{"text": "a b", "spans": [{"start": -1, "end": 1, "label": "X"}]}', ("span 1", "-1 to 1")),
    (
        '{"text": "a b", "spans": [{"start": 2, "end": 3, "label": "X"}, {"start": 0, "end": 3, "label": "Y"}]}',
        ("span 1", "span 2", "overlaps"),
    ),
    ('{"text": "a b", "spans": [{"start": 0, "end": 1, "label": "Z"}]}', ("span 1", "'Z'", "X, Y")),
    ('{"text": " ", "spans": []}', ("'text'", "empty")),
]


@pytest.mark.parametrize(("line", "parts"), SPANS)
def test_a_wrong_span_names_file_row_and_span(tmp_path: Path, line: str, parts: tuple):
    write(tmp_path / "a.jsonl", '{"text": "a", "spans": []}', line)
    with pytest.raises(UserError, match=mentioning("a.jsonl", "line 2", *parts)):
        CustomFiles(kind="entities", train="a.jsonl", labels=("X", "Y")).task(tmp_path).read("train", tmp_path)


def test_spans_come_from_json_lines_csv_and_conll(tmp_path: Path):
    spans = [{"start": 8, "end": 11, "label": "LOC", "more": 1}, {"start": 0, "end": 3, "label": "PER"}]
    write(tmp_path / "a.jsonl", json.dumps({"text": "Ada met Ems", "spans": spans}), '{"text": "b", "spans": []}')
    cell = json.dumps(spans).replace('"', '""')
    write(tmp_path / "a.csv", "text,spans", f'Ada met Ems,"{cell}"', "b,[]")
    write(tmp_path / "a.conll", "Ada B-PER", "met O", "Ems I-LOC", "", "b O")
    for name in ("a.jsonl", "a.csv", "a.conll"):
        columns: Any = {"text_a": "0", "spans": "1"} if name == "a.conll" else {}
        task = CustomFiles(kind="entities", train=name, test=name, **columns).task(tmp_path)
        assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER") and task.metrics[0] == "entity_f1"
        for split in ("train", "test"):
            first, second = task.read(split, tmp_path).examples
            assert [e[:3] for e in first.label] == [(0, 3, "PER"), (8, 11, "LOC")] and second.label == ()
            assert (first.text_a, second.text_a) == ("Ada met Ems", "b")
    write(tmp_path / "test.csv", "text", "a")
    later = CustomFiles(kind="entities", train="a.csv", test="test.csv", scheme="BIOES").task(tmp_path)
    assert later.read("test", tmp_path).examples[0].label is None and len(later.labels) == 9
    write(tmp_path / "words.conll", "Ada", "met")
    bare = CustomFiles(kind="entities", train="a.conll", test="words.conll", text_a="0", spans="1").task(tmp_path)
    (words,) = bare.read("test", tmp_path).examples
    assert (words.text_a, words.label) == ("Ada met", None)
    write(tmp_path / "a.jsonl", '{"text": "b", "spans": []}')
    with pytest.raises(UserError, match=mentioning("a.jsonl", "no entity", "'spans'")):
        CustomFiles(kind="entities", train="a.jsonl").task(tmp_path)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_the_path_is_the_best_legal_one(words: int, closed: bool, seed: int):
    tags = tags_of(("X",), "BIOES" if closed else "BIO")
    scores = np.random.default_rng(seed).normal(size=(words, len(tags)))

    def legal(path: tuple[int, ...]) -> bool:
        """Whether the tags are those of the entities that they form."""
        named = [tags[tag] for tag in path]
        again = ["O"] * words
        for kind, first, last in entities(named):
            again[first : last + 1] = [f"I-{kind}"] * (last + 1 - first)
            again[first] = f"B-{kind}"
            if closed:
                again[last] = f"{'S' if first == last else 'E'}-{kind}"
        return named == again

    paths = filter(legal, itertools.product(range(len(tags)), repeat=words))
    best = max(paths, key=lambda path: sum(scores[range(words), path]))
    assert best_path(scores, legal_steps(tags), 0).tolist() == list(best)


def test_a_words_probabilities_are_of_its_first_its_surest_or_all_tokens():
    chances = np.array([[0.4, 0.6], [0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    words = np.array([0, 2, 4])
    assert by_word(chances, words, "first").tolist() == [[0.4, 0.6], [0.2, 0.8]]
    assert by_word(chances, words, "max").tolist() == [[0.9, 0.1], [0.2, 0.8]]
    np.testing.assert_allclose(by_word(chances, words, "average"), [[0.65, 0.35], [0.35, 0.65]])
    for aggregation in ("first", "max", "average", "simple"):
        assert by_word(chances[:0], words[:1], aggregation).shape == (0, 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text("ab ,", max_size=60), min_size=1, max_size=4), st.integers(3, 12), st.booleans())
def test_each_token_counts_once_in_the_window_with_most_context(texts: list[str], max_length: int, every: bool):
    pieces = find_words(texts, LETTERS, "first")
    tags = [np.arange(len(one.spans)) % 5 for one in pieces]
    keys = [str(i) for i in range(len(texts))]
    made = make_text_windows(keys, pieces, LETTERS, max_length, 0, tags, every)
    assert made.rows.first is not None
    assert made.rows.first.sum() == sum(len(one.ids if every else one.spans) for one in pieces)
    bare = make_text_windows(keys, pieces, LETTERS, max_length, 0)
    assert bare.rows.lengths.max() <= max_length and {w.text for w in bare.windows} == set(range(len(texts)))
    slots = [Slot(np.array([row]), max_length) for row in range(len(bare.rows))]
    ids = [bare.rows.batch(slot, 2)["input_ids"][..., None] for slot in slots]
    joined = bare.join(slots, ids)
    assert [one[:, 0].astype(int).tolist() for one in joined] == [one.ids.tolist() for one in pieces]
    labelled = [made.rows.batch(Slot(np.array([row]), max_length), 1) for row in range(len(made.rows))]
    for row, batch in zip(made.windows, labelled, strict=True):
        weights = batch["label_weight"][0, 1 : 1 + len(row.best)] > 0
        assert (weights.any() or not row.first) and not (weights & ~row.best).any()
        expected = np.repeat(tags[row.text], np.diff(pieces[row.text].words))[row.first : row.first + len(row.best)]
        assert (batch["label"][0, 1 : 1 + len(row.best)][weights] == expected[weights]).all()


def test_a_row_without_room_raises():
    with pytest.raises(ConfigError, match=mentioning("max_length", 2, 3)):
        make_text_windows(["0"], find_words(["a"], LETTERS, "first"), LETTERS, 2, 0)
