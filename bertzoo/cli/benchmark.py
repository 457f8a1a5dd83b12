"""Measure speed, size and memory of models on this machine's CPU.

MODEL is a shipped config or TOML file (random weights), a run, a checkpoint, a model or Hugging Face directory, or a
file that `bertzoo convert` wrote. A model without a task's head is measured as a classifier of two classes. The models
take turns, with one row at a time. Speeds are relative to the first MODEL of BERT-base's shape or, without such a
MODEL, to the first MODEL; a speed of 2 is twice as fast.

examples:
  bertzoo benchmark bert_base squeezebert mobilebert convbert_base
  bertzoo benchmark runs/sst2 sst2.tflite --backends=litert,torch --threads=1,4 --json
  bertzoo benchmark bert_base --table=latency.json --dimensions=h,f
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.support.options import Parser, json_option
from bertzoo.core.errors import UserError

Overrides = Sequence[tuple[str, str]]


def config() -> type:
    """Return Pretrain, the class of the configs that MODEL can name."""
    from bertzoo.runs.configs import Pretrain

    return Pretrain


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    runs, output = parser.group("measurement"), parser.group("output")
    parser.group("input").add_argument("models", nargs="+", metavar="MODEL", help="a model to measure")
    runs.add_argument(
        "--backends",
        type=_words,
        metavar="A,B",
        help="runtimes: litert, torch, onnx, jax, executorch (default: litert)",
    )
    runs.add_argument(
        "--threads", type=_numbers, default="1", metavar="N,…", help="numbers of CPU threads to measure with"
    )
    runs.add_argument(
        "--lengths", type=_numbers, metavar="N,…", help="row lengths in tokens to measure with (default: 128)"
    )
    runs.add_argument(
        "--precision",
        type=_words,
        metavar="A,B",
        help="precisions of the weights, as in `bertzoo convert` (default: fp32)",
    )
    runs.add_argument("--runs", type=int, default=40, metavar="N", help="timed runs of each model")
    runs.add_argument(
        "--rounds",
        type=int,
        default=8,
        metavar="N",
        help="rounds to spread the timed runs over; in each round, the models take turns",
    )
    runs.add_argument(
        "--profile", action="store_true", help="print the share of each part, such as attention, in a model's FLOPs"
    )
    runs.add_argument(
        "--python",
        type=Path,
        metavar="FILE",
        help="for executorch: a Python that has executorch (default: this Python)",
    )
    table = parser.group("latency table")
    table.add_argument(
        "--table",
        type=Path,
        metavar="FILE",
        help="write the LiteRT latencies of encoders up to MODEL's size, for `bertzoo prune` with "
        'target.kind = "latency" (default: no table)',
    )
    table.add_argument(
        "--dimensions",
        type=_words,
        metavar="A,B",
        help="letters of the dimensions to vary, such as h,f for the width and the feed-forward size (default: every "
        "dimension that pruning can cut)",
    )
    table.add_argument(
        "--steps", type=int, metavar="N", help="how many sizes of each dimension to measure (default: 4)"
    )
    output.add_argument(
        "--out", type=Path, metavar="PNG", help="draw a bar chart of the median latencies (default: none)"
    )
    json_option(parser)


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if all(number.isdecimal() and int(number) > 0 for number in numbers):
        return [int(number) for number in numbers]
    raise UserError(
        f"--threads and --lengths need whole numbers above 0, not {text}. Write, for example, --threads=1,4."
    )


def main(args: argparse.Namespace, overrides: Overrides) -> int:
    """Measure the models and print the results, or write a latency table."""
    from bertzoo.benchmarking import rows
    from bertzoo.benchmarking.benchmark import BenchmarkSettings, benchmark

    for flag in ("out", "table"):
        path: Path | None = getattr(args, flag)
        if path is not None and (not path.parent.is_dir() or path.is_dir()):
            raise UserError(f"--{flag}={path} cannot be written. Name a file in a directory that exists.")
    if args.out is not None and args.out.suffix != ".png":
        raise UserError(f"--out={args.out} is not a PNG file. Give a name that ends in .png.")
    settings = BenchmarkSettings(
        backends=args.backends,
        precisions=args.precision,
        lengths=args.lengths,
        threads=args.threads,
        runs=args.runs,
        rounds=args.rounds,
        python=args.python or Path(sys.executable),
    )
    if args.table is not None:
        return _table(args, overrides)
    for flag in ("dimensions", "steps"):
        if getattr(args, flag) is not None:
            raise UserError(f"--{flag} applies only to --table. Add --table=FILE, or leave --{flag} out.")
    result = benchmark(args.models, overrides=overrides, settings=settings, parts=args.profile)
    if args.out is not None:
        rows.draw(result.rows, result.base, args.runs, args.out)
    if args.json:
        print(json.dumps(result.document()))
        return 0
    print("\n".join(result.lines()))
    for shares in result.parts:
        print("\n".join(["", *shares.lines()]))
    if args.out is not None:
        print(f"Wrote {args.out}.")
    return 0


def _table(args: argparse.Namespace, overrides: Overrides) -> int:
    from bertzoo.benchmarking import latency
    from bertzoo.core import atomic

    if len(args.models) > 1:
        raise UserError(f"--table measures one MODEL, not {len(args.models)}. Name one MODEL.")
    if args.backends not in (None, ["litert"]):
        raise UserError(f"--table measures only in litert, not in {','.join(args.backends)}. Leave --backends out.")
    for flag in ("threads", "lengths", "precision"):
        if len(values := getattr(args, flag) or ()) > 1:
            raise UserError(f"--table needs one value of --{flag}, not {','.join(map(str, values))}. Give one value.")
    for flag in ("profile", "out"):
        if getattr(args, flag):
            raise UserError(f"--{flag} and --table exclude each other. Leave one out.")
    settings = latency.LatencySettings(
        dimensions=args.dimensions or (),
        steps=latency.STEPS if args.steps is None else args.steps,
        length=args.lengths[0] if args.lengths else 0,
        threads=args.threads[0],
        precision=args.precision[0] if args.precision else "fp32",
        runs=args.runs,
        rounds=args.rounds,
    )
    table = latency.measure_config(args.models[0], overrides, settings)
    atomic.write_json(args.table, table.document())
    if args.json:
        print(json.dumps(table.document()))
        return 0
    for letter, sizes in table.sizes.items():
        print(f"{letter}  {', '.join(map(str, sizes))}")
    whole = table.measurement["whole"]
    print(f"{args.models[0]}: {whole['measured_ms']:.3f} ms measured, {whole['table_ms']:.3f} ms by the table")
    print(f"Wrote {args.table}.")
    return 0
