"""Write the zip that GLUE's leaderboard takes, from fine-tuned models: one of each task.

RUN is a fine-tuning run (its best seed), RUN/seed-N or a model directory. MNLI's model predicts both of its test sets
and the diagnostic one. Test sets are read from each run's data directory, or from GLUE's folders (CoLA, SST-2 and so
on) in --data_dir. WNLI gets the majority's label, as in papers, unless --wnli=predicted.

examples:
  bertzoo submission glue.zip runs/glue/*
  bertzoo submission glue.zip runs/glue/* --data_dir=glue --wnli=predicted
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import check_file, say
from bertzoo.core.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("output", metavar="OUT.zip", help="the file to write")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a fine-tuned model, one of each task")
    parser.add_argument("--data_dir", default="", metavar="DIR", help="where GLUE's folders are")
    parser.add_argument(
        "--wnli", choices=("majority", "predicted"), default="majority", help="what WNLI gets (default: majority)"
    )
    parser.add_argument("--batch_size", type=_size, default=0, metavar="B", help="rows at a time")


def _size(text: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise UserError(f"--batch_size={text} is not a number of at least 1")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Predict every test set and write the zip."""
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning import leaderboard
    from bertzoo.tasks import submission

    path = on_disk(args.output, "the submission", "name a file on this machine")
    if path.suffix != ".zip" or not path.parent.is_dir():
        raise UserError(f"{args.output} cannot be written: name a .zip in a directory that exists")
    check_file(path, args.output)
    runs = [on_disk(run, "the model", "copy it to this machine and name the copy") for run in args.runs]
    predictions = leaderboard.predict_test_sets(
        runs, data_dir=args.data_dir, wnli=args.wnli, batch_size=args.batch_size, tell=say
    )
    submission.write_submission(path, predictions, wnli=args.wnli)
    print(f"wrote {path}, with {len(submission.FILES)} files")
    return 0
