"""Limits of a file's errors, scores and lengths, and calibration texts; without a runtime."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import mentioning
from zoo import CASES, pretrained

from bertzoo.data.tokenizers import tokenizer as tokenizers
from bertzoo.data.tokenizers.wordpiece import WordPiece
from bertzoo.export import lengths
from bertzoo.export.check import golden, verify
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.options import PRECISIONS
from bertzoo.heads import JointSpanExtraction, align_starts


def test_an_error_of_the_runtime_is_not_reported_as_a_difference():
    def run(row: Any) -> Any:
        raise ValueError("the runtime stopped")

    reference = training_graph(pretrained(*CASES["distilbert-joint-span"]))
    with pytest.raises(ValueError, match=r"^the runtime stopped$"):
        verify.verify_outputs(run, reference, None, (8,), "fp32")  # pyright: ignore[reportArgumentType]


def scores(file: float, examples: int = 1000) -> dict:
    return {"task": "mrpc", "examples": examples, "file": {"f1": file}, "model": {"f1": 80.0}}


ROOM: dict[Any, float] = {"fp32": 0.8, "fp16": 0.8, "int8-static": 5.3, "int4-dynamic": 3.3}
ROOM |= {"int8-dynamic": 2.3, "int8-weight": 2.3}


@pytest.mark.parametrize(("precision", "room"), ROOM.items())
def test_a_file_that_scores_less_is_rejected(precision: verify.Precision, room: float):
    """By more than its precision allows and three examples of a thousand are worth."""
    assert ROOM.keys() == set(PRECISIONS)
    verify.check_scores(scores(80.0 - room + 0.01), precision)
    verify.check_scores(scores(90.0), precision)
    for worse in (80.0 - room - 0.01, float("nan")):
        with pytest.raises(ExportFailed, match=mentioning("f1", "80.00", f"{room:.2f}")):
            verify.check_scores(scores(worse), precision)
    verify.check_scores(scores(66.0, examples=20), "fp32")  # three of twenty are fifteen points
    smaller = {"task": "own", "examples": 1000, "file": {"mse": 0.1}, "model": {"mse": 90.0}}
    verify.check_scores(smaller, precision)  # of a squared error less is better
    odds = {"file": {"best_f1_thresh": -90.0}, "model": {"best_f1_thresh": 2.0}}
    verify.check_scores(smaller | odds, precision)  # which are no score
    macro = [smaller | {side: {"f1_macro": points} for side, points in (("file", 60.0), ("model", 80.0))}]
    macro += [macro[0] | {side: {"f1_micro": 90.0} | macro[0][side] for side in ("file", "model")}]
    verify.check_scores(macro[1], precision)  # few examples decide the F1 of a rare label
    with pytest.raises(ExportFailed, match="f1_macro"):
        verify.check_scores(macro[0], precision)


@pytest.mark.parametrize(
    ("outputs", "expected", "limit", "passes"),
    [
        ([1.0, -2.0, 0.5, 0.0], [1.0, -2.0, 0.5, 0.0], 0.01, True),
        ([1.0, -2.0, 0.5, 0.05], [1.0, -2.0, 0.5, 0.0], 0.01, False),  # a cosine of 0.9998, an error of a fortieth
        ([0.001, -2.0, 0.5, 0.0], [1.0, -2.0, 0.5, 0.0], 0.01, False),
        ([0.3, -0.2], [-0.2, 0.3], 10.0, False),  # nearly constant outputs have small errors, whatever their pattern
    ],
)
def test_a_file_must_meet_both_limits(outputs: list[float], expected: list[float], limit: float, passes: bool):
    measured = verify._errors([np.array(outputs, np.float32)], [np.array(expected, np.float32)])
    limits = verify.Limit(error=limit, cosine=0.9)
    if passes:
        verify._check_errors("logits", measured, limits)
        return
    with pytest.raises(ExportFailed, match=mentioning("logits", f"{limit:g}", f"{measured['cosine']:.6f}", 0.9)):
        verify._check_errors("logits", measured, limits)


@pytest.mark.parametrize("precision", ["fp32", "int8-dynamic", "int8-static", "int4-dynamic"])
def test_a_joint_head_with_random_answers_is_rejected(precision: verify.Precision):
    """Although the logits of most positions, which are excluded, are a thousand lower."""
    draw = np.random.default_rng(0)
    far = np.where(np.arange(12) < 8, -1000, 0).astype(np.float32)
    ours = {"starts": np.array([9, 8, 11]), "start_logits": draw.normal(size=12) + far}
    ours |= {"end_logits": draw.normal(size=(3, 12)) + far, "null_logit": np.array([0.1])}

    def measured(theirs: dict) -> None:
        theirs, kept = align_starts(theirs, ours)
        for name in kept:
            verify._check_errors(name, verify._errors([theirs[name]], [kept[name]]), verify.LIMITS[precision])

    measured(ours)
    measured(ours | {"starts": ours["starts"][::-1], "end_logits": ours["end_logits"][::-1]})
    for name in ("start_logits", "end_logits"):
        with pytest.raises(ExportFailed, match=mentioning(name)):
            measured(ours | {name: draw.normal(0, 5, ours[name].shape) + far})
        with pytest.raises(ExportFailed, match=mentioning(name)):
            measured(ours | {name: ours[name] - far})


def test_a_tab_separates_the_texts_of_a_pair():
    tokenizer = tokenizers.build(WordPiece(vocab_size=40), lambda: iter(["one two three"] * 20))
    plain = SimpleNamespace(inputs=("input_ids", "token_type_ids", "attention_mask"))
    single, pair, cut = golden.calibration_rows(plain, tokenizer, ["one two", "one\ttwo", "one two three " * 9], 16)
    assert not single["token_type_ids"].any() and pair["token_type_ids"].any()
    sep = tokenizer.specials.sep
    assert [np.sum(row["input_ids"] == sep) for row in (single, pair, cut)] == [1, 2, 1]
    assert cut["attention_mask"].all() and cut["input_ids"].shape == (1, 16)


@pytest.mark.parametrize(
    ("head", "longest", "bounds"),
    [(JointSpanExtraction(beam=20), 16, (16, 16)), (JointSpanExtraction(beam=2), 512, (4, 512))],
)
def test_a_row_has_at_least_as_many_tokens_as_the_head_has_starts(head: Any, longest: int, bounds: tuple[int, int]):
    model: Any = SimpleNamespace(head=head, model=SimpleNamespace(max_positions=longest))
    assert lengths.length_bounds(model) == bounds
