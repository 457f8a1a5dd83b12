"""A model from any directory -> a model directory of another format, or a file for phones."""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bertzoo.conversion import heads, huggingface, pytorch
from bertzoo.conversion.family import Inexpressible
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import atomic
from bertzoo.core.errors import UserError
from bertzoo.export import beside, export
from bertzoo.export.check.quiz import quiz
from bertzoo.export.formats import Wanted, targets
from bertzoo.export.options import FILES, Options
from bertzoo.runs import any_model

FEW = 16  # texts below which the scales of int8-static are seldom good

Say = Callable[[str], None]
# The format, the file, a length and the names of its inputs -> the most bytes that a process takes to run it once.
Memory = Callable[[Options, Any, Path, int, tuple[str, ...]], int]


class Converted(NamedTuple):
    """model: what was written, with its head; description: a file's JSON, None of a directory."""

    model: Pretrained
    description: dict[str, Any] | None


def convert(source: Path, destination: Path, options: Options, tell: Say, memory: Memory | None = None) -> Converted:
    """Read the model in `source` and write it to `destination`, which appears only when it is whole.

    A file is verified against its model before it appears. memory: measures what running the file takes. Raises
    UserError where the model or the place does not fit the options, ExportFailed where a file cannot be made or does
    not compute the same.
    """
    if os.path.realpath(source) == os.path.realpath(destination):
        raise UserError(f"SRC and DST are both {source}; name another directory for the result")
    if options.to in FILES:
        return _file(source, destination, options, tell, memory)
    atomic.check_new_directory(destination)
    pretrained = _read(source, options, tell)
    write = {
        "huggingface": huggingface.write_huggingface,
        "bertzoo": any_model.write_model,
        "pytorch": pytorch.write_pytorch,
    }[options.to]
    with atomic.new_directory(destination) as temporary:
        try:
            write(pretrained, temporary)
        except Inexpressible as error:
            tell(f"{error}; written with a PyTorch module of its own instead, as --to=pytorch does")
            pytorch.write_pytorch(pretrained, temporary)
    if pretrained.tokenizer is None:
        tell(f"{source} holds no tokenizer, so that {destination} has none either")
    return Converted(pretrained, None)


def _read(source: Path, options: Options, tell: Say) -> Pretrained:
    """The model with the head and the windows of the options; tells what is left out."""
    pretrained = any_model.read_model(source)
    if options.head is not None:
        pretrained, dropped = heads.keep_head(pretrained, options.head)
        for name in dropped:
            tell(f"left out: {name}")
    for kind in pretrained.others if options.head is None else ():
        tell(f"left out: the generator (--head={kind} takes it)")
    return heads.leak_padding(pretrained) if options.leak_padding else pretrained


def _file(source: Path, destination: Path, options: Options, tell: Say, memory: Memory | None) -> Converted:
    """Packages and place are checked before the model is read."""
    target = targets(options.python or Path(sys.executable))[options.to]
    if destination.suffix != target.suffix:
        raise UserError(f"DST = {destination}: name a file that ends in {target.suffix}")
    if options.precision is not None and options.precision not in target.precisions:
        raise UserError(f"--precision={options.precision} is of --to=litert: --to={options.to} writes fp32")
    target.check()
    companions = beside.companions(destination)
    atomic.check_new_file(destination, *companions)
    texts = _calibration(options, tell)
    pretrained = _read(source, options, tell)
    if texts and pretrained.tokenizer is None:
        raise UserError(f"--calibration={options.calibration}: {source} holds no tokenizer that could read its texts")
    if options.pooling is not None and pretrained.head.kind != "none":
        raise UserError(
            f"--pooling is of a model without a head, but this one's is {pretrained.head.kind}: add --head=none"
        )
    lengths = target.lengths(pretrained, options.lengths or ())
    wanted = Wanted(
        lengths=lengths,
        precision=options.precision or "fp32",  # pyright: ignore[reportArgumentType] (one of PRECISIONS)
        pooling=options.pooling or "mean",
        optimise=not options.no_optimize,
        calibration=texts,
    )
    scored = quiz(source, pretrained, max(lengths), options.examples, tell)
    with atomic.new_files(destination, *companions) as temporary:
        measure = None if memory is None else partial(memory, options, pretrained.model)
        description = export.write(target, pretrained, temporary / destination.name, wanted, scored, measure)
    if pretrained.tokenizer is None:
        tell(f"{source} holds no tokenizer, so that random ids were compared")
    return Converted(pretrained, description)


def _calibration(options: Options, tell: Say) -> tuple[str, ...]:
    """The lines of the file of texts, which int8-static needs and nothing else takes."""
    file = options.calibration
    if options.precision != "int8-static":
        if file is not None:
            raise UserError(f"--calibration is of --precision=int8-static, not of {options.precision or 'fp32'}")
        return ()
    if file is None:
        raise UserError(
            "--precision=int8-static needs --calibration=FILE, texts as the app will read them, one a line, with a tab "
            "between the two of a pair"
        )
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"--calibration={file} is no UTF-8 text") from None
    except OSError as error:
        raise UserError(f"--calibration={file} cannot be read: {error.strerror}") from None
    texts = tuple(line for line in lines if line.strip())
    if not texts:
        raise UserError(f"--calibration={file} holds no text")
    for text in texts:
        if text.count("\t") > 1:
            raise UserError(
                f"--calibration={file} has a line of {text.count(chr(9)) + 1} texts between tabs, where a "
                f"row has two at most: {text[:60]!r}"
            )
    if len(texts) < FEW:
        tell(f"--calibration={file} has {len(texts)} texts: scales of fewer than {FEW} are seldom good")
    return texts
