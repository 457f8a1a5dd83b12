"""Tokenise with an Apache Beam pipeline, for corpora that would take one machine too long.

The files equal those of `tokenize` byte for byte. A reading is one pass over a file; pieces (groups of documents) are
numbered over all readings. If several documents are equal, the corpus keeps only the one with the smallest (reading,
piece, position).
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
from bertzoo.data.hashes import document_keys
from bertzoo.data.settings import Data
from bertzoo.data.sources.pieces import Piece, Reading, readings

Place = tuple[int, int]  # index of a reading, index of a piece within it
_TOTAL = "total"  # file with the number of pieces


def build_pipeline(runner: str, options: Sequence[str] = ()) -> Any:
    """Return an empty pipeline for `run_pipeline`; options: the runner's command-line options.

    Raises CorpusError if Apache Beam is not installed, ConfigError for an unknown runner or option.
    """
    try:
        import apache_beam as beam  # pyright: ignore[reportMissingImports]
        from apache_beam.options.pipeline_options import PipelineOptions  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise CorpusError(
            "--runner needs Apache Beam, which is not installed. Run `pip install -c constraints.txt -e '.[beam]'` "
            "in the checkout."
        ) from error
    known = PipelineOptions([]).get_all_options()
    for option in options:
        if (name := option.removeprefix("--").split("=")[0]) not in known:
            raise ConfigError(
                f"--runner_options has {name}, which Apache Beam does not know. Correct it or leave it out."
            )
    try:
        return beam.Pipeline(runner=runner, options=PipelineOptions(list(options)))
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"--runner={runner} cannot be used: {reason}. Name another runner.") from error


def run_pipeline(data: Data, destination: Path, pipeline: Any) -> int:
    """Tokenise the text of `data` into `destination`, a directory that all workers share.

    Returns the number of pieces (groups of documents). Raises CorpusError for a source that is missing, empty or not
    text.
    """
    import apache_beam as beam  # pyright: ignore[reportMissingImports]

    pieces = (
        pipeline
        | "readings" >> beam.Create(list(enumerate(readings(data.parts, data.heldout, data.limits))))
        | "apart" >> beam.Reshuffle()
        | "pieces" >> beam.FlatMap(_pieces, piece_bytes=data.piece_bytes)
    )
    counts = pieces | "one each" >> beam.Map(_count_one) | "count" >> beam.CombinePerKey(sum)
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
        raise _original_error(error) from error
    return int((destination / PIECES / _TOTAL).read_text())


def _original_error(error: Exception) -> Exception:
    """Return the CorpusError that the text of Beam's `error` quotes, or `error` itself if it quotes none."""
    text = f"CorpusError: {error}" if isinstance(error, CorpusError) else str(error)
    match = re.search(r"CorpusError: (.*?)(?: \[while running '[^']*'\]|\n|$)", text)
    return CorpusError(match[1]) if match else error


def _pieces(numbered: tuple[int, Reading], piece_bytes: int) -> Iterator[tuple[Place, Piece]]:
    number, reading = numbered
    return (((number, piece.index), piece) for piece in reading.pieces(piece_bytes))


def _count_one(placed: tuple[Place, Piece]) -> tuple[int, int]:
    return placed[0][0], 1


def _first(counts: dict[int, int]) -> dict[int, int]:
    """Return the corpus-wide index of each Reading's first piece, by the Reading's number.

    counts: number of pieces by Reading. The key -1 of the result holds the number of all pieces.
    """
    numbers = sorted(counts)
    ends = np.cumsum([counts[number] for number in numbers]).tolist()
    return {**dict(zip(numbers, [0, *ends], strict=False)), -1: ends[-1] if ends else 0}


def _keys(placed: tuple[Place, Piece]) -> Iterator[tuple[tuple[int, int], tuple[Place, int]]]:
    place, piece = placed
    keys = document_keys(piece.documents).view(np.int64).tolist()  # signed, as Beam's coder of integers needs
    return (((piece.repetition, key), (place, position)) for position, key in enumerate(keys))


def _all_but_first(equal: tuple[Any, Iterable[tuple[Place, int]]]) -> Iterator[tuple[Place, int]]:
    """Yield the addresses of all documents in a group of equal documents, except the smallest address.

    An address is (place, position): the Place of the document's piece, and the document's position in it. Only one
    address is in memory at a time, because a document may occur a million times.
    """
    addresses = iter(equal[1])
    first = next(addresses)
    for address in addresses:
        yield max(first, address)
        first = min(first, address)


def _tokenize(grouped: tuple[Place, dict[str, Any]], data: Data, destination: Path, first: dict[int, int]) -> None:
    (number, index), values = grouped
    (piece,) = values["piece"]
    piece = replace(piece, index=first[number] + index)
    if not is_finished(destination, piece):
        tokenize_piece(data, destination, piece, frozenset(values["repeated"]))


def _write_total(first: dict[int, int], destination: Path) -> None:
    atomic.write_bytes(destination / PIECES / _TOTAL, str(first[-1]).encode())
