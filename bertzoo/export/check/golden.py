"""Make rows for testing an app: texts, their ids, and the outputs of the exported file and of its model."""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.check.verify import TEXT
from bertzoo.export.failure import ExportFailed
from bertzoo.export.graph.reference import GraphRunner, TrainingGraph
from bertzoo.export.litert.write import signature
from bertzoo.heads import head_class
from bertzoo.runs.runner import Runner

QUESTION = "Why?"
TEXTS: tuple[tuple[str, ...], ...] = (*((text,) for text in (*TEXT, "Good.")), (TEXT[5], TEXT[0]), (QUESTION, "No."))
# Texts that tokenizers are known to treat differently.
TRICKY = (
    "Café crème, naïve façade",
    "Cafe\u0301 with a combining accent",
    "ÉCOLE ÜBER ÆON",
    "Žluťoučký kůň, ŁÓDŹ",
    "ΑΘΗΝΑ and Русский ёж",
    "İstanbul and Straße",
    "zero\u200bwidth space",
    "soft\u00adhyphen",
    "the [MASK] token",
    "日本語 and 中文",
    "你好，世界！",
    "한국어 문장",
    "“curly” quotes — and dashes…",
    "an emoji 😀 here",
    "a\ttab\nand a line",
    "no\u00a0break and\u3000wide space",
    "ΟΔΟΣ ends in a sigma",
    "private \ue000use",
    "x" * 101,
)
_LEAST = 3  # every length gets at least this many texts
_LARGEST = 4096  # values; of a larger output golden.json keeps the five largest


def golden_rows(
    run: Runner, reference: TrainingGraph, tokenizer: Tokenizer, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the rows of golden.json, with "outputs" of the file `run` and those "expected" of the model."""
    model = GraphRunner(reference)
    rows, questions = [], head_class(reference.model).form == "question"
    for texts, length in place_texts(tokenizer, lengths, questions):
        row = pad_row(reference.inputs, tokenizer, *encode_texts(tokenizer, texts), length)
        batch = {name: array[None] for name, array in row.items()}
        rows.append(
            {
                "texts": list(texts),
                "signature": signature(length),
                "inputs": {name: array.tolist() for name, array in row.items()},
                "outputs": {name: _as_json(array[0]) for name, array in run(batch).items()},
                "expected": {name: _as_json(array[0]) for name, array in model(batch).items()},
            }
        )
    return rows


def place_texts(
    tokenizer: Tokenizer, lengths: Sequence[int], questions: bool = False
) -> list[tuple[tuple[str, ...], int]]:
    """Assign texts to row lengths; return items (texts, length), where `texts` is one text or a pair of texts.

    Each of TEXTS goes to the shortest length that holds it. Each length also gets texts that fill it: at least one
    item, and more until the length has _LEAST items. questions: put a question before single texts.
    """
    placed = []
    for texts in TEXTS:
        texts = (QUESTION, *texts) if questions and len(texts) == 1 else texts
        count = _count(tokenizer, texts)
        placed += [(texts, length) for length in sorted(lengths) if length >= count][:1]
    for length in sorted(lengths):
        missing = max(1, _LEAST - sum(length == other for _, other in placed))
        fillings = zip(_fill_length(tokenizer, length, questions), range(missing), strict=False)
        placed += [(texts, length) for texts, _ in fillings]
    return placed


def _fill_length(tokenizer: Tokenizer, length: int, questions: bool) -> Iterator[tuple[str, ...]]:
    """Yield tuples of one or two texts that fill a row of `length` tokens with whole words.

    The text of a tuple repeats the sentences of TEXT; each tuple starts one sentence later. The second tuple is a pair
    of the text and QUESTION. With `questions`, every tuple is a pair of QUESTION and the text.
    """
    for start in range(len(TEXT)):
        words = " ".join([*TEXT[start:], *TEXT[:start]]).split()
        words *= 1 + length // len(words)
        second = (QUESTION,) if questions or start == 1 else ()
        counts = range(1, len(words) + 1)
        count = bisect_right(counts, length, key=lambda n: _count(tokenizer, (" ".join(words[:n]), *second)))
        if count:
            texts = " ".join(words[:count]), *second
            yield texts[::-1] if questions else texts


def _count(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return len(encode_texts(tokenizer, texts)[0])


def pad_row(
    names: Iterable[str], tokenizer: Tokenizer, ids: np.ndarray, types: np.ndarray, length: int
) -> dict[str, np.ndarray]:
    """Return the inputs `names` of one row, (L,) each, padded to L = `length` tokens.

    ids, types: ids and token types without padding.
    The input `masked_positions`, if it is in `names`, is [1]: the position of the first token after [CLS].
    """
    row = {
        "input_ids": np.pad(ids, (0, length - len(ids)), constant_values=tokenizer.specials.pad),
        "token_type_ids": np.pad(types, (0, length - len(ids))),
        "attention_mask": (np.arange(length) < len(ids)).astype(np.int32),
        "masked_positions": np.ones(1, np.int32),
    }
    return {name: row[name] for name in names}


def calibration_rows(
    reference: TrainingGraph, tokenizer: Tokenizer, texts: Sequence[str], length: int
) -> list[dict[str, np.ndarray]]:
    """Return inputs (1,L) for each text, truncated or padded to L = `length`; a tab separates the texts of a pair."""
    rows = []
    for text in texts:
        row = pad_row(reference.inputs, tokenizer, *cut_texts(tokenizer, text.split("\t"), length), length)
        rows.append({name: array[None] for name, array in row.items()})
    return rows


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and token types, (T,) each, of one text, [CLS] A [SEP], or two, [CLS] A [SEP] B [SEP]."""
    cls, sep = tokenizer.specials.cls, tokenizer.specials.sep
    first, *second = (ids.tolist() for ids in tokenizer.encode_batch(texts))
    segments = [[cls, *first, sep], *([*ids, sep] for ids in second)]
    types = np.repeat(np.arange(len(segments)), [len(segment) for segment in segments])
    return np.concatenate(segments).astype(np.int32), types.astype(np.int32)


def cut_texts(tokenizer: Tokenizer, texts: Sequence[str], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `encode_texts` cut to `length` tokens; the last token stays [SEP]."""
    ids, types = encode_texts(tokenizer, texts)
    return (np.concatenate([ids[: length - 1], ids[-1:]]) if len(ids) > length else ids), types[:length]


def prepared(text: str, rules: Mapping[str, bool]) -> str:
    """Return a text as an app should pass it to the tokenizer inside a file.

    Replaces white space by spaces, and removes control, format, private-use and replacement characters.

    rules: normalisation of bertzoo's tokenizer. With strip_accents, accents are removed. With lowercase, each character
    is lower-cased on its own, so that Σ becomes σ even at the end of a word.
    """
    spaced = "".join(" " if c in "\t\n\r" or unicodedata.category(c)[0] == "Z" else c for c in text)
    clean = "".join(c for c in spaced if unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs") and c != "\ufffd")
    if rules["strip_accents"]:
        clean = "".join(c for c in unicodedata.normalize("NFD", clean) if unicodedata.category(c) != "Mn")
    return "".join(c.lower() for c in clean) if rules["lowercase"] else clean


def long_text(length: int) -> str:
    """Return plain English of more than `length` tokens."""
    return " ".join(TEXT * (1 + length // len(" ".join(TEXT).split())))


def tokenizer_texts(tokenizer: Tokenizer, plain: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return texts to compare tokenizers on: `plain`, TRICKY, and TRICKY as `prepared` makes it."""
    rules = tokenizer.config.normalization
    return [*plain, *((text,) for text in TRICKY), *((prepared(text, rules),) for text in TRICKY)]


def token_differences(
    runtime: str, tokenizer: Tokenizer, plain: Sequence[Sequence[str]], theirs: Sequence[np.ndarray], length: int
) -> dict[str, Any]:
    """Compare a runtime's tokens with bertzoo's; return entries of a file's metadata JSON.

    theirs: the runtime's ids for each of `tokenizer_texts`, with special tokens. length: tokens of the longest row.

    Returns the number of texts in TRICKY (`tricky`), those that are tokenised differently (`differences`), and those
    that differ even after `prepared` (`prepared_differences`). Raises ExportFailed if a text of `plain` differs.
    """
    tricky = [(text,) for text in TRICKY]
    differences = []
    for texts, ids in zip([*plain, *tricky, *tricky], theirs, strict=True):
        ours, _ = cut_texts(tokenizer, texts, length)
        sides = [tuple(map(tokenizer.token, side)) for side in (ours, ids)]
        same = np.array_equal(ours, ids)
        differences.append(None if same else {"text": " ".join(texts), "ours": sides[0], "theirs": sides[1]})
    first, second = len(plain), len(plain) + len(tricky)
    if wrong := [one for one in differences[:first] if one]:
        sides = (" ".join(wrong[0][side][:32]) for side in ("theirs", "ours"))
        raise ExportFailed(
            f"{runtime} tokenises plain English differently from bertzoo: {wrong[0]['text'][:80]!r} becomes "
            f"{', not '.join(sides)}. Tokenise in the app, and use another --to."
        )
    return {
        "tricky": len(tricky),
        "differences": [one for one in differences[first:second] if one],
        "prepared_differences": [one for one in differences[second:] if one],
    }


def check_same(pairs: Iterable[tuple[np.ndarray, np.ndarray]], limit: float, runtime: str, other: str) -> float:
    """Return the largest error of a runtime's outputs for texts, compared with those for the texts' ids.

    An error is the largest absolute difference, divided by the largest absolute value for ids if that is above 1.
    Raises ExportFailed if it exceeds `limit`; the message recommends the format `other`.
    """
    floats = [[side.astype(np.float64) for side in pair] for pair in pairs]
    worst = float(np.max([np.abs(ours - ids).max() / max(1.0, np.abs(ids).max()) for ours, ids in floats]))
    if not worst <= limit:
        raise ExportFailed(
            f"the outputs of {runtime} for texts differ by {worst:.2g} from those for the same ids, but may differ by "
            f"at most {limit:g}. Use --to={other}, and tokenise in the app."
        )
    return worst


def _as_json(output: np.ndarray) -> Any:
    """Return all values of an output; of more than _LARGEST, the shape and the five largest with flat indices."""
    if output.size <= _LARGEST:
        return output.tolist()
    flat = output.reshape(-1)
    likeliest = np.argsort(-flat, kind="stable")[:5]
    return {"shape": list(output.shape), "likeliest": likeliest.tolist(), "values": flat[likeliest].tolist()}
