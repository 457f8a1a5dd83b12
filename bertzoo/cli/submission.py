"""Write the zip for GLUE's leaderboard from fine-tuned models.

RUN is a fine-tuning run (its best seed), RUN/seed-N or a model directory, one for each task. MNLI's model predicts
MNLI's two test sets and the diagnostic set.

examples:
  bertzoo submission glue.zip runs/glue/*
  bertzoo submission glue.zip runs/glue/* --data_dir=glue
  bertzoo submission glue.zip runs/glue/* --data_dir=glue --wnli=predicted
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from bertzoo.core.atomic import check_file
from bertzoo.core.errors import UserError
from bertzoo.core.options import option


@dataclass(frozen=True)
class SubmissionFlags:
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


def main(options: SubmissionFlags) -> int:
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning.evaluate import predict_test_sets
    from bertzoo.tasks import glue

    path = on_disk(options.output, "the submission", "Name a file on this machine.")
    if path.suffix != ".zip" or not path.parent.is_dir():
        raise UserError(f"{options.output} cannot be written. Name a .zip in a directory that exists.")
    check_file(path, options.output)
    runs = [on_disk(run, "the model", "Copy it to this machine and pass the path of the copy.") for run in options.runs]
    predictions = predict_test_sets(runs, data_dir=options.data_dir, wnli=options.wnli, batch_size=options.batch_size)
    glue.write_submission(path, predictions, wnli=options.wnli)
    print(f"wrote {path}, with {len(glue.FILES)} files")
    return 0
