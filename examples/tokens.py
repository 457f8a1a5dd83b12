"""Write bertzoo's ids of texts that tokenizers treat differently, for the tests of the sample apps.

`python examples/tokens.py model.tflite` writes tokens.json into the folder model.tflite.files and, if the model finds
entities, entities.json: random texts, drawn logits for their rows, and the entities that bertzoo finds by them.
"""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion.tokenizers import read_tokenizer
from bertzoo.core.documents import read_json
from bertzoo.export.check.golden import TRICKY
from bertzoo.finetuning.entities import EntitySplit
from bertzoo.tasks.entities import entity_records, find_words, make_text_windows
from bertzoo.tasks.rows import Slot
from bertzoo.tasks.task import Task

TEXTS = (
    *TRICKY,
    "",
    " \t\r\n\u00a0\u2028\u3000 ",
    "ΟΔΟΣ ΣΟΦΟΣ",  # a capital sigma at a word's end
    "한국어 देवनागरी ไทย",  # letters that decompose, and marks
    "\u0301 starts with an accent",
    "control\x00\x07\x7f\x85\ufffd and private \ue000 use",
    "a family 👩‍👩‍👧 and a flag 🇫🇷",
    "𠮷野家 and 𝒜",  # beyond 16 bits
    "$1+1=2 <tag> ^`|~ @user #tag snake_case don't",
    "ﬁ ½ Ⅳ ＡＢＣ",  # no compatibility forms
    "x" * 100,
    "x" * 99 + "é",
)

# What random texts are made of: words, white space, invisible characters, marks, Chinese, Hangul and any character.
PARTS = (
    "the ",
    "Movie",
    "ÉCOLE",
    "e\u0301",
    "n\u0303\u0323",
    "İ",
    "ß",
    "ﬁ",
    " ",
    "\n",
    "\u00a0",
    "\u200b",
    "\u00ad",
    "\ufe0f",
)
PARTS += (
    "\u0301",
    "\u0903",
    "日本",
    "한국",
    "कि",
    "👩‍👧",
    "🇫🇷",
    "😀",
    "𝒜",
    "𠮷",
    "-",
    ".",
    "(",
    "$",
    "x" * 101,
    "\x07",
    "\U000e0061",
)


def random_texts(count: int) -> list[str]:
    """Texts of up to 40 parts, a fourth of which are any characters of Unicode."""
    draw = random.Random(0)

    def part() -> str:
        code = draw.choice((draw.randrange(0x300), draw.randrange(0x10000), draw.randrange(0x110000)))
        return draw.choice(PARTS) if draw.random() < 0.75 or 0xD800 <= code < 0xE000 else chr(code)

    return ["".join(part() for _ in range(draw.randrange(40))) for _ in range(count)]


def entity_cases(tokenizer: Any, labels: list[str], max_length: int, texts: list[str]) -> list[dict[str, Any]]:
    """Return texts with the ids of their rows, drawn logits for each position, and the entities."""
    draw, pieces = np.random.default_rng(0), find_words(texts, tokenizer, "first")
    windows = make_text_windows([""] * len(texts), pieces, tokenizer, max_length, 0)
    task = Task(name="", kind="entities", metrics=(), read=None, labels=tuple(labels))  # pyright: ignore[reportArgumentType] (reads no file)
    split = EntitySplit(
        examples=texts, rows=windows.rows, task=task, windows=windows, tags=None, aggregation="first", constrained=True
    )
    slots = [Slot(np.array([row]), int(length)) for row, length in enumerate(windows.rows.lengths)]
    logits = [np.round(draw.normal(0, 2, (1, slot.length, len(labels))), 3) for slot in slots]
    tagged = split.tagged(slots, [{"logits": values} for values in logits])
    cases = [
        {
            "text": text,
            "rows": [],
            "logits": [],
            "entities": [*entity_records(text, one, [labels[t] for t in tags], sure)],
        }
        for text, one, (tags, sure) in zip(texts, pieces, tagged, strict=True)
    ]
    for slot, values, window in zip(slots, logits, windows.windows, strict=True):
        start = windows.rows.starts[slot.rows[0]]
        cases[window.text]["rows"].append(windows.rows.ids[start : start + slot.length].tolist())
        cases[window.text]["logits"].append(values.ravel().tolist())
    return cases


def main() -> None:
    """Write tokens.json beside the exported file that the command line names."""
    parser = argparse.ArgumentParser(description="Write bertzoo's ids of unusual texts, for the sample apps.")
    parser.add_argument("file", help="the exported file, such as model.tflite")
    parser.add_argument("--characters", action="store_true", help="add a text with each character of Unicode")
    options = parser.parse_args()
    folder = Path(f"{options.file}.files")
    tokenizer = read_tokenizer(folder)
    if tokenizer is None:
        parser.error(f"{folder} has no tokenizer. Name a file that `bertzoo convert` wrote.")
    texts = [*TEXTS, *(f"a{chr(code)}b" for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)]
    texts = texts if options.characters else texts[: len(TEXTS)]
    rows = [{"text": text, "ids": ids.tolist()} for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
    (folder / "tokens.json").write_text(json.dumps(rows) + "\n", encoding="utf-8")
    model = read_json(Path(f"{options.file}.json"))
    heads = [one["head"] for one in model["head"].get("heads", [{"head": model["head"]}])]
    for head in heads:
        if head["kind"] == "token_classification":
            longest = max(one["length"] for one in model["signatures"].values())
            longest = min(longest, model["source"].get("max_length", longest))
            cases = entity_cases(tokenizer, head["labels"], longest, [*TEXTS, *random_texts(300)])
            (folder / "entities.json").write_text(json.dumps(cases) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
