"""What a model takes on a device, from a table of what small encoders of its kind take there (`bertzoo benchmark
--table`, which measures it).

A model takes what the encoder of its last layer alone takes, with embedding and head, and for every other layer what
one more layer does. Both are read between the measured sizes as products of sizes are, of which operations are sums:
what (h, f), (h, a, k) and (h, a, v) do together is measured, the other sizes being at their least.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.models import Model
from bertzoo.pruning.costs import Cost, Sizes
from bertzoo.pruning.shapes import EVERY_LAYER_ITS_OWN, LETTERS, of_layers, resized, uneven
from bertzoo.pruning.structure import Structure

Point = tuple[int, ...]  # a size for each letter of a table, in their order
FORMAT = "bertzoo latency table"
ADVICE = "measure this model's with `bertzoo benchmark CONFIG --table=FILE`"
_TOGETHER = (("h", "f"), ("h", "a", "k"), ("h", "a", "v"), ("e",))
_OF_LAYERS = ("h", "f", "a", "k", "v")
_FIELDS = {
    "h": ("hidden_size",),
    "e": ("embedding_size",),
    "f": ("feed_forward_size", "feed_forward_sizes"),
    "a": ("heads",),
    "k": ("key_sizes",),
    "v": ("value_sizes",),
}
# What no time depends on, or is told apart by layers.
_FREE = ("layers", "vocab_size", "max_positions", "dropout", "attention_dropout", "initializer_range", "norm_epsilon")


@dataclass(frozen=True, kw_only=True)
class Table:
    """What was measured of which encoders.

    model: what they have in common (`common`). sizes: by letter those measured, rising. one, more: milliseconds of the
    encoder of one layer, and of each further layer, at every point of `points`. said: machine, runtime, threads,
    precision and whatever else is told of the measurement.
    """

    length: int
    model: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, ...]]
    one: Mapping[Point, float]
    more: Mapping[Point, float]
    said: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        encoders = [
            {"sizes": dict(zip(self.sizes, point, strict=True)), "one_ms": self.one[point], "more_ms": self.more[point]}
            for point in points(self.sizes)
        ]
        own = {"length": self.length, "model": self.model, "sizes": self.sizes, "encoders": encoders}
        return {"format": FORMAT, **self.said, **own}


def read(path: Path) -> Table:
    """The table in a file; raises UserError where there is none, or what is there is no whole table."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        length, model, given, encoders = (document.pop(name) for name in ("length", "model", "sizes", "encoders"))
        sizes = {letter: tuple(given[letter]) for letter in LETTERS if letter in given}
        if (
            not sizes
            or len(sizes) < len(given)
            or any(list(each) != sorted({*each}) or not each or each[0] < 1 for each in sizes.values())
        ):
            raise ValueError("its sizes are not lists that rise")
        at = {tuple(each["sizes"][letter] for letter in sizes): each for each in encoders}
        one, more = ({point: float(at[point][name]) for point in points(sizes)} for name in ("one_ms", "more_ms"))
        if not all(math.isfinite(value) for value in (*one.values(), *more.values())):
            raise ValueError("a time is no number")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}): name a file of `bertzoo benchmark --table`"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise UserError(f"{path} is no whole table of latencies ({why}): measure it again") from error
    return Table(length=length, model=model, sizes=sizes, one=one, more=more, said=document)


def common(model: Model, letters: Sequence[str]) -> dict[str, Any]:
    """What of a model is one for all encoders of a table that has these letters; raises UserError where its layers
    differ in another.
    """
    even = uneven(model) if isinstance(model, EVERY_LAYER_ITS_OWN) else model
    left_out = {name for letter in letters for name in _FIELDS[letter]} | {*_FREE}
    found = {name: value for name, value in dataclasses.asdict(even).items() if name not in left_out}
    for name, value in found.items():
        if isinstance(value, tuple):
            if len(set(value)) > 1:
                letter = next(letter for letter, names in _FIELDS.items() if name in names)
                raise UserError(
                    f"{name} is another from layer to layer, but the table has no {letter}, {LETTERS[letter]}: "
                    f"{ADVICE} and with {letter} among its --dimensions"
                )
            found[name] = value[0]
    return found


def points(sizes: Mapping[str, Sequence[int]]) -> list[Point]:
    """Of which encoders a table of these sizes needs times."""
    least = {letter: each[0] for letter, each in sizes.items()}
    found: dict[Point, None] = {}
    for letters in _together(sizes):
        for chosen in itertools.product(*(sizes[letter] for letter in letters)):
            found[_point(least | dict(zip(letters, chosen, strict=True)))] = None
    return list(found)


def latency(structure: Structure, table: Table, name: str) -> Cost:
    """Milliseconds as a function of sizes, which never falls where one grows.

    name: the table's, in messages. Raises UserError where it is of another model or lacks a dimension that is cut, and
    the function where it is asked for a size that the table does not reach.
    """
    for letter in dict.fromkeys(dimension.letter for dimension in structure.dimensions.values()):
        if letter not in table.sizes:
            raise UserError(
                f"{name} has no {letter}, {LETTERS[letter]}, which is to be cut: leave it out of cut.dimensions, or "
                f"measure it with {letter} among --dimensions"
            )
    own = common(structure.model, list(table.sizes))
    for key in dict.fromkeys([*own, *table.model]):
        if own.get(key) != table.model.get(key):
            there, here = (json.dumps(each.get(key, "none")) for each in (table.model, own))
            raise UserError(f"{name} was measured on a model whose {key} is {there}, but here it is {here}: {ADVICE}")
    one, more = (
        _terms(table, table.one, _together(table.sizes)),
        _terms(table, table.more, _together(table.sizes, True)),
    )

    def cost(sizes: Sizes) -> float:
        *others, last = (_within(layer, table, name) for layer in of_layers(resized(structure.model, sizes)))
        return sum(term(last) for term in one) + sum(term(layer) for layer in others for term in more)

    return cost


class _Term(NamedTuple):
    """A function of some sizes, by its values on a grid."""

    letters: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    values: np.ndarray

    def __call__(self, sizes: Sizes) -> float:
        """Linear in each size between two of the grid."""
        left = self.values
        for letter, axis in zip(self.letters, self.axes, strict=True):
            place = int(np.searchsorted(axis, sizes[letter]))
            if axis[place] == sizes[letter]:
                left = left[place]
            else:
                share = (sizes[letter] - axis[place - 1]) / (axis[place] - axis[place - 1])
                left = (1 - share) * left[place - 1] + share * left[place]
        return float(left)


def _terms(table: Table, times: Mapping[Point, float], together: Sequence[tuple[str, ...]]) -> list[_Term]:
    """Functions whose sum is the times: each is what its letters add to those before it."""
    least, seen, found = {letter: each[0] for letter, each in table.sizes.items()}, set[str](), []
    for letters in together:
        axes = tuple(table.sizes[letter] for letter in letters)
        chosen = [least | dict(zip(letters, sizes, strict=True)) for sizes in itertools.product(*axes)]
        values = np.array([times[_point(sizes)] for sizes in chosen]).reshape([len(axis) for axis in axes])
        if found:
            values = values - values[tuple(slice(None) if letter in seen else slice(1) for letter in letters)]
        for axis in range(len(axes)):  # what is larger takes no less: where it was measured so, that was noise
            values = np.maximum.accumulate(values, axis)
        seen |= set(letters)
        found.append(_Term(letters, axes, values))
    return found


def _together(sizes: Mapping[str, Any], of_layers_alone: bool = False) -> list[tuple[str, ...]]:
    """Which letters of a table act together; none that another of them has all of."""
    letters = [letter for letter in sizes if letter in _OF_LAYERS or not of_layers_alone]
    found = [tuple(letter for letter in each if letter in letters) for each in _TOGETHER]
    return [each for each in dict.fromkeys(found) if not any({*each} < {*other} for other in found)]


def _point(sizes: Mapping[str, int]) -> Point:
    return tuple(sizes.values())


def _within(layer: Mapping[str, int], table: Table, name: str) -> Mapping[str, int]:
    for letter, measured in table.sizes.items():
        if not measured[0] <= layer[letter] <= measured[-1]:
            raise UserError(
                f"{name} has {LETTERS[letter]} from {measured[0]} to {measured[-1]}, but not {layer[letter]}: {ADVICE}"
            )
    return layer
