"""Windows on paragraphs: against BERT's definitions written out, and answers there and back."""

import numpy as np
import pytest
from asking import TOKENIZER, pieces, question
from hypothesis import example, given, settings
from hypothesis import strategies as st
from messages import mentioning

from bertzoo.core.errors import ConfigError, UserError
from bertzoo.data.tokenizers.byte_bpe import ByteBpe
from bertzoo.data.tokenizers.sentencepiece import SentencePiece
from bertzoo.data.tokenizers.tokenizer import build
from bertzoo.tasks import windows
from bertzoo.tasks.rows import Slot, bucket_lengths
from bertzoo.tasks.squad import Answer
from bertzoo.tasks.windows import Windowing, cut

TEXTS = ["Who was born in Japan (1895-1943)? The leader's café, John Smith, and 12,345 others."] * 20
PAIRS = build(ByteBpe(vocab_size=400), lambda: iter(TEXTS))
TOKENIZERS = {
    "wordpiece": TOKENIZER,
    "sentencepiece": build(SentencePiece(vocab_size=60), lambda: iter(TEXTS)),
    "byte_bpe": PAIRS,
}
SMALL = Windowing(max_length=20, stride=4, max_question=5)
small = settings(max_examples=60, deadline=None, derandomize=True)


def make(*questions, windowing=SMALL, labels=True, tokenizer=TOKENIZER):
    return windows.make_windows(questions, tokenizer, windowing, labels)


def slot(rows, length):
    return Slot(np.arange(rows), length)


def ids(encoded, row):
    """A row without padding."""
    (start, length) = (encoded.rows.starts[row], encoded.rows.lengths[row])
    return encoded.rows.ids[start : start + length]


@small
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 30))
@example(410, 300, 250)  # the last window is so much shorter that its size outweighs a piece of context
def test_every_piece_has_one_window_of_most_context(count, room, stride):
    parts = cut(count, room, stride)
    sizes = [len(best) for _, best in parts]
    assert sum(sizes) >= count and all(0 < size <= room for size in sizes)
    assert [first for first, _ in parts] == [i * min(room, stride) for i in range(len(parts))]
    for piece in range(count):
        scores = [
            min(piece - first, first + size - 1 - piece) + 0.01 * size if first <= piece < first + size else -1
            for (first, _), size in zip(parts, sizes, strict=True)
        ]
        owners = [i for i, (first, best) in enumerate(parts) if first <= piece and best[piece - first :][:1].any()]
        assert owners == [scores.index(max(scores))] and max(scores) >= 0
    encoded = make(
        question("a " * count), windowing=Windowing(max_length=room + 6, stride=stride, max_question=2), labels=False
    )
    owned = [window.first + place for window in encoded.windows for place in np.flatnonzero(window.best)]
    assert sorted(owned) == list(range(count))


def test_a_row_is_question_and_part():
    encoded = make(question("the leader , was", text="who was john smith in 1943 , 1895"), labels=False)
    assert " ".join(pieces(ids(encoded, 0))) == "[CLS] who was john smith in [SEP] the leader , was [SEP]"
    empty = make(question("the leader", text=""), labels=False)
    assert " ".join(pieces(ids(empty, 0))) == "[CLS] [SEP] the leader [SEP]"
    batch = make(question("the leader"), question("in"), labels=False).batch(slot(2, 12), 3)
    assert pieces(batch["input_ids"][0]) == [
        "[CLS]", "who", "was", "born", "[SEP]", "the", "leader", "[SEP]", *["[PAD]"] * 4,
    ]  # fmt: skip
    assert batch["token_type_ids"].tolist()[0] == [0] * 5 + [1] * 3 + [0] * 4
    assert batch["attention_mask"].tolist()[1] == [1] * 7 + [0] * 5
    assert pieces(batch["input_ids"][2]) == ["[CLS]", *["[PAD]"] * 11] and batch["attention_mask"][2].sum() == 1
    assert batch["row_weight"].tolist() == [1, 1, 0] and batch["row_weight"].dtype == np.float32
    assert batch.keys() == {"input_ids", "token_type_ids", "attention_mask", "row_weight"}


def test_windows_step_by_the_stride_and_end_with_the_paragraph():
    context = " ".join("abcdefghijklmnopqrstuvwxyz")
    encoded = make(question(context, "k l"), windowing=Windowing(max_length=15, stride=4, max_question=3))
    parts = [pieces(ids(encoded, row))[5:-1] for row in range(len(encoded.windows))]
    assert " ".join("".join(part) for part in parts) == "abcdefghi efghijklm ijklmnopq mnopqrstu qrstuvwxy uvwxyz"
    starts = [(window.start, window.end) for window in encoded.windows]
    assert starts == [(0, 0), (11, 12), (7, 8), (0, 0), (0, 0), (0, 0)]  # kept where the answer is not inside
    edge = make(question(context, "i j"), windowing=Windowing(max_length=15, stride=4, max_question=3))
    assert [(w.start, w.end) for w in edge.windows][:4] == [(0, 0), (9, 10), (5, 6), (0, 0)]
    batch = encoded.batch(slot(6, 15), 6)
    assert batch["start"].tolist() == [0, 11, 7, 0, 0, 0] and batch["end"].dtype == np.int32
    assert batch["answerable"].tolist() == [1.0] * 6 and batch["answerable"].dtype == np.float32


def test_batches_of_several_lengths_hold_every_window_and_outputs_come_back_in_order():
    contexts = ["who was born in japan", " ".join("abcdefghijklmnopqrstuvwxyz"), "the leader", " \n", "smith 1895"]
    several = [question(context, context[-1].strip() or None, key=context) for context in contexts]
    encoded = make(*several, windowing=Windowing(max_length=15, stride=4, max_question=3), labels=False)
    labelled = make(*several[:3], windowing=Windowing(max_length=15, stride=4, max_question=3))
    lengths = bucket_lengths([encoded.rows], 2, 15)
    for seed in (None, 3):
        slots = encoded.rows.plan(2, lengths, seed)
        assert {slot.length for slot in slots} == {8, 15}
        batches = [encoded.batch(slot, 2) for slot in slots]
        restored = encoded.restore(
            slots, [{"ids": batch["input_ids"], "first": batch["input_ids"][:, 0]} for batch in batches]
        )
        assert len(restored) == len(encoded.windows) == len(encoded.rows)
        for row, output in enumerate(restored):
            assert output["ids"][: encoded.windows[row].length].tolist() == ids(encoded, row).tolist()
    with pytest.raises(ValueError, match=mentioning(len(encoded.rows) - len(slots[0].rows), len(encoded.rows))):
        encoded.restore(slots[1:], batches[1:])
    spare = labelled.batch(Slot(np.array([2]), 15), 3)
    assert spare["start"].tolist()[1:] == spare["end"].tolist()[1:] == [0, 0]
    assert spare["answerable"].tolist() == [1, 0, 0]
    assert spare["start"].dtype == spare["end"].dtype == np.int32


def test_the_target_of_an_unanswerable_question_is_its_first_token():
    encoded = make(question("the leader", impossible=True), question("the leader", "leader"))
    batch = encoded.batch(slot(2, 9), 2)
    assert batch["start"].tolist() == [0, 6] and batch["end"].tolist() == [0, 6]
    assert batch["answerable"].tolist() == [0.0, 1.0] and not encoded.skipped


ALIGNED = [  # tokenizer, paragraph, answer and the text that is learnt
    (TOKENIZER, "The leader was John Smith (1895-1943).", "1895", "1895"),
    (TOKENIZER, "The Japanese leader", "Japan", "Japanese"),  # no piece ends there
    (TOKENIZER, "was born 1895-1895", "1895", "1895"),
    (TOKENIZER, "Jöhn, Smíth's", "Jöhn, Smíth", "Jöhn, Smíth"),
    (TOKENIZER, "who  was\tborn", "was\tborn", "was\tborn"),
    (TOKENIZER, "who cafe\u0301 was", "cafe\u0301", "cafe\u0301"),  # an accent that stands apart
    (TOKENIZER, "who ☃ was", "☃", "☃"),  # [UNK]
    (TOKENIZER, " who was", " who", None),  # begins before the first word
    (TOKENIZER, "a who was", " who", "who"),  # the space belongs to the word before, and the answer's piece is inside
    (PAIRS, "«\u00a0Paul\u00a0» was born", "Paul", "Paul"),  # no-break spaces end no word
    (PAIRS, "the leader was born", " leader", "leader"),
    (PAIRS, "John\u202fSmith", "Smith", "Smith"),
]


@pytest.mark.parametrize(("tokenizer", "context", "answer", "expected"), ALIGNED)
def test_answers_are_the_words_they_touch_or_their_own_pieces(tokenizer, context, answer, expected):
    encoded = make(question(context, answer), windowing=Windowing(max_length=60, max_question=5), tokenizer=tokenizer)
    if expected is None:
        assert not encoded.windows and encoded.skipped == {
            "the answer is not in the paragraph where it should start": 1
        }
    else:
        (window,) = encoded.windows
        assert encoded.text(0, window.start, window.end) == expected


def test_the_second_of_two_equal_answers_keeps_its_start():
    context = "born in 1895 and 1943 and born in 1895 again"
    encoded = make(
        question(context, "1895", start=context.rindex("1895")), windowing=Windowing(max_length=30, max_question=5)
    )
    (window,) = encoded.windows
    assert pieces(ids(encoded, 0))[window.start :][:2] == ["1895", "a"] and window.start > 15


words = st.text(st.sampled_from("abc19é'-(),.\u0301字☃ﬁＡß"), min_size=1, max_size=6)
spaces = st.sampled_from([" ", "  ", "\n", "\u202f", "\t "])


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@small
@given(st.lists(st.tuples(words, spaces), min_size=1, max_size=25), st.data())
def test_answers_of_whole_words_are_recovered(tokenizer, several, data):
    context = "".join(word + space for word, space in several)
    first = data.draw(st.integers(0, len(several) - 1))
    last = data.draw(st.integers(first, min(first + 2, len(several) - 1)))
    start = sum(len(word + space) for word, space in several[:first])
    answer = "".join(word + space for word, space in several[first : last + 1])[: -len(several[last][1])]
    windowing = Windowing(max_length=200, stride=50, max_question=5)
    encoded = make(question(context, answer, start=start), windowing=windowing, tokenizer=tokenizer)
    inside = [row for row, window in enumerate(encoded.windows) if window.start]
    if not encoded.skipped:
        assert inside
    for row in inside:
        text = encoded.text(row, encoded.windows[row].start, encoded.windows[row].end)
        assert text == answer or ("\u0301" in answer and text in answer)  # alone it has no piece


@pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
@small
@given(st.lists(words, min_size=1, max_size=12))
def test_pieces_equal_those_of_the_words_and_offsets_cover_them(tokenizer, several):
    context = " ".join(several)
    found = make(question(context), labels=False, tokenizer=tokenizer).pieces[context]
    spaced = [*several[:1], *map(tokenizer.after_space, several[1:])]
    np.testing.assert_array_equal(found.ids, np.concatenate(tokenizer.encode_batch(spaced)))
    assert len(found.words) == len(several) + 1 and [context[a:b] for a, b in found.spans] == several
    for (first, past), (start, end) in zip(zip(found.words, found.words[1:], strict=False), found.spans, strict=True):
        offsets = found.offsets[first:past]
        assert np.all(offsets[:, 0] <= offsets[:, 1]) and np.all(np.diff(offsets, axis=0) >= 0)
        assert np.all(offsets >= start) and np.all(offsets <= end)


def test_byte_pairs_of_a_paragraph_are_those_of_running_text():
    (context,) = set(TEXTS)
    answer = "John Smith"
    windows = make(question(context, answer), windowing=Windowing(max_length=200), tokenizer=PAIRS)
    np.testing.assert_array_equal(windows.pieces[context].ids, PAIRS.encode_batch([context])[0])
    assert windows.text(0, windows.windows[0].start, windows.windows[0].end) == answer


SKIPPED = {
    "the answer is not in the paragraph where it should start": question("who was born", "born", start=0),
    "the answer ends beyond the paragraph": question("who was born", "born and", start=8),
    "the answer has no text": question("who was born", " ", start=3),
    "the answer has no token": question("who \u200d was", "\u200d"),
    "the paragraph has no token": question(" \n", impossible=True),
}


@pytest.mark.parametrize("reason", SKIPPED)
def test_unlearnable_questions_are_skipped_and_counted(reason):
    good = question("who was born", "was", key="good")
    encoded = make(good, SKIPPED[reason], good)
    assert encoded.skipped == {reason: 1} and [window.question for window in encoded.windows] == [0, 2]
    found = {window.question for window in make(good, SKIPPED[reason], good, labels=False).windows}
    assert found == ({0, 2} if "paragraph has" in reason else {0, 1, 2})


def test_unlearnable_questions_have_weight_zero_without_nulls():
    good, bad = question("who was born", "was", key="good"), question("who was born", "leader", start=0)
    nowhere = question("who was born", key="nowhere")._replace(answers=(Answer("smith", None),))
    encoded = windows.make_windows([good, bad, nowhere], TOKENIZER, SMALL, labels=True, every=True)
    assert not encoded.skipped and [window.question for window in encoded.windows] == [0, 1, 2]
    batch = encoded.batch(slot(3, 20), 4)
    assert batch["row_weight"].tolist() == [1, 0, 0, 0] and batch["start"].tolist() == [6, 0, 0, 0]
    assert make(nowhere).skipped == {"the answer is not in the paragraph": 1}


def test_case_differences_do_not_skip_an_answer():
    assert make(question("Who Was Born", "who was", start=0)).windows[0].start == 5


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (question("who", "who", start=3), ("question q", "character 3", "3 characters")),
        (question("who", "who", start=-1), ("question q", "character -1")),
        (question("who"), ("question q", "is_impossible")),
    ],
)
def test_errors_name_the_question(bad, message):
    with pytest.raises(UserError, match=mentioning(*message)):
        make(bad)
    assert make(bad, labels=False).windows


def test_settings_that_leave_no_room_raise():
    with pytest.raises(ConfigError, match=mentioning("max_length", 67, "max_question", 64)):
        Windowing(max_length=67)
    assert Windowing(max_length=68)
    for name in ("stride", "max_question"):
        with pytest.raises(ConfigError, match=mentioning(name, 0)):
            Windowing(**{name: 0})
