"""Fill the blanks of a sentence, or label texts with a fine-tuned model.

MODEL is a run (a fine-tuning run's best seed), RUN/seed-N, RUN/checkpoints/STEP, a model or Hugging Face directory, or
a file that `bertzoo convert` wrote. The model's head decides the prediction: tokens for each [MASK], a label with its
probability, all labels above 50 %, a number, a tag for every word, or the answer to a question. For a task on pairs,
two TEXTs, or one line with a tab, make one pair. The command cuts texts to the row length of training and prints how
many it cut.

examples:
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo predict runs/mrpc --input=pairs.csv --text_a=first --text_b=second --output=labels.tsv
  bertzoo predict runs/squad1 --question='Who was it?' --context='It was Ada, as they say.'
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertzoo.cli.support import finetuned
from bertzoo.cli.support.options import Parser, checkpoint_option, json_option

if TYPE_CHECKING:
    from bertzoo.runs.blanks import BlankFiller

TASK_FLAGS = ("task", "data_dir", "seed", "batch_size", "input", "text_a", "text_b", "split", "pair", "output")
TASK_FLAGS += ("question", "context", "python")


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    inputs = parser.group("input")
    inputs.add_argument("run", metavar="MODEL", help="a run, a model directory or an exported file")
    text = "the texts (default: lines of standard input)"
    inputs.add_argument("text", nargs="*", default=[], metavar="TEXT", help=text)
    blanks = "for a masked language model"
    parser.group(blanks).add_argument("--top", type=int, metavar="N", help="tokens to show for a blank (default: 5)")
    checkpoint_option(parser, blanks)
    group = finetuned.flags(parser)
    group.add_argument(
        "--input",
        metavar="FILE",
        help="texts in a TSV, CSV, JSONL, Parquet or CoNLL file, or SQuAD's JSON (default: the TEXTs)",
    )
    group.add_argument(
        "--text_a",
        metavar="COLUMN",
        help="the column of the text or question (default: own.text_a or own.question in the run's config)",
    )
    group.add_argument(
        "--text_b",
        metavar="COLUMN",
        help="the column of the second text or paragraph (default: own.text_b or own.context in the run's config)",
    )
    group.add_argument("--split", metavar="SPLIT", help="predict the task's train, dev or test set (default: none)")
    group.add_argument("--question", metavar="TEXT", help="a question about --context (default: none)")
    group.add_argument("--context", metavar="TEXT", help="the text with the answer to --question (default: none)")
    group.add_argument("--pair", action="store_true", help="read pairs of texts, if the model does not record its task")
    output = parser.group("output")
    output.add_argument(
        "--output", metavar="FILE", help="a .jsonl, .tsv or, for questions, .json file to write (default: print)"
    )
    json_option(parser, "print JSON; for a fine-tuned model, one line per text")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the most likely tokens of every blank, or a fine-tuned model's predictions."""
    from bertzoo.export.file_model import is_pretraining, open_model
    from bertzoo.runs.blanks import BlankFiller, run_filler
    from bertzoo.train.step import keep_programs

    keep_programs()
    if is_pretraining(args.run):
        finetuned.reject_flags(args, TASK_FLAGS, "a pretraining run")
        return _fill(args, run_filler(args.run, "latest" if args.checkpoint is None else args.checkpoint))
    finetuned.reject_flags(args, ("checkpoint",), "a fine-tuned model, a model directory or a file")
    suffix = finetuned.output_suffix(args)  # raises before anything is predicted
    model = open_model(args.run, args.seed, args.batch_size, args.python)
    if isinstance(model, BlankFiller):
        finetuned.reject_flags(args, TASK_FLAGS, "a masked language model")
        return _fill(args, model)
    finetuned.reject_flags(args, ("top",), "a fine-tuned model")
    return finetuned.predict(args, model, suffix)


def _fill(args: argparse.Namespace, model: "BlankFiller") -> int:
    from bertzoo.finetuning.task_kind import warn_unknown
    from bertzoo.runs.blanks import BLANK
    from bertzoo.tasks import inputs

    texts = args.text or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    written = inputs.from_texts([text.replace(BLANK, " ") for text in texts], inputs.InputForm())
    warn_unknown(model.tokenizer, written, "the texts")
    records = model.records(texts, args.top)
    if args.json:
        print(json.dumps(records, ensure_ascii=False))
        return 0
    for record in records:
        print(record["text"])
        for blank in record["blanks"]:
            print(f"    {', '.join(f'{token} {chance:.0%}' for token, chance in blank.items())}")
    return 0
