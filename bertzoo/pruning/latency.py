"""Estimate a model's milliseconds on a device from a table with times of small encoders (`bertzoo benchmark --table`).

The estimate is the time of a one-layer encoder with the sizes of the model's last layer, including embedding and head.
Every other layer of the model adds the measured time of a further layer of its sizes. Times for sizes between the
measured sizes are interpolated.

Letters name the dimensions, such as h for the width of the layers (`LETTERS`). The number of operations is a sum of
products of sizes. Therefore the table varies the factors of one product together, (h, f), (h, a, k) or (h, a, v), and
keeps all other sizes at their smallest.
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

from bertzoo.core.documents import read_json
from bertzoo.core.errors import UserError
from bertzoo.models import Model
from bertzoo.pruning.structure import EVERY_LAYER_ITS_OWN, LETTERS, Cost, Sizes, Structure, layer_sizes, resized, uneven

Point = tuple[int, ...]  # a size for each letter of a table, in the table's order
FORMAT = "bertzoo latency table"
ADVICE = "Measure this model with `bertzoo benchmark CONFIG --table=FILE`"
_TOGETHER = (("h", "f"), ("h", "a", "k"), ("h", "a", "v"), ("e",))
_FIELDS = {
    "h": ("hidden_size",),
    "e": ("embedding_size",),
    "f": ("feed_forward_size", "feed_forward_sizes"),
    "a": ("heads",),
    "k": ("key_sizes",),
    "v": ("value_sizes",),
}
# Fields that do not change the times; the number of layers does, but the sum over layers accounts for it.
_FREE = ("layers", "vocab_size", "max_positions", "dropout", "attention_dropout", "initializer_range", "norm_epsilon")

_DOCUMENT = {
    "format": str,
    "length": int,
    "model": dict,
    "sizes": {str: [int]},
    "encoders": [{"sizes": {str: int}, "one_ms": float, "more_ms": float}],
}


@dataclass(frozen=True, kw_only=True)
class LatencyTable:
    """Measured times of encoders on sequences of `length` tokens.

    model: the config fields that all encoders share (`common`).
    sizes: {letter: measured sizes, ascending}.
    single: {combination of sizes (`points`): milliseconds of a one-layer encoder}.
    further: {combination of sizes: milliseconds that each further layer adds}.
    measurement: machine, runtime, threads, precision and further facts.
    """

    length: int
    model: Mapping[str, Any]
    sizes: Mapping[str, tuple[int, ...]]
    single: Mapping[Point, float]
    further: Mapping[Point, float]
    measurement: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        encoders = [
            {"sizes": dict(zip(self.sizes, at, strict=True)), "one_ms": self.single[at], "more_ms": self.further[at]}
            for at in points(self.sizes)
        ]
        times = {"length": self.length, "model": self.model, "sizes": self.sizes, "encoders": encoders}
        return {"format": FORMAT, **self.measurement, **times}


def read_table(path: Path) -> LatencyTable:
    """Read a latency table; raises UserError if the file cannot be read or is not a complete table."""
    try:
        document = read_json(path, _DOCUMENT)
        if (format_name := document.pop("format")) != FORMAT:
            raise ValueError(f"its format is {format_name!r}, not {FORMAT!r}")
        length, model, listed, encoders = (document.pop(name) for name in ("length", "model", "sizes", "encoders"))
        sizes = {letter: tuple(listed[letter]) for letter in LETTERS if letter in listed}
        rising = all(axis and axis[0] >= 1 and list(axis) == sorted({*axis}) for axis in sizes.values())
        if not sizes or len(sizes) < len(listed) or not rising:
            raise ValueError(f"its sizes {listed} are not ascending lists for letters among {', '.join(LETTERS)}")
        rows = {tuple(encoder["sizes"][letter] for letter in sizes): encoder for encoder in encoders}
        single, further = ({at: float(rows[at][name]) for at in points(sizes)} for name in ("one_ms", "more_ms"))
        for point, value in (*single.items(), *further.items()):
            if not math.isfinite(value):
                raise ValueError(f"the time of sizes {point} is {value}, not a finite number")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}). Name a file that `bertzoo benchmark --table` wrote."
        ) from error
    except (ValueError, KeyError) as error:
        why = f"it lacks the sizes {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path} is not a complete table of latencies ({why}). Measure the table again with `bertzoo benchmark "
            "CONFIG --table=FILE`."
        ) from error
    return LatencyTable(length=length, model=model, sizes=sizes, single=single, further=further, measurement=document)


def common(model: Model, letters: Sequence[str]) -> dict[str, Any]:
    """Return {config field: value} of a model for the fields in which it must equal a latency table's encoders.

    letters: the dimensions whose sizes the table varies; fields with these sizes, and those in _FREE, are left out.
    Raises UserError if the model's layers differ from one another in another field.
    """
    even = uneven(model) if isinstance(model, EVERY_LAYER_ITS_OWN) else model
    varied = {name for letter in letters for name in _FIELDS[letter]} | {*_FREE}
    fields = {name: value for name, value in dataclasses.asdict(even).items() if name not in varied}
    for name, value in fields.items():
        if isinstance(value, tuple):
            if len(set(value)) > 1:
                letter = next(letter for letter, names in _FIELDS.items() if name in names)
                raise UserError(
                    f"{name} differs from layer to layer, but the table has no {letter} (the {LETTERS[letter]}). "
                    f"{ADVICE}, and include {letter} in --dimensions."
                )
            fields[name] = value[0]
    return fields


def points(sizes: Mapping[str, Sequence[int]]) -> list[Point]:
    """Return the combinations that a latency table measures, one size per letter; sizes: ascending, by letter."""
    least = {letter: axis[0] for letter, axis in sizes.items()}
    distinct = dict.fromkeys(
        tuple((least | dict(zip(letters, chosen, strict=True))).values())
        for letters in _together(sizes)
        for chosen in itertools.product(*(sizes[letter] for letter in letters))
    )
    return list(distinct)


def latency(structure: Structure, table: LatencyTable, name: str) -> Cost:
    """Return a function from sizes of dimensions to milliseconds; a larger size never takes less time.

    name: the table's name in errors. Raises UserError if the table was measured on another model or lacks a dimension
    that is cut. The returned function raises UserError for a size outside the table.
    """
    for letter in dict.fromkeys(dimension.letter for dimension in structure.dimensions.values()):
        if letter not in table.sizes:
            raise UserError(
                f"{name} has no {letter} (the {LETTERS[letter]}), which the run cuts. Leave {letter} out of "
                f"cut.dimensions, or measure a table with {letter} among `bertzoo benchmark --dimensions`."
            )
    fields = common(structure.model, list(table.sizes))
    for key in dict.fromkeys([*fields, *table.model]):
        if fields.get(key) != table.model.get(key):
            there, here = (json.dumps(values.get(key, "none")) for values in (table.model, fields))
            raise UserError(
                f"{name} was measured on a model with {key} = {there}, but the run's model has {here}. {ADVICE}."
            )
    last_terms = _terms(table, table.single, _together(table.sizes))
    layer_terms = _terms(table, table.further, _together(table.sizes, of_layers_only=True))

    def cost(sizes: Sizes) -> float:
        *others, last = layers = layer_sizes(resized(structure.model, sizes))
        for layer, (letter, measured) in itertools.product(layers, table.sizes.items()):
            if not measured[0] <= layer[letter] <= measured[-1]:
                raise UserError(
                    f"{name} covers the {LETTERS[letter]} from {measured[0]} to {measured[-1]}, not {layer[letter]}. "
                    f"{ADVICE}."
                )
        return sum(term(last) for term in last_terms) + sum(term(layer) for layer in others for term in layer_terms)

    return cost


class _Term(NamedTuple):
    """A function of the sizes of `letters`: its `values` on a grid of sizes (`axes`)."""

    letters: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    values: np.ndarray

    def __call__(self, sizes: Sizes) -> float:
        """Return the value at `sizes`, interpolated linearly in each size."""
        values = self.values
        for letter, axis in zip(self.letters, self.axes, strict=True):
            index = int(np.searchsorted(axis, sizes[letter]))
            if axis[index] == sizes[letter]:
                values = values[index]
            else:
                share = (sizes[letter] - axis[index - 1]) / (axis[index] - axis[index - 1])
                values = (1 - share) * values[index - 1] + share * values[index]
        return float(values)


def _terms(table: LatencyTable, times: Mapping[Point, float], together: Sequence[tuple[str, ...]]) -> list[_Term]:
    """Split `times` (`single` or `further`) into functions of sizes, one per group of letters; their sum is the time.

    The first group's function is the measured time. A later group's function is the time that the letters new in this
    group add: the measured time minus the time with these letters at their smallest sizes. Letters outside the group
    are always at their smallest sizes.
    """
    least, varied, terms = {letter: axis[0] for letter, axis in table.sizes.items()}, set[str](), []
    for letters in together:
        axes = tuple(table.sizes[letter] for letter in letters)
        chosen = [least | dict(zip(letters, sizes, strict=True)) for sizes in itertools.product(*axes)]
        values = np.array([times[tuple(sizes.values())] for sizes in chosen]).reshape([len(axis) for axis in axes])
        if terms:
            values = values - values[tuple(slice(None) if letter in varied else slice(1) for letter in letters)]
        for axis in range(len(axes)):  # a larger size that measured faster is noise
            values = np.maximum.accumulate(values, axis)
        varied |= set(letters)
        terms.append(_Term(letters, axes, values))
    return terms


def _together(sizes: Mapping[str, Any], of_layers_only: bool = False) -> list[tuple[str, ...]]:
    """Return the groups of letters in `sizes` that a table varies together; no group is a subset of another.

    of_layers_only: without "e", the embedding's letter.
    """
    letters = [letter for letter in sizes if letter != "e" or not of_layers_only]
    groups = dict.fromkeys(tuple(letter for letter in group if letter in letters) for group in _TOGETHER)
    return [group for group in groups if not any({*group} < {*larger} for larger in groups)]
