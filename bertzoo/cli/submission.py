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
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from bertzoo.cli.support.options import declare
from bertzoo.core.atomic import check_file
from bertzoo.core.errors import UserError
from bertzoo.core.options import option


@dataclass(frozen=True)
class SubmissionFlags:
    """The command's flags."""

    output: str = option("the zip file to write", group="output", metavar="OUT.zip")
    runs: tuple[str, ...] = option("a fine-tuned model, one for each task", metavar="RUN")
    _: KW_ONLY
    data_dir: str = option(
        "the directory with GLUE's folders CoLA, SST-2 and so on (default: each run's data directory)",
        "",
        metavar="DIR",
    )
    wnli: Literal["majority", "predicted"] = option(
        "WNLI's labels: the most common label, as in papers, or the predicted labels", "majority", group="prediction"
    )
    batch_size: int = option(
        "rows per batch (default: the run's batch size)", 0, group="prediction", metavar="B", least=1
    )


arguments = declare(SubmissionFlags)


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
