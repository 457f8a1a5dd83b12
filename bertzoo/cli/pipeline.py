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
--run_dir=runs/mobilebert --plan --topology=v5e:16x16
"""

import argparse
import shlex
import shutil
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import Parser, run_dir_option, say
from bertzoo.cli.support.points import check_options, parse_count, parse_names, tasks
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.pipeline.check import Cost
    from bertzoo.pipeline.recipe import Step
    from bertzoo.pipeline.record import PipelineRecord

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
    steps.add_argument(
        "--tasks",
        type=parse_names,
        default=(),
        metavar="A,B",
        help="tasks to run, with the steps that they need (default: all)",
    )
    steps.add_argument("--list", action="store_true", help="print the commands of all steps and run none")
    steps.add_argument("--plan", action="store_true", help="check everything, print what each step costs, and run none")
    steps.add_argument(
        "--topology",
        metavar="SLICE",
        help="for --plan: also print chip-hours on this TPU slice, such as v5e:16x16 (default: none)",
    )
    steps.add_argument(
        "--processes",
        type=partial(parse_count, "--processes"),
        metavar="N",
        help="fine-tunings that run at once (default: one per device)",
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
    import jax

    jax.config.update("jax_platforms", "cpu")  # the steps' processes need the devices
    from bertzoo.pipeline.check import check_steps
    from bertzoo.pipeline.page import command_line
    from bertzoo.pipeline.recipe import load_pipeline
    from bertzoo.pipeline.record import PAGE, PipelineRecord, steps_of

    pipeline = load_pipeline(args.pipeline, overrides, args.tasks)
    record = PipelineRecord(args.run_dir, pipeline, args.training_dir)
    steps = steps_of(pipeline, args.only, args.from_stage)
    if not steps:
        only = ",".join(args.only)
        raise UserError(
            f"all stages in --only={only} come before --from_stage={args.from_stage}. Leave --only or --from_stage out."
        )
    if args.topology and not args.plan:
        raise UserError(f"--topology={args.topology} applies only to --plan. Add --plan.")
    if args.list and args.plan:
        raise UserError("--list and --plan exclude each other. Keep one.")
    if args.launch and shutil.which(args.launch[0]) is None:
        raise UserError(f"--launch starts with {args.launch[0]}, which is not a program. Correct its path.")
    if args.list:
        for step in steps:
            print(command_line(record, step, args.launch if step.is_training else ()))
        return 0
    if args.plan:
        costs = check_steps(record, steps, configs_of)
        _print_plan(record, steps, costs, args.topology)
        return 0
    from bertzoo.finetuning.sweep import slots
    from bertzoo.pipeline.run import Execution, run_pipeline

    execution = Execution(environments=slots.device_environments(args.processes), launcher=tuple(args.launch))
    failed = run_pipeline(record, steps, configs_of, execution)
    say(f"wrote {record.path / PAGE}")
    if failed:
        say(f"{failed} of {len(steps)} steps failed; run the same command to try them again")
    return 1 if failed else 0


def configs_of(words: Sequence[str]) -> list[Any]:
    """Return the configs of a step's command line: one for each run of a sweep, else at most one.

    Raises the command's UserError.
    """
    from bertzoo.cli import config, convert
    from bertzoo.cli import main as cli
    from bertzoo.core import config as loader

    if words[0] in config.VERBS:
        return [config.command_config(list(words))]
    verb, args, overrides = cli.parse(words)
    if args is None:
        raise UserError(f"--help does not apply to a step. Use `bertzoo {words[0]} --help`.")
    if words[0] == "sweep":
        from bertzoo.finetuning.sweep import grid
        from bertzoo.finetuning.sweep.record import Record

        points = grid.load_sweep(args.sweep, overrides, args.tasks).points(args.random, args.random_seed)
        sweep = Record(args.run_dir, points)
        configs = check_options(sweep)
        for _ in tasks(sweep):  # which raises if a task does not fit the options or the teacher
            pass
        return configs
    if words[0] == "convert":
        convert.options(args)
    if words[0] == "tokenize":
        return [verb.settings(args, overrides)]
    if words[0] != "finetune":
        return []
    recipe = loader.load(verb.config(), args.files, overrides)
    verb.task_of(args, recipe)
    return [recipe]


def _print_plan(
    record: "PipelineRecord", steps: "Sequence[Step]", costs: "dict[str, Cost]", topology: str | None
) -> None:
    from bertzoo.core.tables import aligned
    from bertzoo.pipeline.check import stage_flops

    hours = {step.name: _chip_hours(record, step, topology) for step in steps if topology and step.is_training}
    rows = [["step", "command", "parameters", "steps", "TFLOPs", "GB on disk", *["chip-hours"] * bool(topology)]]
    for step in steps:
        cost = costs[step.name]
        stages = list(stage_flops(configs_of(record.words(step))[0])) if step.is_training else []
        flops = sum(count * flops for count, flops in stages)
        cells = [f"{cost.parameters:,}" if cost.parameters else ""]
        cells += [f"{sum(count for count, _ in stages):,}", f"{flops / 1e12:,.0f}"] if stages else ["", ""]
        cells.append(f"{cost.size / 1e9:.2f}" if cost.size else "")
        rows.append([step.name, step.verb, *cells, *[hours.get(step.name, "")] * bool(topology)])
    for line in aligned(rows, 2):
        print(line)


def _chip_hours(record: "PipelineRecord", step: "Step", topology: str | None) -> str:
    from bertzoo.planning import estimate

    (recipe,) = configs_of(record.words(step))
    if step.verb == "prune" or topology is None:
        return ""
    plan = estimate.plan(recipe, topology)
    least, most = plan.chip_hours
    return f"{least:,.1f} to {most:,.1f}"
