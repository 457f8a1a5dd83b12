"""Run a pipeline, such as a paper's recipe, in which every stage runs a command.

A stage is a single step, or has a step for each task. Run the same command again to resume: it skips finished steps,
and stops if the config or an input of a finished step has changed. Everything is checked before the first step starts.
--inputs.NAME=PATH sets an input of the pipeline. --COMMAND.KEY=VALUE sets an option in every stage that runs COMMAND,
as in --finetune.seeds=3; --stages.NAME.KEY=VALUE sets an option in one stage. RUN/pipeline.md has the result, the time
and the command of every step. Exit code 1: a step failed; 3: a signal stopped the pipeline.

examples:
  bertzoo pipeline demo_pipeline --run_dir=runs/demo_pipeline
  bertzoo pipeline squeezebert --inputs.text='text/*.txt.xz' --inputs.glue=glue --run_dir=runs/squeezebert --list
  bertzoo pipeline mobilebert --inputs.text='gs://bucket/*.txt.xz' --inputs.glue=glue --inputs.squad=squad \
--run_dir=runs/mobilebert --dry_run
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from bertzoo.cli.support import JobFlags, job_option, run_list
from bertzoo.core.errors import UserError
from bertzoo.core.options import option

PASSES_ON = "Inputs of the pipeline, and options of the stages' commands. CONFIG lists the inputs and stages."


@dataclass(frozen=True)
class PipelineFlags(JobFlags):
    pipeline: str = option("a TOML file or the name of a shipped pipeline", metavar="CONFIG")
    _: KW_ONLY
    training_dir: str | None = option(
        "where to put the runs of pretrain, transfer and prune, such as a bucket that several machines share "
        "(default: in RUN)",
        None,
        group="output",
        metavar="DIR|URL",
    )
    only: tuple[str, ...] = job_option("stages to run (default: all)", (), metavar="A,B")
    launch: Sequence[str] = job_option(
        "words to put before every pretrain, transfer and prune command, to start the command elsewhere or several "
        "times, such as 'launch/local_multi.sh 2' (default: none)",
        (),
        metavar="WORDS",
        parse=shlex.split,
    )


def main(options: PipelineFlags) -> int:
    from bertzoo.jobs.pipeline import jobs_of, load_pipeline
    from bertzoo.jobs.record import JobRecord

    pipeline = load_pipeline(options.pipeline, options.overrides, options.tasks)
    record = JobRecord(options.run_dir, pipeline, options.training_dir)
    if options.launch and shutil.which(options.launch[0]) is None:
        raise UserError(f"--launch starts with {options.launch[0]}, which is not a program. Correct its path.")
    return run_list(options, record, jobs_of(pipeline, options.only), tuple(options.launch))
