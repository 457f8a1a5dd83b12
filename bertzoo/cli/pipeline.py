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
--run_dir=runs/mobilebert --dry_run --topology=v5e:16x16
"""

import argparse
import shlex
import shutil
from collections.abc import Sequence

from bertzoo.cli.support.jobs import job_options, parse_names, run_list
from bertzoo.cli.support.options import Parser, run_dir_option
from bertzoo.core.errors import UserError

PASSES_ON = "Inputs of the pipeline, and options of the stages' commands. CONFIG lists the inputs and stages."


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument(
        "pipeline", metavar="CONFIG", help="a TOML file or the name of a shipped pipeline"
    )
    run_dir_option(parser, "the pipeline's directory")
    parser.group("output").add_argument(
        "--training_dir",
        metavar="DIR|URL",
        help="where to put the runs of pretrain, transfer and prune, such as a bucket that several machines share "
        "(default: in RUN)",
    )
    steps = parser.group("steps")
    steps.add_argument("--only", type=parse_names, default=(), metavar="A,B", help="stages to run (default: all)")
    steps.add_argument("--from_stage", default="", metavar="NAME", help="the stage to start with (default: the first)")
    job_options(parser, "steps", "tasks to run, with the steps that they need (default: all)", "--plan")
    steps.add_argument(
        "--topology",
        metavar="SLICE",
        help="for --dry_run: also print chip-hours on this TPU slice, such as v5e:16x16 (default: none)",
    )
    steps.add_argument(
        "--launch",
        type=shlex.split,
        default=(),
        metavar="WORDS",
        help="words to put before every pretrain, transfer and prune command, to start the command elsewhere or "
        "several times, such as 'launch/local_multi.sh 2' (default: none)",
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Run every step that is not finished, or print commands or costs."""
    from bertzoo.jobs.pipeline import jobs_of, load_pipeline
    from bertzoo.jobs.record import JobRecord

    pipeline = load_pipeline(args.pipeline, overrides, args.tasks)
    record = JobRecord(args.run_dir, pipeline, args.training_dir)
    if args.launch and shutil.which(args.launch[0]) is None:
        raise UserError(f"--launch starts with {args.launch[0]}, which is not a program. Correct its path.")
    return run_list(args, record, jobs_of(pipeline, args.only, args.from_stage), tuple(args.launch))
