"""What an app is tested with: texts, their ids as the tokenizer makes them, and what the file and the model give."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.check.verify import TEXT
from bertzoo.export.graph.reference import Plain
from bertzoo.export.litert.litert import signature
from bertzoo.export.runtimes import Runtime
from bertzoo.models.tasks import JointSpanFinder, SpanFinder

QUESTION = "Why?"
TEXTS: tuple[tuple[str, ...], ...] = (*((text,) for text in (*TEXT, "Good.")), (TEXT[5], TEXT[0]), (QUESTION, "No."))
_LEAST = 3  # rows of every length
_LARGEST = 4096  # numbers; of a larger output the likeliest are kept


def golden(run: Runtime, plain: Plain, tokenizer: Tokenizer, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """For every text of `placed`: its signature, inputs and outputs, the file's as `outputs` and the model's as
    `expected`; under a masked head of the first token after [CLS].
    """
    reference = jax.jit(lambda plain, row: plain(**row))
    found, asked = [], isinstance(plain.model, (SpanFinder, JointSpanFinder))
    for texts, length in placed(tokenizer, lengths, asked):
        row = padded(plain, tokenizer, *tokens(tokenizer, texts), length)
        outputs = run({name: array[None] for name, array in row.items()})
        found.append(
            {
                "texts": list(texts),
                "signature": signature(length),
                "inputs": {name: array.tolist() for name, array in row.items()},
                "outputs": {name: _said(array[0]) for name, array in outputs.items()},
                "expected": {name: _said(np.asarray(array)) for name, array in reference(plain, row).items()},
            }
        )
    return found


def placed(tokenizer: Tokenizer, lengths: Sequence[int], asked: bool = False) -> list[tuple[tuple[str, ...], int]]:
    """Texts, each with the shortest length that holds it, and of every length one that fills it, more if it has few;
    asked: all of them behind a question.
    """
    wanted = [(QUESTION, *texts) if asked and len(texts) == 1 else texts for texts in TEXTS]
    shortest = [(texts, _holding(tokenizer, texts, lengths)) for texts in wanted]
    found = [(texts, length) for texts, length in shortest if length is not None]
    for length in sorted(lengths):
        few = max(1, _LEAST - sum(length == other for _, other in found))
        found.extend((texts, length) for texts, _ in zip(_filling(tokenizer, length, asked), range(few), strict=False))
    return found


def _holding(tokenizer: Tokenizer, texts: Sequence[str], lengths: Sequence[int]) -> int | None:
    count = len(tokens(tokenizer, texts)[0])
    return next((length for length in sorted(lengths) if length >= count), None)


def _filling(tokenizer: Tokenizer, length: int, asked: bool) -> Iterator[tuple[str, ...]]:
    """Texts of as many words of TEXT, from another sentence on each time, as the length holds; the second is a pair, or
    where they are `asked` all are.
    """
    for start in range(len(TEXT)):
        words = " ".join([*TEXT[start:], *TEXT[:start]]).split()
        words *= 1 + length // len(words)
        second = (QUESTION,) if asked or start == 1 else ()
        count = bisect_right(range(1, len(words) + 1), length, key=lambda n: _count(tokenizer, words[:n], second))
        if count:
            texts = " ".join(words[:count]), *second
            yield texts[::-1] if asked else texts


def _count(tokenizer: Tokenizer, words: Sequence[str], second: tuple[str, ...]) -> int:
    return len(tokens(tokenizer, (" ".join(words), *second))[0])


def padded(
    plain: Plain, tokenizer: Tokenizer, ids: np.ndarray, types: np.ndarray, length: int
) -> dict[str, np.ndarray]:
    """A row's inputs, (L,) each; the blank of a masked head is the first token after [CLS]."""
    row = {
        "input_ids": np.pad(ids, (0, length - len(ids)), constant_values=tokenizer.specials.pad),
        "token_type_ids": np.pad(types, (0, length - len(ids))),
        "attention_mask": (np.arange(length) < len(ids)).astype(np.int32),
        "masked_positions": np.ones(1, np.int32),
    }
    return {name: row[name] for name in plain.inputs}


def calibration(plain: Plain, tokenizer: Tokenizer, texts: Sequence[str], length: int) -> list[dict[str, np.ndarray]]:
    """The rows of texts, (1,L) each, one cut where it is longer; a tab parts the two of a pair."""
    rows = []
    for text in texts:
        ids, types = tokens(tokenizer, tuple(text.split("\t")))
        ids = np.concatenate([ids[: length - 1], ids[-1:]]) if len(ids) > length else ids
        rows.append(padded(plain, tokenizer, ids, types[: len(ids)], length))
    return [{name: array[None] for name, array in row.items()} for row in rows]


def tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The ids and token types (T,) of one text or two, whole: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""
    cls, sep = tokenizer.specials.cls, tokenizer.specials.sep
    first, *second = (each.tolist() for each in tokenizer.encode_batch(texts))
    parts = [[cls, *first, sep], *([*each, sep] for each in second)]
    types = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return np.concatenate(parts).astype(np.int32), types.astype(np.int32)


def _said(output: np.ndarray) -> Any:
    if output.size <= _LARGEST:
        return output.tolist()
    likeliest = np.argsort(-output.reshape(-1), kind="stable")[:5]
    return {
        "shape": list(output.shape),
        "likeliest": likeliest.tolist(),
        "values": output.reshape(-1)[likeliest].tolist(),
    }
