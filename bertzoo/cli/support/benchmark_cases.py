"""What `bertzoo benchmark` runs: every model in every setting as a case, written, measured in turns, profiled."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    from bertzoo.benchmarking.backends import Written
    from bertzoo.benchmarking.models import Subject
    from bertzoo.benchmarking.profile import Shares
    from bertzoo.benchmarking.rows import Row

ANY_VOCABULARY = 32  # ids that every file has, where nothing beside it says how many


class Case(NamedTuple):
    """What one process runs; `written` is a file as it is or what was made of a model."""

    subject: "Subject"
    backend: str
    precision: Any
    written: "Written"
    threads: int
    length: int | None  # of a file, where none was asked for, one that it has

    @property
    def what(self) -> str:
        """In messages."""
        return f"{self.subject.name} in {self.backend}"

    @property
    def vocabulary(self) -> int:
        """How many ids rows are made of."""
        found = self.subject.pretrained
        return self.subject.said.vocabulary or ANY_VOCABULARY if found is None else found.model.vocab_size

    def flops(self, length: int) -> int | None:
        """Operations of a row, where they are known."""
        from bertzoo.export.litert.litert import signature

        if self.written.graph is not None:
            return self.written.flops(length)
        return self.subject.said.flops.get(signature(length))


def prepared(args: argparse.Namespace, subject: "Subject", backends: Sequence[str], folder: Path) -> list[Case]:
    """All that is run of a subject, written into the folder where it is no file."""
    from bertzoo.benchmarking.backends import BACKENDS, Wanted, Written
    from bertzoo.export import lengths as ladders

    if subject.pretrained is None:
        assert subject.file is not None
        written = Written(path=subject.file, size=subject.file.stat().st_size, graph=None)
        lengths = args.lengths or [None]
        said = subject.said.precision
        return [Case(subject, backends[0], said, written, n, length) for n in args.threads for length in lengths]
    lengths = ladders.each(subject.pretrained, args.lengths or ())
    found = []
    for backend in backends:
        for precision in args.precision or ["fp32"]:
            if precision not in BACKENDS[backend].precisions:
                continue
            say(f"writing {subject.name} for {backend}, {precision}")
            made: dict[int, Written] = {}
            for together in [[length] for length in lengths] if BACKENDS[backend].single else [lengths]:
                place = folder / f"{len(list(folder.iterdir()))}"
                wanted = Wanted(together, precision, args.python)
                made |= dict.fromkeys(together, BACKENDS[backend].write(subject.pretrained, place, wanted))
            found += [
                Case(subject, backend, precision, made[length], threads, length)
                for threads in args.threads
                for length in lengths
            ]
    return found


def measured(args: argparse.Namespace, cases: Sequence[Case]) -> list["Row"]:
    """A row for each case."""
    from bertzoo.benchmarking.interleave import started, take_turns
    from bertzoo.benchmarking.rows import Row
    from bertzoo.benchmarking.worker import Load

    loads = [
        (
            case.what,
            Load(case.backend, str(case.written.path), case.threads, case.vocabulary, case.subject.said.inputs),
        )
        for case in cases
    ]
    with started(loads, str(args.python)) as workers:
        lengths = [_length(case, worker.said["lengths"]) for case, worker in zip(cases, workers, strict=True)]
        done = take_turns(
            workers, lengths, args.runs, args.rounds, lambda count: say(f"round {count} of {args.rounds}")
        )
        peaks = [worker.peak() for worker in workers]
        said = [worker.said for worker in workers]
    found = []
    for case, length, rounds, peak, start in zip(cases, lengths, done, peaks, said, strict=True):
        pretrained = case.subject.pretrained
        found.append(
            Row(
                model=case.subject.name,
                backend=case.backend,
                version=start["version"],
                precision=case.precision,
                threads=start["threads"],
                length=length,
                rounds=rounds,
                peak=peak,
                empty=start["empty"],
                size=case.written.size,
                head=pretrained.head.kind if pretrained else case.subject.said.head,
                parameters=pretrained.parameter_count if pretrained else case.subject.said.parameters,
                flops=case.flops(length),
            )
        )
    return found


def _length(case: Case, lengths: Sequence[int]) -> int:
    """The one asked for, or of a file without one 128 tokens or else its most; raises UserError where it lacks it."""
    from bertzoo.export import lengths as ladders

    if case.length is None and lengths:
        return ladders.USUAL if ladders.USUAL in lengths else max(lengths)
    if case.length is None:  # it reads any that its positions are enough for
        return min(ladders.USUAL, case.subject.said.positions or ladders.USUAL)
    if lengths and case.length not in lengths:
        raise UserError(f"--lengths={case.length}: {case.subject.name} has {', '.join(map(str, lengths))} alone")
    return case.length


def profiled(args: argparse.Namespace, case: Case) -> "Shares":
    from bertzoo.benchmarking.backends import calibration
    from bertzoo.benchmarking.profile import Wanted, shares

    assert case.length is not None and case.subject.pretrained is not None
    wanted = Wanted(
        graph=case.written.graph,
        file=case.written.path,
        precision=case.precision,
        length=case.length,
        threads=case.threads,
        vocabulary=case.vocabulary,
        calibration=calibration(case.subject.pretrained, [case.length], case.precision),
    )
    found = shares(wanted, args.runs, args.rounds, lambda count: say(f"{title(case)}: round {count} of {args.rounds}"))
    if found.note:
        say(f"{found.note}: by ablation instead")
    return found


def title(case: Case) -> str:
    return (
        f"{case.subject.name}, {case.precision}, {case.threads} thread{'s' * (case.threads > 1)}, {case.length} tokens"
    )
