"""Time models on this machine's CPU; print their speed, file size and memory.

A MODEL is a shipped config or a TOML file (its weights are random), a run, a checkpoint, a model directory, a Hugging
Face directory, or a file that `bertzoo convert` wrote, which its own runtime runs. A model without the head of a task
is measured as a classifier of two classes, as in the papers. Every run reads one row.

Every model in every runtime is a process of its own; all are loaded at once. They run in turns, in an order that
changes from round to round, so that other load on the machine affects all alike; the first run of a turn is not
counted. Speed is the time of BERT-base, or else of the first MODEL, divided by the row's time, in the same runtime with
as many threads and tokens: above 1 is faster. Peak memory excludes the runtime without a model.

--profile adds the share of the operations of each part of the model, as in SqueezeBERT's Table 1, whose FFN is
attention_output and feed_forward together.

--table measures small encoders like MODEL in LiteRT, at a few sizes of every dimension that can be cut, and writes a
file that `bertzoo prune` counts milliseconds with (target.kind = "latency").

examples:
  bertzoo benchmark bert_base squeezebert mobilebert convbert_base
  bertzoo benchmark runs/sst2 sst2.tflite --backends=litert,torch --threads=1,4 --json
  bertzoo benchmark mobilebert --model.norm=layer_norm --precision=fp32,int8-dynamic --lengths=32,128 --out=speed.png
  bertzoo benchmark bert_base --profile
  bertzoo benchmark bert_base --table=latency.json --dimensions=h,f
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError

Overrides = Sequence[tuple[str, str]]


def config() -> type:
    """The class of the configs."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a model to measure; the first has speed 1.00")
    parser.add_argument("--backends", type=_words, help="runtimes: litert (default), torch, onnx, jax, executorch")
    parser.add_argument("--threads", type=_numbers, default=[1], help="threads that a run may use (default: 1)")
    parser.add_argument("--lengths", type=_numbers, help="tokens in a row (default: 128)")
    parser.add_argument("--precision", type=_words, help="of the weights, as in `bertzoo convert` (default: fp32)")
    parser.add_argument("--runs", type=int, default=40, help="counted runs of each (default: 40)")
    parser.add_argument("--rounds", type=int, default=8, help="turns that the runs are spread over (default: 8)")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="executorch: a Python that has it (default: this one)"
    )
    parser.add_argument("--profile", action="store_true", help="add each part's share of a model's operations")
    parser.add_argument("--out", type=Path, metavar="PNG", help="write a bar chart of the medians")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the times of small encoders, for prune")
    parser.add_argument("--dimensions", type=_words, help="--table: letters such as h,f (default: all of the model)")
    parser.add_argument("--steps", type=int, help="--table: number of sizes of each dimension (default: 4)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if all(number.isdecimal() and int(number) > 0 for number in numbers):
        return [int(number) for number in numbers]
    raise UserError(f"{text} is not a list of numbers above 0, such as 1,4")


def main(args: argparse.Namespace, overrides: Overrides) -> int:
    """Measure, draw, print."""
    from bertzoo.benchmarking import picture
    from bertzoo.benchmarking.benchmark import BenchmarkSettings, benchmark

    for flag in ("out", "table"):
        path: Path | None = getattr(args, flag)
        if path is not None and (not path.parent.is_dir() or path.is_dir()):
            raise UserError(f"--{flag}={path} cannot be written: name a file in a directory that exists")
    if args.out is not None and args.out.suffix != ".png":
        raise UserError(f"--out={args.out}: the picture is a PNG file; give a name that ends in .png")
    settings = BenchmarkSettings(
        backends=args.backends,
        precisions=args.precision,
        lengths=args.lengths,
        threads=args.threads,
        runs=args.runs,
        rounds=args.rounds,
        python=args.python,
    )
    if args.table is not None:
        return _table(args, overrides)
    for flag in ("dimensions", "steps"):
        if getattr(args, flag) is not None:
            raise UserError(f"--{flag} applies to a table: add --table=FILE, or leave it out")
    result = benchmark(args.models, overrides=overrides, settings=settings, parts=args.profile, tell=say)
    if args.out is not None:
        picture.draw(result.rows, result.base, args.runs, args.out)
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
    """Measure and write a latency table."""
    from bertzoo.benchmarking import latency
    from bertzoo.core import atomic

    if len(args.models) > 1:
        raise UserError(f"--table measures one MODEL, not {len(args.models)}: name one")
    if args.backends not in (None, ["litert"]):
        raise UserError(f"--table is measured in litert, not in {','.join(args.backends)}: leave --backends out")
    for flag in ("threads", "lengths", "precision"):
        if len(values := getattr(args, flag) or ()) > 1:
            raise UserError(f"--table measures one setting, but --{flag}={','.join(map(str, values))}: give one")
    for flag in ("profile", "out"):
        if getattr(args, flag):
            raise UserError(f"--{flag} does not apply to --table: leave one of them out")
    settings = latency.LatencySettings(
        dimensions=args.dimensions or (),
        steps=latency.STEPS if args.steps is None else args.steps,
        length=args.lengths[0] if args.lengths else 0,
        threads=args.threads[0],
        precision=args.precision[0] if args.precision else "fp32",
        runs=args.runs,
        rounds=args.rounds,
    )
    table = latency.measure_config(args.models[0], overrides, settings, say)
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
