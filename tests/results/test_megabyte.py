"""The texts of a small classifier: pairs with tagged words, and a part of the training set that chooses."""

from benchmarks.learning import megabyte


def test_tags_say_which_words_the_other_text_has():
    row = megabyte.compared(["The", "cat", "sat"], ["a", "Cat"])
    assert row["words"] == ["The", "cat", "sat", megabyte.BETWEEN, "a", "Cat"]
    assert row["tags"] == ["0", "1", "0", "0", "0", "1"]
    assert row["share"] == 2.0


def test_pairs_share_words_of_their_sources():
    sources = [["a b c d e f"], ["u v w x y z", "one"]]
    drawn = [*megabyte.pairs(sources, 300)]
    known = {word for source in sources for text in source for word in text.split()}
    assert all(first and second and {*first, *second} <= known for first, second in drawn)
    shares = [megabyte.compared(*both)["share"] for both in drawn]
    assert min(shares) == 0
    assert max(shares) == 5


def test_no_training_row_is_a_part_of_a_text_held_out():
    whole = [f"w{n} is a long text with nine words here" for n in range(30)]
    train, held = megabyte.split([[text, "1"] for text in [*whole, *(text[:10] for text in whole)]])
    assert held
    assert not [row for row in train for text in held if f" {row[0]} " in f" {text[0]} "]
