"""Compare a written file's outputs with its model's, on rows of every length."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.failure import ExportFailed
from bertzoo.export.litert.write import signature
from bertzoo.export.options import Precision
from bertzoo.runs.runner import Runner
from bertzoo.tasks.metrics import in_points

if TYPE_CHECKING:  # `bertzoo phone` needs no jax, whose import takes a second
    from bertzoo.export.graph.reference import TrainingGraph

Outputs = Mapping[str, np.ndarray]

# Repeated to fill a row; fixed, so that a file's golden outputs stay the same.
TEXT = (
    "The harbour was quiet that morning, and nobody had seen the boats come in.",
    "She asked whether the train to the coast still leaves at nine, or later on Sundays.",
    "Three of the seven bridges were closed after the flood, which cost the town about two million crowns.",
    "I would not recommend this film to anyone: the plot is thin, the music is loud, and it never ends.",
    "A small battery, carefully charged, lasts longer than a large one that is always full.",
    "Who wrote the letter that was found behind the old clock in the library?",
    "Prices rose by 4.2 % in March, more than in any month of the year before.",
    "What a wonderful, warm and funny book; my children read it twice in a week!",
)


class Limit(NamedTuple):
    """Limits for the difference between the outputs of a file and of its model.

    error: largest error, as a share of the largest value of the model's output.
    cosine: smallest cosine between the outputs.
    """

    error: float
    cosine: float


LIMITS: dict[Precision, Limit] = {
    "fp32": Limit(1e-4, 0.99999),
    "fp16": Limit(2e-2, 0.9995),
    "int8-dynamic": Limit(0.5, 0.97),
    "int8-static": Limit(1.0, 0.9),
    "int8-weight": Limit(0.5, 0.98),
    "int4-dynamic": Limit(1.0, 0.9),
}
# A file's score may be lower than its model's by these points plus what EXAMPLES examples count.
LOST: dict[Precision, float] = {
    "fp32": 0.5,
    "fp16": 0.5,
    "int8-dynamic": 2.0,
    "int8-static": 5.0,
    "int8-weight": 2.0,
    "int4-dynamic": 3.0,
}
EXAMPLES = 3
_ADVICE = "Convert with another --precision or --to."
SHARES = (1.0, 0.75, 0.5, 0.25)  # shares of a row that tokens fill; the rest is padding


def verify_outputs(
    run: Runner, reference: "TrainingGraph", tokenizer: Tokenizer | None, lengths: Sequence[int], precision: Precision
) -> dict[str, Any]:
    """Compare a file with its model; return, by signature, row length, number of rows and the errors of each output.

    run: the file. reference: the model. lengths: row lengths, in tokens; `sample_rows` makes the rows of each length.
    Raises ExportFailed if an output is not finite or its errors exceed LIMITS.
    """
    from bertzoo.export.graph.reference import GraphRunner
    from bertzoo.heads import align_starts, head_class

    model = GraphRunner(reference)
    exact = None  # the vectors behind integers
    measured: dict[str, Any] = {}
    for length in lengths:
        rows = sample_rows(reference, tokenizer, length)
        computed = [(first_row(run(row)), first_row(model(row))) for row in rows]
        try:
            pairs = [align_starts(theirs, ours) for theirs, ours in computed]
        except ValueError as error:
            raise ExportFailed(f"{error}, so their outputs cannot be compared. {_ADVICE}") from error
        outputs = {}
        for key, first in pairs[0][1].items():
            sides = [theirs[key] for theirs, _ in pairs], [ours[key] for _, ours in pairs]
            limit = LIMITS[precision]
            if first.dtype in (np.int8, np.uint8):
                whole = head_class(reference.model).unrounded(reference.model)
                exact = exact or GraphRunner(reference.replace(model=whole))
                vectors = [first_row(exact(row))[key] for row in rows]
                outputs[key] = _integer_errors(*sides, vectors)
                limit = integer_limit(limit, first.dtype, first.size)
            else:
                outputs[key] = _errors(*sides)
            _check_errors(f"{key} at length {length}", outputs[key], limit)
        measured[signature(length)] = {"length": length, "rows": len(rows), "outputs": outputs}
    return measured


def first_row(outputs: Outputs) -> Outputs:
    """Return the outputs of the first row, without the batch axis."""
    return {name: array[0] for name, array in outputs.items()}


def check_scores(scores: Mapping[str, Any], precision: Precision) -> None:
    """Raise ExportFailed if a file scores lower than its model by more points than allowed.

    Allowed are LOST[precision] points, plus the points of accuracy that EXAMPLES wrong predictions cost:
    100 · EXAMPLES / number of scored examples. f1_macro is not checked if there are other metrics, because a single
    example can move the F1 of a rare label by many points.
    """
    room = LOST[precision] + 100 * EXAMPLES / scores["examples"]
    for metric in lower_scores(scores["file"], scores["model"], room):
        if metric != "f1_macro" or len(scores["file"]) == 1:
            raise ExportFailed(
                f"the file scores lower than the model: on {scores['examples']:,} examples of {scores['task']}, "
                f"{metric} is {scores['file'][metric]:.2f} for the file and {scores['model'][metric]:.2f} for the "
                f"model, but may be at most {room:.2f} points lower. {_ADVICE}"
            )


def lower_scores(scores: Mapping[str, float], reference: Mapping[str, float], room: float) -> Iterator[str]:
    """Yield each metric in points that is more than `room` points lower than in `reference`, or NaN."""
    for metric, points in scores.items():
        if in_points(metric) and not points >= reference[metric] - room:
            yield metric


def sample_rows(reference: "TrainingGraph", tokenizer: Tokenizer | None, length: int) -> list[dict[str, np.ndarray]]:
    """Return a row of int32 inputs (1,L), L = `length`, for each share in SHARES.

    Tokens fill this share of the row; the rest is padding. Without a tokenizer, the tokens are random ids. With one,
    rows are alternately single texts and pairs.
    """
    rows = []
    for index, share in enumerate(SHARES):
        count = max(3, round(share * length))
        if tokenizer is None:
            vocab_size = reference.model.embedding.word.rows
            ids = np.random.default_rng((index, count - 2)).integers(0, vocab_size, count - 2)
            first, last, pad = 1, 2, 0
        else:
            ids = np.concatenate(tokenizer.encode_batch([*TEXT[index:], *TEXT[:index]]))
            if not len(ids):
                raise ExportFailed(
                    "the tokenizer finds no tokens in English text, so the file cannot be verified. Use another "
                    "tokenizer."
                )
            first, last, pad = tokenizer.specials.cls, tokenizer.specials.sep, tokenizer.specials.pad
        whole = np.concatenate([[first], np.resize(ids, count - 2), [last], np.full(length - count, pad)])
        tokens = np.arange(length) < count
        blank = 1 + index % (count - 2)
        row = {
            "input_ids": whole,
            "token_type_ids": tokens & (np.arange(length) > count // 2) & (index % 2 == 1),
            "attention_mask": tokens,
            "masked_positions": np.array([blank]),
        }
        if "masked_positions" in reference.inputs and tokenizer is not None:
            row["input_ids"][blank] = tokenizer.specials.mask
        rows.append({name: np.asarray(row[name], np.int32)[None] for name in reference.inputs})
    return rows


def integer_limit(limit: Limit, kind: Any, size: int) -> Limit:
    """Return the limits of an integer output, from those of the vectors that are rounded to it.

    int8: an error of one step is allowed, and the cosine need not be higher than one step in each number leaves it.
    uint8, whose 8 bits are signs: the error is the largest absolute value whose sign differs. The cosine is that of
    vectors of 1 and -1. Two vectors at an angle a differ in a share a/π of their signs on average; twice that and one
    bit in each row are allowed.
    """
    if kind == np.int8:
        # The cosine of vectors that differ by a step in each number, and whose numbers average 30 steps, is 0.9995.
        return Limit(max(limit.error, 1 / 127), min(limit.cosine, 0.9995))
    share = 2 * math.acos(limit.cosine) / math.pi + 1 / (8 * size)
    return Limit(limit.error, 1 - 2 * share)


def _integer_errors(
    theirs: Sequence[np.ndarray], ours: Sequence[np.ndarray], vectors: Sequence[np.ndarray]
) -> dict[str, float | bool]:
    """Return `_errors` of int8 in steps, or of bits as `integer_limit` says; vectors: the model's in float32."""
    if theirs[0].dtype != ours[0].dtype:
        raise ExportFailed(f"an output of the file is {theirs[0].dtype}, but the model's is {ours[0].dtype}. {_ADVICE}")
    errors = _errors(theirs, ours)
    x = np.concatenate([vector.astype(np.float64).reshape(-1) for vector in vectors])
    errors["model_finite"] = bool(np.isfinite(x).all())
    if ours[0].dtype == np.uint8:
        differ = np.not_equal(*(np.concatenate(list(map(np.unpackbits, side))) for side in (theirs, ours)))
        errors |= {
            "max_error": float(np.abs(x[differ]).max(initial=0)),
            "largest": float(np.abs(x).max()),
            "cosine": float(1 - 2 * differ.mean()),
        }
    return errors


def _errors(theirs: Sequence[np.ndarray], ours: Sequence[np.ndarray]) -> dict[str, float | bool]:
    """Return an output's largest error, largest value and cosine over rows; raises ExportFailed if shapes differ."""
    if [array.shape for array in theirs] != [array.shape for array in ours]:
        raise ExportFailed(
            f"an output of the file has the shape {theirs[0].shape}, but the model's has {ours[0].shape}. {_ADVICE}"
        )
    actual, expected = (np.concatenate([x.astype(np.float64).reshape(-1) for x in rows]) for rows in (theirs, ours))
    finite = {"finite": bool(np.isfinite(actual).all()), "model_finite": bool(np.isfinite(expected).all())}
    return finite | differences(actual, expected)


def differences(actual: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """Return an output's largest error, largest value and cosine; the error is inf if an actual value is not finite."""
    error, norms = float(np.abs(actual - expected).max()), np.linalg.norm(actual) * np.linalg.norm(expected)
    finite = bool(np.isfinite(actual).all())
    return {
        "max_error": error if finite else math.inf,
        "largest": float(np.abs(expected).max()),
        "cosine": float(actual @ expected / norms) if finite and norms else float(finite and not error),
    }


def excess(output: str, errors: Mapping[str, float], limit: Limit) -> str:
    """Return a clause if an output's `differences` exceed a limit; "" if they do not."""
    share = errors["max_error"] / errors["largest"] if errors["largest"] else errors["max_error"]
    if share <= limit.error and errors["cosine"] >= limit.cosine:
        return ""
    return (
        f"the error of {output} is {share:.2g} times the output's largest value (limit: at most {limit.error:g}), and "
        f"the cosine {errors['cosine']:.6f} (limit: at least {limit.cosine:g})"
    )


def _check_errors(output: str, errors: dict[str, Any], limit: Limit) -> None:
    if not errors.pop("model_finite"):
        raise ExportFailed(
            f"the model itself gives NaN or infinity in {output}. Use a checkpoint from before training diverged."
        )
    if not errors["finite"]:
        raise ExportFailed(f"the file gives NaN or infinity in {output}. {_ADVICE}")
    if too_much := excess(output, errors, limit):
        raise ExportFailed(f"the file differs from the model: {too_much}. {_ADVICE}")
