"""What a written file computes beside the model that it was made of, on sentences of every length of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.failure import ExportFailed
from bertzoo.export.litert.litert import signature
from bertzoo.export.litert.quantise import Precision
from bertzoo.export.runtimes import Runtime
from bertzoo.tasks.metrics import in_points

if TYPE_CHECKING:  # comparing what a phone computed needs no jax, whose import takes a second
    from bertzoo.export.graph.reference import Plain

# Read from the beginning, and again where a row is longer; a fixed text, so that a file's golden outputs stay.
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
    """How far a file may be from its model: an output's largest error, as a share of its largest value, and cosine."""

    error: float
    cosine: float


LIMITS: dict[Precision, Limit] = {
    "fp32": Limit(1e-4, 0.99999),
    "fp16": Limit(2e-2, 0.9995),
    "int8-dynamic": Limit(0.5, 0.97),
    "int8-static": Limit(1.0, 0.9),
    "int8-weight": Limit(0.5, 0.98),
}
# Points that a file's score may be below its model's, and how many examples' worth besides: a few are few points.
LOST: dict[Precision, float] = {"fp32": 0.5, "fp16": 0.5, "int8-dynamic": 2.0, "int8-static": 5.0, "int8-weight": 2.0}
EXAMPLES = 3
SHARES = (1.0, 0.75, 0.5, 0.25)  # of a length, which its rows fill


def prove(
    run: Runtime, plain: "Plain", tokenizer: Tokenizer | None, lengths: Sequence[int], precision: Precision
) -> dict[str, Any]:
    """By length, under its signature's name, what was measured of its outputs; raises ExportFailed where one is not
    finite, the model's or the file's, or beyond its limit.

    The sentences are TEXT, or without a tokenizer random ids.
    """
    import jax

    reference = jax.jit(lambda plain, row: plain(**{n: x[0] for n, x in row.items()}))
    found: dict[str, Any] = {}
    for length in lengths:
        name, given = signature(length), rows(plain, tokenizer, length)
        pairs = [aligned(run(row), jax.tree.map(np.asarray, reference(plain, row))) for row in given]
        outputs = {}
        for key in pairs[0][1]:
            outputs[key] = _measured([theirs[key][0] for theirs, _ in pairs], [ours[key] for _, ours in pairs])
            _check(f"{key} at length {length}", outputs[key], LIMITS[precision])
        found[name] = {"length": length, "rows": len(given), "outputs": outputs}
    return found


def check_scores(scores: Mapping[str, Any], precision: Precision) -> None:
    """Raise ExportFailed where a file's score, in points, is further below its model's than its precision excuses."""
    room = LOST[precision] + 100 * EXAMPLES / scores["examples"]
    for metric, points in scores["file"].items():
        # What is NaN is refused.
        if in_points(metric) and not points >= scores["model"][metric] - room:
            raise ExportFailed(
                f"the file is not the model: {metric} of {scores['task']} is {points:.2f} on {scores['examples']:,} "
                f"examples, where the model has {scores['model'][metric]:.2f} (at most {room:.2f} points less)"
            )


def rows(plain: "Plain", tokenizer: Tokenizer | None, length: int) -> list[dict[str, np.ndarray]]:
    """The inputs of a few sentences, each (1,L) int32: of the whole length and of shares of it, two as pairs."""
    made = []
    for index, share in enumerate(SHARES):
        count = max(3, round(share * length))
        ids = _ids(tokenizer, count - 2, index, plain.model.embedding.word.rows)
        first, last = (1, 2) if tokenizer is None else (tokenizer.specials.cls, tokenizer.specials.sep)
        whole = np.concatenate([[first], ids, [last], np.zeros(length - count, np.int64)])
        tokens = np.arange(length) < count
        if tokenizer is not None:
            whole[~tokens] = tokenizer.specials.pad
        blank = 1 + index % (count - 2)
        row = {
            "input_ids": whole,
            "token_type_ids": tokens & (np.arange(length) > count // 2) & (index % 2 == 1),
            "attention_mask": tokens,
            "masked_positions": np.array([blank]),
        }
        if "masked_positions" in plain.inputs and tokenizer is not None:
            row["input_ids"][blank] = tokenizer.specials.mask
        made.append({name: np.asarray(row[name], np.int32)[None] for name in plain.inputs})
    return made


def _ids(tokenizer: Tokenizer | None, count: int, start: int, entries: int) -> np.ndarray:
    if tokenizer is None:
        return np.random.default_rng((start, count)).integers(0, entries, count)
    text = np.concatenate(tokenizer.encode_batch([*TEXT[start:], *TEXT[:start]]))
    if not len(text):
        raise ExportFailed("the tokenizer makes no tokens of English text, on which the file could be proved")
    return np.resize(text, count)


Outputs = Mapping[str, np.ndarray]


def aligned(theirs: Outputs, ours: Outputs) -> tuple[Outputs, Outputs]:
    """Both with the ends of answers given the same starts, which may come in another order, and of starts and ends what
    `answerable` leaves; all else as it is.
    """
    if "starts" not in ours:
        return theirs, ours
    theirs, ours = dict(theirs), dict(ours)
    places = theirs["starts"][0].tolist()
    order = [places.index(start) for start in ours["starts"].tolist() if start in places]
    kept = [start in places for start in ours["starts"].tolist()]
    if not order:
        raise ExportFailed("the file looks for answers at other starts than the model")
    theirs["end_logits"], ours["end_logits"] = theirs["end_logits"][:, order], ours["end_logits"][kept]
    for name in ("start_logits", "end_logits"):
        found, ours[name] = answerable(theirs[name][0], ours[name])
        theirs[name] = found[None]
    del theirs["starts"], ours["starts"]
    return theirs, ours


def answerable(found: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with 0 at the positions where the model, which `want` is of, says that no answer can be: they are a thousand
    lower, and beside them nothing else would count. Where the other does not say so, it is off by that much.
    """
    from bertzoo.nn.heads import EXCLUDED

    excluded = want < EXCLUDED / 2
    return np.where(excluded, np.where(found < EXCLUDED / 2, 0, -EXCLUDED), found), np.where(excluded, 0, want)


def _measured(theirs: Sequence[np.ndarray], ours: Sequence[np.ndarray]) -> dict[str, float | bool]:
    """Of one output over all rows: its shape alone must be equal."""
    if [array.shape for array in theirs] != [array.shape for array in ours]:
        raise ExportFailed(f"the file gives {theirs[0].shape} where the model gives {ours[0].shape}")
    found, want = (np.concatenate([x.astype(np.float64).reshape(-1) for x in each]) for each in (theirs, ours))
    lengths = np.linalg.norm(found) * np.linalg.norm(want)
    return {
        "finite": bool(np.isfinite(found).all()),
        "model_finite": bool(np.isfinite(want).all()),
        "max_error": float(np.abs(found - want).max()),
        "largest": float(np.abs(want).max()),
        "cosine": float(found @ want / lengths) if lengths else float(not np.any(found - want)),
    }


def _check(what: str, measured: dict[str, Any], limit: Limit) -> None:
    if not measured.pop("model_finite"):
        raise ExportFailed(f"the model itself gives NaN or infinity: {what}")
    if not measured["finite"]:
        raise ExportFailed(f"the file gives NaN or infinity: {what}")
    share = measured["max_error"] / measured["largest"] if measured["largest"] else measured["max_error"]
    if not (share <= limit.error and measured["cosine"] >= limit.cosine):  # nor where the model itself gives NaN
        raise ExportFailed(
            f"the file is not the model: {what} is off by {share:.2g} of its largest value (at most {limit.error:g}), "
            f"cosine {measured['cosine']:.6f} (at least {limit.cosine:g})"
        )
