"""Fill the blanks of sentences with a pretraining run; or predict with a fine-tuned model: a label with its
probability, a number, a tag for every word, or the answer to a question.

A fine-tuned model is a fine-tuning run (its best seed), RUN/seed-N, or a model or Hugging Face directory with a head
for labels or questions. Texts are arguments, lines of standard input, the columns of a table (--input) or a split of
the task (--split). Two arguments, or a line with a tab, make a pair; a question and its text are one. Predictions have
the order of the texts; longer texts than in training are cut and counted, except those of questions. --input may be
SQuAD's JSON.

examples:
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo predict runs/demo --top=10 < sentences.txt
  bertzoo predict runs/sst2 'A film that stays with you.'
  bertzoo predict runs/mnli 'Two dogs run.' 'Animals move.' --json
  bertzoo predict runs/mrpc --input=pairs.csv --text_a=first --text_b=second --output=labels.tsv
  bertzoo predict runs/cola --split=test --output=test.jsonl
  bertzoo predict runs/squad1 --question='Who was it?' --context='It was Ada, as they say.'
  bertzoo predict runs/squad2 --input=dev-v2.0.json --output=predictions.json
"""

import argparse
import json
import sys
from collections.abc import Sequence

from bertzoo.cli.support import finetuned
from bertzoo.cli.support.options import checkpoint_option
from bertzoo.core.errors import UserError

BLANK = "[MASK]"
TOP = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("run", metavar="RUN", help="the directory of a run, as given to --run_dir")
    parser.add_argument("text", nargs="*", metavar="TEXT", help=f"texts, for a pretraining run with {BLANK}")
    parser.add_argument("--top", type=int, help=f"how many tokens to show for a blank (default {TOP})")
    checkpoint_option(parser, None)
    parser.add_argument("--json", action="store_true", help="print JSON; for a fine-tuned model one line per text")
    group = finetuned.flags(parser)
    group.add_argument("--input", metavar="FILE", help="the texts, in a TSV, CSV, JSONL, Parquet or CoNLL file")
    group.add_argument("--question", metavar="TEXT", help="a question, on the text of --context")
    group.add_argument("--context", metavar="TEXT", help="the text that holds the answer")
    group.add_argument("--text_a", metavar="COLUMN", help="the column of the text (default: the run's own.text_a)")
    group.add_argument("--text_b", metavar="COLUMN", help="of the second text (default: the run's own.text_b)")
    group.add_argument("--split", metavar="SPLIT", help="the texts of the task's train, dev or test set")
    group.add_argument("--pair", action="store_true", help="read pairs of texts, if the model does not record its task")
    group.add_argument("--output", metavar="FILE", help="a .jsonl, a .tsv, or for questions a .json to write")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print the most likely tokens of every blank, or a fine-tuned model's predictions."""
    from bertzoo.finetuning.saved_model import is_finetuned

    if is_finetuned(args.run):
        finetuned.reject_flags(args, ("checkpoint", "top"), "a fine-tuned model")
        return finetuned.predict(args)
    names = ("task", "data_dir", "seed", "batch_size", "input", "text_a", "text_b", "split", "pair", "output")
    names += ("question", "context")
    finetuned.reject_flags(args, names, "a pretraining run")
    return _filled(args)


def _filled(args: argparse.Namespace) -> int:
    from bertzoo.runs.load_run import fill_blanks, load_run

    trained, top = (
        load_run(args.run, "latest" if args.checkpoint is None else args.checkpoint),
        TOP if args.top is None else args.top,
    )
    entries = trained.tokenizer.vocab_size
    if not 1 <= top <= entries:
        raise UserError(f"--top={top} is not between 1 and the {entries} entries of the vocabulary")
    texts = args.text or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    answers = [(text, fill_blanks(trained, text, BLANK, top)) for text in texts]
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
            shares = (f"{token} {chance:.0%}" for token, chance in zip(blank.tokens, blank.probabilities, strict=True))
            print(f"    {', '.join(shares)}")
    return 0
