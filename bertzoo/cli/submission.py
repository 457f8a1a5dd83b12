"""Write the zip for GLUE's leaderboard from fine-tuned models.

RUN is a fine-tuning run (its best seed), RUN/seed-N or a model directory, one for each task. MNLI's model predicts
MNLI's two test sets and the diagnostic set.

examples:
  bertzoo submission glue.zip runs/glue/*
  bertzoo submission glue.zip runs/glue/* --data_dir=glue
  bertzoo submission glue.zip runs/glue/* --data_dir=glue --wnli=predicted
"""

import argparse
from collections.abc import Sequence

from bertzoo.cli.support.options import Parser, check_file
from bertzoo.core.errors import UserError


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("output").add_argument("output", metavar="OUT.zip", help="the zip file to write")
    inputs = parser.group("input")
    inputs.add_argument("runs", nargs="+", metavar="RUN", help="a fine-tuned model, one for each task")
    inputs.add_argument(
        "--data_dir",
        default="",
        metavar="DIR",
        help="the directory with GLUE's folders CoLA, SST-2 and so on (default: each run's data directory)",
    )
    prediction = parser.group("prediction")
    prediction.add_argument(
        "--wnli",
        choices=("majority", "predicted"),
        default="majority",
        help="WNLI's labels: the most common label, as in papers, or the predicted labels",
    )
    prediction.add_argument(
        "--batch_size", type=_size, default=0, metavar="B", help="rows per batch (default: the run's batch size)"
    )


def _size(text: str) -> int:
    if text.isdecimal() and int(text):
        return int(text)
    raise UserError(f"--batch_size={text} is not a whole number of 1 or more. Write, for example, --batch_size=64.")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Predict every test set and write the zip."""
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning import leaderboard
    from bertzoo.tasks import submission

    path = on_disk(args.output, "the submission", "Name a file on this machine.")
    if path.suffix != ".zip" or not path.parent.is_dir():
        raise UserError(f"{args.output} cannot be written. Name a .zip in a directory that exists.")
    check_file(path, args.output)
    runs = [on_disk(run, "the model", "Copy it to this machine and pass the path of the copy.") for run in args.runs]
    predictions = leaderboard.predict_test_sets(
        runs, data_dir=args.data_dir, wnli=args.wnli, batch_size=args.batch_size
    )
    submission.write_submission(path, predictions, wnli=args.wnli)
    print(f"wrote {path}, with {len(submission.FILES)} files")
    return 0
