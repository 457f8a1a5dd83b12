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
from collections.abc import Sequence
from pathlib import Path

from bertzoo.errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("action", choices=("pack", "judge"))
    parser.add_argument("file", metavar="FILE", type=Path, help="the .tflite file")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="what is packed")
    parser.add_argument("given", metavar="GIVEN", type=Path, nargs="?", help="judge: what the phone computed")
    parser.add_argument("--rows", type=int, help="pack: of the task's rows the first so many (default: all)")
    parser.add_argument("--limit", type=float, help="judge: the largest error, as a share of an output's largest value")
    parser.add_argument("--float16", action="store_true", help="judge: the phone computed in it, as GPUs and NNAPI do")
    parser.add_argument("--json", action="store_true", help="judge: one JSON document")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Pack, or judge."""
    from bertzoo.export import device

    if not args.file.is_file():
        raise UserError(f"{args.file} is no file")
    if args.action == "pack":
        for name in ("given", "limit", "float16", "json"):
            if getattr(args, name):
                raise UserError(f"{name} is of judge and has no meaning for pack")
        count = device.pack(args.file, args.folder, args.rows)
        print(f"Wrote {args.folder}: {count} rows.")
        return 0
    if args.given is None:
        raise UserError("judge needs GIVEN, the folder of what the phone computed")
    if args.rows is not None:
        raise UserError("--rows is of pack; judge goes by what was packed")
    found = device.judge(args.file, args.given, device.packed(args.file, args.folder), args.limit, args.float16)
    if args.json:
        print(json.dumps(found))
        return 0 if found["right"] else 1
    for name, one in found["golden"].items():
        print(
            f"{name}: largest error {one['max_error']:.2g} of values up to {one['largest']:.3g}, "
            f"cosine {one['cosine']:.6f}, {found['rows']} rows"
        )
    if exam := found["exam"]:
        asked = f"{exam['task']}, {exam['split']}, {exam['examples']:,} of {exam['of']:,} examples"
        for name, points in exam["scores"]["phone"].items():
            print(f"{asked}: {name} {points:.2f}, here {exam['scores']['here'][name]:.2f}")
    if found["wrong"]:
        print(f"The phone does not compute what the file computes here: {'; '.join(found['wrong'])}.")
    return 0 if found["right"] else 1
