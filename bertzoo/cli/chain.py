"""Fine-tune in stages that start from, or learn from, one another.

Run the same command again to resume: finished runs are skipped. CONFIG's stages are runs of `bertzoo finetune` that
start from --model.NAME=PATH or from the model of an earlier stage. Other options apply to every run,
--stages.NAME.KEY=VALUE to one stage, --tasks.NAME.KEY=VALUE to one task; {task} in a value stands for the task's name.
RUN/chain.csv has a line for every run. If a run fails, the runs that need it do not start.

examples:
  bertzoo chain squeezebert_glue --model.student=runs/squeezebert --model.teacher=runs/electra_base --data_dir=glue \
--run_dir=runs/glue
  bertzoo chain squeezebert_glue --model.student=runs/squeezebert --model.teacher=runs/electra_base --data_dir=glue \
--run_dir=runs/glue --processes=4
  bertzoo chain squeezebert_glue --model.student=runs/squeezebert --model.teacher=runs/electra_base --data_dir=glue \
--run_dir=runs/glue --tasks=rte --list
"""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import Parser, run_dir_option, say
from bertzoo.cli.support.points import (
    check_inputs,
    check_options,
    report_outcomes,
    run_points,
    task_options,
)
from bertzoo.core.errors import ConfigError, UserError

if TYPE_CHECKING:
    from bertzoo.core.paths import Location
    from bertzoo.finetuning.sweep.chain import Chain
    from bertzoo.finetuning.sweep.record import Record

PASSES_ON = True
_MODEL = "model."  # prefix of an option that names a model
FREE = ("data_dir",)  # settings that may change after a run has begun


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument("chain", metavar="CONFIG", help="a TOML file or the name of a shipped chain")
    run_dir_option(parser, "the chain's directory")
    task_options(parser, "only these tasks and the stages they need, comma-separated (default: all)", "runs")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Start each unfinished run once the runs that it needs are finished, and print the table."""
    from bertzoo.core.paths import on_disk
    from bertzoo.finetuning.sweep import chain as chains
    from bertzoo.finetuning.sweep import slots
    from bertzoo.finetuning.sweep.record import Record

    paths = {key.removeprefix(_MODEL): value for key, value in overrides if key.startswith(_MODEL)}
    chain = chains.load_chain(args.chain, [pair for pair in overrides if not pair[0].startswith(_MODEL)]).only(
        args.tasks
    )
    given = _given(chain, paths)
    run_dir = on_disk(args.run_dir, "the run directory", "Name a local or mounted directory.")
    record = Record(args.run_dir, chain.placed(given, run_dir / chains.STAGES), "chain", chains.STAGES)
    check_options(record)
    if args.list:
        for point in record.points:
            print(shlex.join(["bertzoo", *point.arguments(record.run_dir(point))]))
        return 0
    layout = _layout(chain)
    needs = {link.name: chain.needs(link) for link in chain.links}
    check_inputs(record)
    environments = slots.device_environments(args.processes)
    with record.locked():
        record.claim(chain.identity(given), lambda old, new: _changes(record, old, new))
        run_points(record, environments, lambda point: all(need in record.finished for need in needs[point.name]))
        for point in record.points:
            if lacking := [need for need in needs[point.name] if need not in record.finished]:
                record.states[point.name] = "waiting", f"needs {', '.join(lacking)}"
        record.write()
    for line in record.lines():
        print(line)
    _print_table(record, layout)
    return report_outcomes(record)


def _given(chain: "Chain", paths: dict[str, str]) -> dict[str, "Location"]:
    """Return the models' paths by name; raises UserError for one that is missing, without path, or not in the chain."""
    from bertzoo.cli.support.training import model_path
    from bertzoo.core.schema import nearest
    from bertzoo.runs import any_model

    for name in paths:
        if name not in chain.models:
            raise ConfigError(f"--{_MODEL}{name} is not a model of the chain{nearest(name, chain.models)}")
    needed = {name for link in chain.links for name in link.links.values() if name in chain.models}
    if missing := [name for name in chain.models if name in needed and name not in paths]:
        raise UserError(f"the chain starts from {missing[0]}, which has no path. Add --{_MODEL}{missing[0]}=PATH.")
    given = {name: model_path(f"--{_MODEL}{name}", text) for name, text in paths.items()}
    for path in given.values():
        any_model.check_model(path)
    return given


def _layout(chain: "Chain") -> Any:
    from bertzoo.core.schema import nearest
    from bertzoo.finetuning.results.layouts import PAPER_TABLES

    if chain.table and chain.table not in PAPER_TABLES:
        raise ConfigError(f"chain.table = {chain.table!r} is unknown{nearest(chain.table, PAPER_TABLES)}")
    return PAPER_TABLES.get(chain.table)


def _changes(record: "Record", old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return the changed settings of runs that have begun, except those in FREE."""
    from bertzoo.core import config as loader

    begun = [point.name for point in record.points if record.run_dir(point).exists()]
    both = [{name: about["runs"].get(name, {}) for name in begun} for about in (old, new)]
    return [line for line in loader.difference(*both) if line.split(":")[0].rsplit(".", 1)[-1] not in FREE]


def _print_table(record: "Record", layout: Any) -> None:
    """Print the papers' table with the finished runs."""
    from bertzoo.finetuning.results import render, rows

    if layout is None or not record.finished:
        return
    finished = [record.finished[point.name] for point in record.points if point.name in record.finished]
    table = rows.build_table(layout, finished)
    if render.has_own_rows(table):
        print(f"\n{render.markdown(table)}")
    else:
        say(f"no task of the chain is in the table of {layout.title}")
