"""Show what a run puts into the blanks of sentences, given as arguments or one a line on standard input.

examples:
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo predict runs/demo --top=10 < sentences.txt
"""

import argparse
import json
import sys
from collections.abc import Sequence

from bertzoo.errors import UserError
from bertzoo.verbs.shared import checkpoint_option

BLANK = "[MASK]"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    parser.add_argument("text", nargs="*", metavar="TEXT", help=f"sentences with {BLANK} where a word is wanted")
    parser.add_argument("--top", type=int, default=5, help="how many tokens to show for a blank (default 5)")
    checkpoint_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the likeliest tokens of every blank."""
    from bertzoo.inference import fill, load

    trained = load(args.run, args.checkpoint)
    entries = trained.tokenizer.vocab_size
    if not 1 <= args.top <= entries:
        raise UserError(f"--top={args.top} is not between 1 and the {entries} entries of the vocabulary")
    texts = args.text or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    answers = [(text, fill(trained, text, BLANK, args.top)) for text in texts]
    if args.json:
        document = [
            {"text": text, "blanks": [dict(zip(b.tokens, b.probabilities, strict=True)) for b in blanks]}
            for text, blanks in answers
        ]
        print(json.dumps(document, ensure_ascii=False))
        return 0
    for text, blanks in answers:
        print(text)
        for blank in blanks:
            shown = (f"{token} {chance:.0%}" for token, chance in zip(blank.tokens, blank.probabilities, strict=True))
            print(f"    {', '.join(shown)}")
    return 0
