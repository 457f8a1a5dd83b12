"""Tokenisation as an Apache Beam pipeline, for corpora that one machine would read for too long.

The functions are those of `tokenize`, and so are the files, byte for byte: a piece is known by its place in the source,
not by when it arrives. It is numbered by counting the pieces of every reading before its own; of equal documents the
first is kept, which is the one of the smallest (reading, piece, position).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.core import atomic
from bertzoo.core.errors import ConfigError, CorpusError
from bertzoo.data.corpus.piece import PIECES, is_finished, tokenize_piece
from bertzoo.data.hashes import keys
from bertzoo.data.settings import Data
from bertzoo.data.sources.source import Piece, Reading, readings

Place = tuple[int, int]  # the number of a reading, and that of a piece of it
_TOTAL = "total"  # the file that says how many pieces there are


def prepare(runner: str, options: Sequence[str] = ()) -> Any:
    """An empty pipeline for `run`; options: the runner's own, as on a command line.

    Raises CorpusError without Apache Beam, ConfigError for a runner or an option that it does not know.
    """
    try:
        import apache_beam as beam  # pyright: ignore[reportMissingImports]
        from apache_beam.options.pipeline_options import PipelineOptions  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CorpusError(
            "--runner needs Apache Beam, which is missing: `pip install '.[beam]'` in the checkout adds it"
        ) from error
    known = PipelineOptions([]).get_all_options()
    for option in options:
        if (name := option.removeprefix("--").split("=")[0]) not in known:
            raise ConfigError(f"--runner_options names {name}, which Apache Beam does not know")
    try:
        return beam.Pipeline(runner=runner, options=PipelineOptions(list(options)))
    except (ValueError, ImportError, AttributeError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"--runner={runner} cannot be used: {said}") from error


def run(data: Data, destination: Path, pipeline: Any) -> int:
    """Tokenises every piece into the destination, a directory that all workers share; returns the number of pieces.

    Raises CorpusError as `source` does.
    """
    import apache_beam as beam  # pyright: ignore[reportMissingImports]

    found = list(enumerate(readings(data.parts, data.heldout)))
    pieces = (
        pipeline
        | "readings" >> beam.Create(found)
        | "apart" >> beam.Reshuffle()
        | "pieces" >> beam.FlatMap(_pieces, piece_bytes=data.piece_bytes)
    )
    counts = pieces | "one each" >> beam.Map(_one) | "count" >> beam.CombinePerKey(sum)
    first = counts | "counts" >> beam.combiners.ToDict() | "first" >> beam.Map(_first)
    repeated = (
        pieces
        | "keys" >> beam.FlatMap(_keys)
        | "equal" >> beam.GroupByKey()
        | "all but the first" >> beam.FlatMap(_all_but_first)
    )
    _ = (
        {"piece": pieces, "repeated": repeated}
        | "of a piece" >> beam.CoGroupByKey()
        | "tokenize" >> beam.Map(_tokenize, data, destination, beam.pvalue.AsSingleton(first))
    )
    _ = first | "total" >> beam.Map(_write_total, destination)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise _own(error) from error
    return int((destination / PIECES / _TOTAL).read_text())


def _own(error: Exception) -> Exception:
    """What was raised within the pipeline, which Beam hands over with a remark, or as the text of a traceback."""
    text = f"CorpusError: {error}" if isinstance(error, CorpusError) else str(error)
    if said := re.search(r"CorpusError: (.*?)(?: \[while running '[^']*'\]|\n|$)", text):
        return CorpusError(said[1])
    return error


def _pieces(numbered: tuple[int, Reading], piece_bytes: int) -> Iterator[tuple[Place, Piece]]:
    number, reading = numbered
    return (((number, piece.index), piece) for piece in reading.pieces(piece_bytes))


def _one(placed: tuple[Place, Piece]) -> tuple[int, int]:
    return placed[0][0], 1


def _first(counts: dict[int, int]) -> dict[int, int]:
    """The index of the first piece of every reading that has one; under -1 that of all pieces' end."""
    numbers = sorted(counts)
    ends = np.cumsum([counts[number] for number in numbers]).tolist()
    return {**dict(zip(numbers, [0, *ends], strict=False)), -1: ends[-1] if ends else 0}


def _keys(placed: tuple[Place, Piece]) -> Iterator[tuple[tuple[int, int], tuple[Place, int]]]:
    place, piece = placed
    found = keys(piece.documents).view(np.int64).tolist()  # signed, as Beam's coder of integers has them
    return (((piece.repetition, key), (place, position)) for position, key in enumerate(found))


def _all_but_first(equal: tuple[Any, Iterable[tuple[Place, int]]]) -> Iterator[tuple[Place, int]]:
    """A stream, since a page of boilerplate may be there a million times."""
    first = None
    for found in equal[1]:
        if first is None:
            first = found
        else:
            yield max(first, found)
            first = min(first, found)


def _tokenize(grouped: tuple[Place, dict[str, Any]], data: Data, destination: Path, first: dict[int, int]) -> None:
    (number, index), values = grouped
    (piece,) = values["piece"]
    piece = replace(piece, index=first[number] + index)
    if not is_finished(destination, piece):
        tokenize_piece(data, destination, piece, frozenset(values["repeated"]))


def _write_total(first: dict[int, int], destination: Path) -> None:
    atomic.write_bytes(destination / PIECES / _TOTAL, str(first[-1]).encode())
