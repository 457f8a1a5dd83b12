"""How fast models run on this machine's CPU, how large they are, and how much memory they take.

A MODEL is a shipped config or a TOML file (its weights are random), a run, a checkpoint, a model directory, a Hugging
Face directory, or a file that `bertzoo convert` wrote, which its own runtime runs. A model that is under no task's head
is measured as a classifier of two classes, as the papers do. One row of tokens is read at a time.

Every model in every runtime is a process of its own, all of them loaded at once. They run in turns, in an order that
changes from round to round, so that what else the machine does meets all alike: a turn is a run that is not counted and
some that are. Speed is that of BERT-base, or without it of the first MODEL, over that of the row, in the same runtime
with as many threads and tokens: above 1 is faster. Peak memory is beyond the runtime's own without a model.

--profile says which part takes how much, as SqueezeBERT's Table 1, whose FFN is attention_output and feed_forward
together: by LiteRT's benchmark_model where that is on the PATH, else by leaving out a part at a time; it says by which.

--table measures small encoders like MODEL in LiteRT, at a few sizes of every dimension that can be cut, and
writes a file that `bertzoo prune` counts milliseconds with (target.kind = "latency").

examples:
  bertzoo benchmark bert_base squeezebert mobilebert convbert_base
  bertzoo benchmark runs/sst2 sst2.tflite --backends=litert,torch --threads=1,4 --json
  bertzoo benchmark mobilebert --model.norm=layer_norm --precision=fp32,int8-dynamic --lengths=32,128 --out=speed.png
  bertzoo benchmark bert_base --profile
  bertzoo benchmark bert_base --table=latency.json --dimensions=h,f
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support import benchmark_cases, latency_table
from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.benchmarking.models import Subject
    from bertzoo.benchmarking.profile import Shares
    from bertzoo.benchmarking.rows import Row

RUNS, ROUNDS = 40, 8  # the papers' mean is of 40
BASE = (12, 768, 12, 3072)  # BERT-base: layers, width, heads, feed-forward


def config() -> type:
    """The class of the configs."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="what is measured; the first counts as 1.00")
    parser.add_argument("--backends", type=_words, help="runtimes: litert (default), torch, onnx, jax, executorch")
    parser.add_argument("--threads", type=_numbers, default=[1], help="threads that a run may use (default: 1)")
    parser.add_argument("--lengths", type=_numbers, help="tokens in a row (default: 128)")
    parser.add_argument("--precision", type=_words, help="of the weights, as `bertzoo convert` has it (default: fp32)")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many of each are counted (default: {RUNS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns that they are spread over ({ROUNDS})")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="executorch: a Python that has it (default: this one)"
    )
    parser.add_argument("--profile", action="store_true", help="which part takes how much, in litert")
    parser.add_argument("--out", type=Path, metavar="PNG", help="a picture of the medians")
    latency_table.arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if all(number.isdecimal() and int(number) > 0 for number in numbers):
        return [int(number) for number in numbers]
    raise UserError(f"{text} is not a list of numbers above 0, such as 1,4")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Read, write what runs, measure, print."""
    from bertzoo.benchmarking import models, picture
    from bertzoo.benchmarking import rows as pages
    from bertzoo.benchmarking.backends import SUFFIXES

    _check(args)
    subjects = [models.read(name, overrides, tuple(SUFFIXES)) for name in args.models]
    if overrides and not any(models.is_config(each) for each in subjects):
        raise UserError(f"--{overrides[0][0]} is of a config, but no MODEL is one: {', '.join(args.models)}")
    backends = {each.name: _backends(args, each) for each in subjects}
    _check_backends(args, subjects, backends)
    if args.table is not None:
        return latency_table.main(args, subjects[0])
    base = next((each.name for each in subjects if _is_base(each)), subjects[0].name)
    with tempfile.TemporaryDirectory(prefix="bertzoo.") as folder:
        made = [
            case
            for each in subjects
            for case in benchmark_cases.prepared(args, each, backends[each.name], Path(folder))
        ]
        rows = benchmark_cases.measured(args, made)
        if args.out is not None:
            picture.draw(rows, base, args.runs, args.out)
        if not args.json:  # now: a profile takes as long again, and may be refused
            print("\n".join(pages.table(rows, base)))
            print(f"speed: times as fast as {base}, in the same backend with as many threads and tokens", flush=True)
        known = [case for case in made if case.backend == "litert" and case.written.graph is not None]
        profiles = [(case, benchmark_cases.profiled(args, case)) for case in known if args.profile]
    if args.json:
        print(json.dumps(_document(args, base, rows, profiles)))
        return 0
    for case, shares in profiles:
        print(f"\n{benchmark_cases.title(case)}; latency by {shares.source}")
        print("\n".join(pages.shares_table(shares)))
    if args.out is not None:
        print(f"Wrote {args.out}.")
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be told wrong before anything is read."""
    from bertzoo.benchmarking.backends import BACKENDS, PRECISIONS

    if twice := [name for name in args.models if args.models.count(name) > 1]:
        raise UserError(f"{twice[0]} is named twice: name every MODEL once")
    for option, known in (("backends", tuple(BACKENDS)), ("precision", PRECISIONS)):
        for name in getattr(args, option) or ():
            if name not in known:
                raise UserError(f"--{option}={name} is not known; there are {', '.join(known)}")
    if not 1 <= args.rounds <= args.runs:
        raise UserError(f"--runs={args.runs} cannot be spread over --rounds={args.rounds}: every round has a run")
    latency_table.check(args)
    if args.out is not None and args.out.suffix != ".png":
        raise UserError(f"--out={args.out}: the picture is a PNG file; give a name that ends in .png")
    if args.out is not None and (not args.out.parent.is_dir() or args.out.is_dir()):
        raise UserError(f"--out={args.out} cannot be written: name a file in a directory that exists")


def _backends(args: argparse.Namespace, subject: "Subject") -> list[str]:
    """What runs a subject: of a file its own runtime alone."""
    from bertzoo.benchmarking.backends import SUFFIXES

    if subject.file is None:
        return args.backends or ["litert"]
    own = SUFFIXES[subject.file.suffix]
    if args.backends and own not in args.backends:
        raise UserError(f"--backends={','.join(args.backends)} has no {own}, which alone runs {subject.name}: add it")
    return [own]


def _check_backends(args: argparse.Namespace, subjects: Sequence["Subject"], backends: dict[str, list[str]]) -> None:
    """Raise UserError where a backend cannot run here, is not used, or has none of the precisions."""
    from bertzoo.benchmarking.backends import BACKENDS, check

    used = {name for names in backends.values() for name in names}
    written = {name for each in subjects if each.file is None for name in backends[each.name]}
    for name in args.backends or ():
        if name not in used:
            raise UserError(f"--backends={name} runs none of {', '.join(args.models)}: leave it out")
    if args.precision and not written:
        raise UserError(f"--precision is of models that are written here, but {args.models[0]} is a file: leave it out")
    for name in sorted(used):
        check(name, name in written, args.threads, args.python)
    for name in sorted(written):
        missing = [each for each in args.precision or () if each not in BACKENDS[name].precisions]
        if missing and len(missing) == len(args.precision):
            has = ", ".join(BACKENDS[name].precisions)
            raise UserError(
                f"--precision={','.join(missing)}: {name} has {has} alone; add one of these or leave {name} out"
            )
        for each in missing:
            say(f"left out: {each} in {name}, which does not have it")
    if args.profile and "litert" not in written:
        raise UserError(
            "--profile takes models apart in litert, but none is: add a MODEL that is not a file, in litert"
        )
    if max(args.threads) > (cores := os.cpu_count() or 1):
        say(f"{max(args.threads)} threads share {cores} cores")


def _is_base(subject: "Subject") -> bool:
    if subject.pretrained is None or subject.pretrained.model.kind != "bert":
        return False
    model = subject.pretrained.model
    return (model.layers, model.hidden_size, model.heads, model.feed_forward_size) == BASE


def _document(
    args: argparse.Namespace,
    base: str,
    rows: Sequence["Row"],
    profiles: Sequence[tuple[benchmark_cases.Case, "Shares"]],
) -> dict[str, Any]:
    from bertzoo.benchmarking.rows import document

    return {
        "runs": args.runs,
        "rounds": args.rounds,
        "cores": os.cpu_count(),
        "speed_of": base,
        "rows": document(rows, base),
        "profiles": [
            {
                "model": case.subject.name,
                "precision": case.precision,
                "threads": case.threads,
                "length": case.length,
                "source": shares.source,
                "flops": shares.flops,
                "latency": shares.latency,
                "quartiles": shares.quartiles,
            }
            for case, shares in profiles
        ],
    }
