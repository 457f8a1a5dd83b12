"""Measure speed, size and memory of models on this machine's CPU.

MODEL is a shipped config or TOML file (random weights), a run, a checkpoint, a model or Hugging Face directory, or a
file that `bertzoo convert` wrote. A model without a task's head is measured as a classifier of two classes. The models
take turns, with one text at a time. Speeds are relative to the first MODEL of BERT-base's shape or, without such a
MODEL, to the first MODEL; a speed of 2 is twice as fast.

examples:
  bertzoo benchmark bert_base squeezebert mobilebert convbert_base
  bertzoo benchmark runs/sst2 sst2.tflite --backends=litert,onnx --threads=1,4 --json
  bertzoo benchmark bert_base --table=latency.json --dimensions=h,f
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bertzoo.api.options import BenchmarkOptions
from bertzoo.cli.support import json_field
from bertzoo.core.atomic import check_file, write_json
from bertzoo.core.config import as_options
from bertzoo.core.errors import UserError
from bertzoo.core.options import flag_of, option, reject, set_options
from bertzoo.runs.kinds import PRETRAIN

_table_option = partial(option, group="latency table")

config = PRETRAIN.config  # what MODEL can name


@dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(BenchmarkOptions):
    table: Path | None = _table_option(
        "write the LiteRT latencies of encoders up to MODEL's size, for `bertzoo prune` with "
        'target.kind = "latency" (default: no table)',
        None,
        metavar="FILE",
    )
    dimensions: tuple[str, ...] | None = _table_option(
        "letters of the dimensions to vary, such as h,f for the width and the feed-forward size (default: every "
        "dimension that pruning can cut)",
        None,
        metavar="A,B",
    )
    steps: int | None = _table_option("how many sizes of each dimension to measure (default: 4)", None, metavar="N")
    json: bool = json_field()


def main(options: BenchmarkFlags) -> int:
    if options.table is not None:
        check_file(options.table, f"--table={options.table}")
        return _table(options, options.table)
    for flag in set_options(options, ("dimensions", "steps")):
        raise UserError(f"{flag} applies only to --table. Add --table=FILE, or leave {flag} out.")
    from bertzoo.api.models import run_benchmark

    result = run_benchmark(options)
    if options.json:
        print(json.dumps(result.document()))
        return 0
    print("\n".join(result.lines()))
    for shares in result.parts:
        print("\n".join(["", *shares.lines()]))
    return 0


def _table(options: BenchmarkFlags, file: Path) -> int:
    from bertzoo.benchmarking import latency

    for field in ("models", "threads", "lengths", "precisions"):
        if len(values := getattr(options, field) or ()) > 1:
            name = "MODEL" if field == "models" else flag_of(BenchmarkFlags, field)
            raise UserError(f"--table needs one value of {name}, not {','.join(map(str, values))}. Give one value.")
    if options.backends not in (None, ("litert",)):
        raise UserError(f"--table measures only in litert, not in {','.join(options.backends)}. Leave --backends out.")
    reject(options, ("parts",), "--table")
    name, steps = str(options.models[0]), latency.STEPS if options.steps is None else options.steps
    table = latency.measure_config(name, as_options(options.overrides), options, options.dimensions or (), steps)
    write_json(file, table.document())
    if options.json:
        print(json.dumps(table.document()))
        return 0
    for letter, sizes in table.sizes.items():
        print(f"{letter}  {', '.join(map(str, sizes))}")
    whole = table.measurement["whole"]
    print(f"{name}: {whole['measured_ms']:.3f} ms measured, {whole['table_ms']:.3f} ms by the table")
    print(f"Wrote {file}.")
    return 0
