"""Write bertzoo's ids of texts that tokenizers treat differently, for the tests of the sample apps.

`python examples/tokens.py model.tflite` writes tokens.json into the folder model.tflite.files.
"""

import argparse
import json
import sys
from pathlib import Path

from bertzoo.conversion.tokenizers import read_tokenizer
from bertzoo.export.check.golden import TRICKY

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


if __name__ == "__main__":
    main()
