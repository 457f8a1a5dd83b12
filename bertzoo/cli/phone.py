"""What a phone is to compute of a LiteRT file, and whether it did; launch/phone.sh calls both and moves the files.

`pack` writes into the new folder FOLDER, as the bytes that LiteRT's benchmark_model reads, the golden inputs that
`bertzoo convert --to=litert` left beside FILE and, of a fine-tuned model, what it was scored on. `judge`
compares the outputs in the folder GIVEN, one file a row, with those of the same file on this machine, and scores the
task; it exits with 1 where an output is further off than another device's kernels round, or a score is lower.

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
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="what is packed")
    parser.add_argument("given", metavar="GIVEN", type=Path, nargs="?", help="judge: what the phone computed")
    parser.add_argument("--rows", type=_rows, help="pack: of the task's rows the first so many (default: all)")
    parser.add_argument("--limit", type=_limit, help="judge: the largest error, a share of an output's largest value")
    parser.add_argument("--float16", action="store_true", help="judge: the phone computed in it, as GPUs and NNAPI do")
    parser.add_argument("--json", action="store_true", help="judge: one JSON document")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Pack, or judge."""
    from bertzoo.export.check import device
    from bertzoo.tasks.metrics import is_threshold

    if not args.file.is_file():
        raise UserError(f"{args.file} is no file")
    if args.action == "pack":
        for name, flag in (("given", "GIVEN"), ("limit", "--limit"), ("float16", "--float16"), ("json", "--json")):
            if getattr(args, name) is not None and getattr(args, name) is not False:
                raise UserError(f"{flag} is of judge and has no meaning for pack")
        golden, asked = device.pack(args.file, args.folder, args.rows)
        print(f"Wrote {args.folder}: {golden + asked} rows, {golden} golden and {asked} of the task.")
        return 0
    if args.given is None:
        raise UserError("judge needs GIVEN, the folder of what the phone computed")
    if args.rows is not None:
        raise UserError("--rows is of pack; judge goes by what was packed")
    found = device.judge(args.file, args.given, device.packed(args.file, args.folder), args.limit, args.float16)
    if args.json:
        print(json.dumps(_finite(found), allow_nan=False))
        return 0 if found["right"] else 1
    for name, one in found["golden"].items():
        print(
            f"{name}: largest error {one['max_error']:.2g} of values up to {one['largest']:.3g}, "
            f"cosine {one['cosine']:.6f}, {found['rows']} rows"
        )
    if exam := found["exam"]:
        asked = f"{exam['task']}, {exam['split']}, {exam['examples']:,} of {exam['of']:,} examples"
        for name, points in exam["scores"]["phone"].items():
            if is_threshold(name):
                continue
            print(f"{asked}: {name} {points:.2f}, here {exam['scores']['here'][name]:.2f}")
    if found["wrong"]:
        print(f"The phone does not compute what the file computes here: {'; '.join(found['wrong'])}.")
    return 0 if found["right"] else 1


def _rows(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of rows")
    return int(text)


def _limit(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number from 0 on")
    return found


def _finite(found: Any) -> Any:
    """With None for what is not finite, which JSON has not."""
    if isinstance(found, dict):
        return {name: _finite(value) for name, value in found.items()}
    return None if isinstance(found, float) and not math.isfinite(found) else found
