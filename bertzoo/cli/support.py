"""Flags, progress lines and start-up that verbs share: all, those that train, those that run jobs."""

import argparse
import dataclasses
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args, get_origin

from bertzoo.core import config as loader
from bertzoo.core.documents import parse_toml
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.options import Option, declared_options, option, parse_text
from bertzoo.core.paths import Location
from bertzoo.train import signals

if TYPE_CHECKING:
    from bertzoo.jobs.job import CommandJob
    from bertzoo.jobs.record import JobRecord
    from bertzoo.jobs.run import PlannedRun
    from bertzoo.jobs.search import Chooser
    from bertzoo.runs.training import Options

T = TypeVar("T")
GROUPS = {  # descriptions of groups of options in a command's help
    "several processes": "On Cloud TPU, GKE and Slurm, coordinator, processes and process are detected. Elsewhere, set "
    "all three for every process, each with its own --distributed.process. All processes must see the same RUN."
}
INTERVAL = 10.0  # seconds between two progress lines
job_option = partial(option, group="jobs")


class Parser(argparse.ArgumentParser):
    """A verb's argument parser: raises UserError instead of exiting, and takes no abbreviations.

    Its description is the verb's docstring: a summary in one line, paragraphs, and "examples:" with indented commands.
    keys: the help text of `--TABLE.KEY=VALUE`, empty if the verb has no such options.
    """

    def __init__(self, *, description: str | None = None, keys: str = "", **options) -> None:
        details, _, examples = (description or "").strip().partition("\n\nexamples:\n")
        epilog = f"examples:\n{examples}" if examples else None
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(
            description=details, epilog=epilog, allow_abbrev=False, add_help=False, formatter_class=form, **options
        )
        self.keys = keys

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}. See `{self.prog} --help`.")

    def flags(self) -> list[str]:
        """Return the names of the declared options, without dashes."""
        return [option.removeprefix("--") for option in self._option_string_actions if option.startswith("--")]

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return the option group with this title, and create it if there is none."""
        titled = (group for group in self._action_groups if group.title == title)
        return next(titled, None) or self.add_argument_group(title, textwrap.fill(GROUPS.get(title, ""), 100) or None)

    def complete(self) -> None:
        """Declare --help and --debug, which every verb has, and set the usage line."""
        group = self.group("general")
        group.add_argument("-h", "--help", action="help", help="show this help")
        group.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if self.keys:
            self.add_argument_group("config keys", textwrap.fill(self.keys, 100))
        formatter = self._get_formatter()
        positionals = [formatter._format_args(action, action.dest) for action in self._get_positional_actions()]
        keys = ["[--TABLE.KEY=VALUE ...]"] if self.keys else []
        self.usage = " ".join([self.prog, *positionals, "[OPTIONS]", *keys])


def declare(parser: Parser, cls: type) -> None:
    """Declare the fields of the options class `cls` as a parser's arguments."""

    def order(entry: tuple[dataclasses.Field, Option, Any]) -> tuple[bool, bool]:
        """Sort arguments first, then options of the input: fields of a base class would precede them."""
        field, declared, _ = entry
        named = field.kw_only is True
        return named, named and declared.group != "input"

    for field, declared, tp in sorted(declared_options(cls), key=order):
        named, required, many = field.kw_only, field.default is dataclasses.MISSING, get_origin(tp) is tuple
        several = declared.repeat or (many and not named)
        name = declared.flag or f"--{field.name}" if named else field.name
        arguments: dict[str, Any] = {"help": declared.help}
        arguments |= {} if required else {"default": field.default}
        if named and tp is not bool and "(default: " not in declared.help:
            arguments["help"] += " (required)" if required else " (default: %(default)s)"
        if tp is bool:
            arguments["action"] = "store_false" if field.default is True else "store_true"
        elif get_origin(tp) is Literal and not declared.parse:
            arguments |= {"choices": get_args(tp), "metavar": declared.metavar}
        else:
            inner = get_args(tp)[0] if many and several else tp
            word = name if named else declared.metavar or name
            arguments["metavar"] = declared.metavar
            check = partial(declared.check, word) if declared.check else None
            arguments["type"] = check or declared.parse or partial(parse_text, word, inner, least=declared.least)
        if named:
            arguments |= {"dest": field.name} | ({"required": True} if required else {})
            if declared.repeat:
                default: Any = None if required else field.default
                arguments |= {"action": "append", "default": None if default is None else list(default)}
        elif several or not required:
            arguments["nargs"] = ("+" if required else "*") if several else "?"
        names = (name, declared.short) if declared.short else (name,)
        parser.group(declared.group).add_argument(*names, **arguments)


def read_options(cls: type[T], args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> T:
    """Return the options of class `cls` that a command line sets. overrides: for its field of this name, if any."""
    values = {field.name: getattr(args, field.name) for field, *_ in declared_options(cls)}
    values |= {"overrides": overrides} if hasattr(cls, "overrides") else {}
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def log(message: str) -> None:
    """Print a line to standard error; results go to standard output."""
    print(message, file=sys.stderr, flush=True)


def json_field(text: str = "print one JSON document on standard output") -> Any:
    """Declare --json, with the help `text`."""
    return option(text, False, group="output")


def tokenising() -> Callable[[int, int], None]:
    """Return a function of (finished shards, characters of text read) that prints a line at most every 10 s."""
    last = time.monotonic()

    def show(shards: int, characters: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            state = f"{shards:,} shard{'' if shards == 1 else 's'} done"
            log(f"tokenising: {characters / 1e6:,.1f} M characters of text read, {state}")

    return show


_process = partial(option, group="several processes")


@dataclass(frozen=True, kw_only=True)
class ProcessFlags:
    """The processes of a run: the address of process 0, their number and their timeouts."""

    coordinator: str | None = _process(
        "the address of process 0 (default: detected)", None, metavar="HOST:PORT", flag="--distributed.coordinator"
    )
    processes: int | None = _process(
        "the number of processes of the run (default: detected)", None, metavar="N", flag="--distributed.processes"
    )
    process: int | None = _process(
        "the number of this process, from 0 (default: detected)", None, metavar="I", flag="--distributed.process"
    )
    start_timeout: int = _process(
        "seconds to wait for all processes", 300, metavar="S", flag="--distributed.start_timeout"
    )
    heartbeat_timeout: int = _process(
        "seconds without a heartbeat after which a process counts as lost and the others end",
        30,
        metavar="S",
        flag="--distributed.heartbeat_timeout",
    )


def train_to_end(options: Any, train: Callable[[Any, "Options"], str], late: bool = False) -> int:
    """Train to the end, as the only process or one of several.

    train: function from the config and the `runs.training.Options` to the closing line.
    late: whether to load the config only after the processes have connected, because the config may need a model.
    """
    from bertzoo.api.options import recipe_of
    from bertzoo.train import hosts

    recipe = None if late else recipe_of(options)
    cluster = hosts.Cluster(**{field.name: getattr(options, field.name) for field in fields(ProcessFlags)})
    if cluster.detection() and not signals.is_child():
        name = "this process" if cluster.process is None else f"process {cluster.process} of {cluster.processes}"
        return signals.supervise(sys.argv[1:], name)
    hosts.connect(cluster)
    with hosts.host_lost_errors():
        from bertzoo.runs.training import Options

        recipe = recipe or hosts.in_turn("the model", partial(recipe_of, options))
        first = hosts.share("the config", lambda: loader.dump(recipe))
        if changed := loader.difference(parse_toml(first), parse_toml(loader.dump(recipe))):
            raise ConfigError(
                f"this process and process 0 have different configs: {'; '.join(changed)}. Give all the same config."
            )
        execution = Options(corpus=options.corpus, workers=options.workers, progress=tokenising)
        line = train(recipe, execution)
    if hosts.is_first():
        log(line)
    return 0


def finished(step: int, run: Location) -> str:
    """Return the closing line of a finished run."""
    return f"finished after {step} steps; next: bertzoo report {run}, bertzoo evaluate {run}"


@dataclass(frozen=True, kw_only=True)
class JobFlags:
    """The flags of a command that runs a list of jobs."""

    run_dir: str = option("the directory of the list", group="output", metavar="RUN")
    overrides: tuple[tuple[str, str], ...] = ()
    tasks: tuple[str, ...] = job_option(
        "only these tasks, with the steps that they need (default: all)", (), metavar="A,B"
    )
    processes: int | None = job_option(
        "fine-tunings that run at once (default: one per device; in Slurm's queue 32, of a study 4)",
        None,
        metavar="N",
        least=1,
    )
    executor: Literal["local", "slurm"] = job_option(
        "where the jobs run: on this machine, or on nodes of a Slurm cluster", "local"
    )
    srun: tuple[str, ...] | None = job_option(
        "for slurm: an option of srun, such as -pgpu; repeatable (default: none)", None, metavar="OPTION", repeat=True
    )
    cores: int | None = job_option(
        "cores of each job (default: an even share; on Slurm the cluster's)", None, metavar="N", least=1
    )
    memory: float | None = job_option(
        "memory of each job, which waits for it (default: estimated; on Slurm the cluster's)",
        None,
        metavar="GB",
        least=0.1,
    )
    list: bool = job_option("print the commands of all jobs and run none", False)
    dry_run: bool = job_option("check everything, print what each job costs, and run none", False)


def planned_runs(words: Sequence[str]) -> "list[PlannedRun]":
    """Parse the command line of a job, and return its runs: one for each point of a sweep, else at most one.

    Raises the command's UserError.
    """
    from bertzoo.api.options import recipe_of
    from bertzoo.api.training import data_of
    from bertzoo.cli import main as cli
    from bertzoo.jobs.run import PlannedRun

    verb, options = cli.parse(words)
    if options is None:
        raise UserError(f"--help does not apply to a job. Remove it. `bertzoo {words[0]} --help` lists the options.")
    if words[0] == "sweep":
        from bertzoo.jobs.record import JobRecord

        points, *_ = verb.load(options)
        record = JobRecord(options.run_dir, points)
        return [run for point in points.jobs for run in planned_runs(record.words(point))]
    if words[0] not in ("tokenize", "pretrain", "transfer", "prune", "finetune"):
        return []
    recipe: Any = data_of(options) if words[0] == "tokenize" else recipe_of(options)
    task = verb.task_of(options, recipe) if words[0] == "finetune" else None
    check = partial(verb.check_models, options, recipe) if hasattr(verb, "check_models") else None
    return [PlannedRun(recipe=recipe, task=task, check_models=check)]


def run_list(
    options: JobFlags,
    record: "JobRecord",
    jobs: "Sequence[CommandJob]",
    launcher: Sequence[str] = (),
    chooser: "Chooser | None" = None,
) -> int:
    """Run the unfinished jobs or, by the flags, print commands or costs; return the exit code.

    launcher: words that start training on other machines. chooser: chooses the jobs to run instead of `jobs`.
    """
    from bertzoo.jobs import progress

    if options.list and options.dry_run:
        raise UserError("--list and --dry_run exclude each other. Keep one.")
    if options.srun and options.executor != "slurm":
        raise UserError(f"--srun={options.srun[0]} applies only to --executor=slurm. Add --executor=slurm.")
    if options.list:
        for job in jobs:
            print(progress.command_line(record, job, launcher if job.is_training else ()))
        return 0
    import jax

    jax.config.update("jax_platforms", "cpu")  # the jobs' processes need the devices
    from bertzoo.jobs import local, run
    from bertzoo.jobs.run import Checks, Execution, run_jobs

    if options.executor == "local":
        local.check_machine(options.processes, options.cores, options.memory)
    if options.dry_run:
        checks = Checks(record, planned_runs)
        checks.prepare(jobs)
        print("\n".join(checks.lines(jobs)))
        return 0
    if options.executor == "slurm":
        srun = [f"--cpus-per-task={options.cores}"] * (options.cores is not None)
        srun += [f"--mem={1000 * (options.memory or 0):.0f}M"] * (options.memory is not None)
        srun += options.srun or ()
        run.srun_command("", srun)  # raises an error without srun
        queued = options.processes or (run.QUEUED_BY_STUDY if chooser else run.QUEUED)
        execution = Execution(environments=[{}] * queued, launcher=launcher, srun=srun)
    else:
        environments = local.device_environments(options.processes, options.cores)
        execution = Execution(environments=environments, launcher=launcher, cores=options.cores, memory=options.memory)
    failed = run_jobs(record, jobs, planned_runs, execution, chooser)
    log(f"wrote {progress.table_file(record)}")
    if failed:
        count = record.list.count(len(record.list.jobs) if chooser else len(jobs))
        log(f"{failed} of {count} failed; run the same command to try them again")
    return 1 if failed else 0
