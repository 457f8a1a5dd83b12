"""`bertzoo benchmark --table`: the file that a pruning counts milliseconds with."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.benchmarking.models import Subject

STEPS = 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of a table."""
    parser.add_argument("--table", type=Path, metavar="FILE", help="write what encoders of each size take, for prune")
    parser.add_argument("--dimensions", help="of --table: letters such as h,f (default: all that the model has)")
    parser.add_argument("--steps", type=int, help=f"of --table: how many sizes of each dimension (default: {STEPS})")


def check(args: argparse.Namespace) -> None:
    """Raise UserError where options do not go together."""
    if args.table is None:
        for name in ("dimensions", "steps"):
            if getattr(args, name) is not None:
                raise UserError(f"--{name} is of a table: add --table=FILE, or leave it out")
        return
    if len(args.models) > 1:
        raise UserError(f"--table is of one MODEL, not of {len(args.models)}: name one")
    if args.backends not in (None, ["litert"]):
        raise UserError(f"--table is measured in litert, not in {','.join(args.backends)}: leave --backends out")
    for name in ("threads", "lengths", "precision"):
        if len(given := getattr(args, name) or ()) > 1:
            raise UserError(f"--table is of one setting, but --{name}={','.join(map(str, given))}: give one")
    for name in ("profile", "out"):
        if getattr(args, name):
            raise UserError(f"--{name} is not of a table: leave out that or --table")
    if args.steps is not None and args.steps < 2:
        raise UserError(f"--steps={args.steps} leaves nothing to read between: at least 2, the least and the largest")
    if not args.table.parent.is_dir() or args.table.is_dir():
        raise UserError(f"--table={args.table} cannot be written: name a file in a directory that exists")


def main(args: argparse.Namespace, subject: "Subject") -> int:
    """Measure, write, say."""
    from bertzoo.benchmarking import latency
    from bertzoo.core import atomic
    from bertzoo.export import lengths

    if subject.pretrained is None:
        raise UserError(f"--table is of a model, but {subject.name} is a file: name what it was made of")
    precision: Any = (args.precision or ["fp32"])[0]
    wanted = latency.Wanted(
        dimensions=args.dimensions.split(",") if args.dimensions else (),
        steps=args.steps or STEPS,
        length=lengths.each(subject.pretrained, args.lengths or ())[0],
        threads=args.threads[0],
        precision=precision,
        runs=args.runs,
        rounds=args.rounds,
    )
    table = latency.measure(subject.pretrained.model, wanted, say)
    document = table.document()
    atomic.write_json(args.table, document)
    if args.json:
        print(json.dumps(document))
        return 0
    for letter, sizes in table.sizes.items():
        print(f"{letter}  {', '.join(map(str, sizes))}")
    whole = table.measurement["whole"]
    print(f"{subject.name}: {whole['measured_ms']:.3f} ms measured, {whole['table_ms']:.3f} ms by the table")
    print(f"Wrote {args.table}.")
    return 0
