"""Pack test inputs for a phone and check its outputs; launch/phone.sh calls both and moves the files.

`pack` writes the golden inputs that `bertzoo convert --to=litert` left beside FILE and, of a fine-tuned classifier or
regression, the examples that it was scored on, into the new folder FOLDER as the bytes that LiteRT's benchmark_model
reads. `judge` compares the outputs in the folder GIVEN, one file per row, with those of the same file on this machine,
and scores the task; it exits with 1 if an output is further off than another device's rounding, or a score is lower.

examples:
  bertzoo phone pack sst2.tflite packed --rows=100
  bertzoo phone judge sst2.tflite packed given
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertzoo.core.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("action", choices=("pack", "judge"))
    parser.add_argument("file", metavar="FILE", type=Path, help="the .tflite file")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the packed inputs")
    parser.add_argument("given", metavar="GIVEN", type=Path, nargs="?", help="judge: the phone's outputs")
    parser.add_argument("--rows", type=_rows, help="pack: the first N rows of the task (default: all)")
    parser.add_argument("--limit", type=_limit, help="judge: the largest error, a share of an output's largest value")
    parser.add_argument("--float16", action="store_true", help="judge: the phone computed in it, as GPUs and NNAPI do")
    parser.add_argument("--json", action="store_true", help="judge: one JSON document")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Pack, or judge and print the errors and scores."""
    from bertzoo.export.check import device
    from bertzoo.tasks.metrics import is_threshold

    if not args.file.is_file():
        raise UserError(f"{args.file} does not exist or is not a file")
    if args.action == "pack":
        for name, flag in (("given", "GIVEN"), ("limit", "--limit"), ("float16", "--float16"), ("json", "--json")):
            if getattr(args, name) is not None and getattr(args, name) is not False:
                raise UserError(f"{flag} applies to judge, not to pack")
        golden, task = device.pack(args.file, args.folder, args.rows)
        print(f"Wrote {args.folder}: {golden + task} rows, {golden} golden and {task} of the task.")
        return 0
    if args.given is None:
        raise UserError("judge needs GIVEN, the folder of the phone's outputs")
    if args.rows is not None:
        raise UserError("--rows applies to pack; judge takes the number of rows from FOLDER")
    examples = device.count_packed(args.file, args.folder)
    report = device.judge(args.file, args.given, examples, args.limit, args.float16)
    code = 0 if report["right"] else 1
    if args.json:
        print(json.dumps(_finite(report), allow_nan=False))
        return code
    for name, errors in report["golden"].items():
        print(
            f"{name}: largest error {errors['max_error']:.2g} of values up to {errors['largest']:.3g}, "
            f"cosine {errors['cosine']:.6f}, {report['rows']} rows"
        )
    if exam := report["exam"]:
        task = f"{exam['task']}, {exam['split']}, {exam['examples']:,} of {exam['of']:,} examples"
        for name, points in exam["scores"]["phone"].items():
            if not is_threshold(name):
                print(f"{task}: {name} {points:.2f}, here {exam['scores']['here'][name]:.2f}")
    if report["wrong"]:
        print(f"The phone does not compute what the file computes here: {'; '.join(report['wrong'])}.")
    return code


def _rows(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of rows")
    return int(text)


def _limit(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number from 0 on")
    return limit


def _finite(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
