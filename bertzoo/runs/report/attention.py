"""Attention maps as numbers: those of a model on rows of text, how near two models' heads are, and averages.

A map is of one row without its padding, so that every query's probabilities sum to 1; heads are G of the teacher's and
H of the student's, queries L, keys M.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError

_SMALLEST = float(np.finfo(np.float32).tiny)  # below it a float32 probability is 0


class Row(NamedTuple):
    """What a model reads at once, without padding: ids (L,) and their token types (L,)."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray


def unmasked(batch: Mapping[str, np.ndarray]) -> list[Row]:
    """The rows of a masked batch as the text has them."""
    rows = []
    for index, length in enumerate(batch["attention_mask"].sum(axis=1)):
        ids = batch["input_ids"][index].copy()
        used = batch["masked_weights"][index] > 0
        ids[batch["masked_positions"][index][used]] = batch["masked_ids"][index][used]
        rows.append(Row(ids[:length], batch["token_type_ids"][index][:length]))
    return rows


def attentions(found: Pretrained, rows: Sequence[Row], layers: Sequence[int]) -> Iterator[list[np.ndarray]]:
    """For every row the maps (H,L,M) of the layers, numbered from 1, without dropout; only the last is kept in memory.

    Raises UserError where the model has no such layer, no heads in it, or cannot read a row.
    """
    for layer in layers:
        if not 1 <= layer <= found.model.layers:
            raise UserError(f"{found.origin} has no layer {layer}: its layers are numbered 1 to {found.model.layers}")
    longest = max(len(row.input_ids) for row in rows)
    if longest > found.model.max_positions:
        raise UserError(
            f"the text has {longest} tokens, but {found.origin} reads at most {found.model.max_positions}; "
            "give a shorter one"
        )
    types = 1 + max(int(row.token_type_ids.max()) for row in rows)
    if 0 < found.model.token_types < types:
        raise UserError(
            f"the rows have {types} segments, but {found.origin} knows {found.model.token_types}; give --text"
        )
    return _attentions(found, rows, layers, longest)


def _attentions(
    found: Pretrained, rows: Sequence[Row], layers: Sequence[int], longest: int
) -> Iterator[list[np.ndarray]]:
    module, params = found.module()

    @jax.jit
    def maps(params, ids, types, mask):  # the other layers' maps and what follows the last of these is not computed
        encoded = module.apply({"params": params}, ids, types, mask, False, method="encode")
        return [encoded.attentions[layer - 1] for layer in layers]

    for row in rows:
        length = len(row.input_ids)
        padded = partial(np.pad, pad_width=(0, longest - length))
        ids, types, mask = (padded(array)[None] for array in (*row, np.ones(length, np.int32)))
        arrays = [np.asarray(array)[0, :, :length, :length] for array in maps(params, ids, types, mask)]
        for layer, array in zip(layers, arrays, strict=True):
            if not len(array):
                raise UserError(f"layer {layer} of {found.origin} has no attention heads")
        yield arrays


def divergences(teacher_GLM: np.ndarray, student_HLM: np.ndarray) -> np.ndarray:
    """(G,H): KL(teacher's head || student's) = Σ_M t·log(t/s) in nats, summed over the queries of one row.

    A student's probability that float32 has rounded to 0 counts as the smallest that it has.
    """
    teacher_GLM, student_HLM = (_normalised(array) for array in (teacher_GLM, student_HLM))
    entropies_G = np.einsum("glm,glm->g", teacher_GLM, np.log(np.maximum(teacher_GLM, _SMALLEST)))
    crosses_GH = np.einsum("glm,hlm->gh", teacher_GLM, np.log(np.maximum(student_HLM, _SMALLEST)))
    return np.maximum(entropies_G[:, None] - crosses_GH, 0)  # rounding can take equal heads below 0


def _normalised(array: np.ndarray) -> np.ndarray:
    array = array.astype(np.float64)
    return array / array.sum(axis=-1, keepdims=True)


def compare(pairs: Iterable[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """For every pair of layers (G,H): the mean divergence of a query, over all rows (MobileBERT Appendix C).

    pairs: for every row the maps of the teacher's layers and those of the student's.
    """
    sums: list[np.ndarray] = []
    queries = 0
    for teachers, students in pairs:
        row = [divergences(teacher, student) for teacher, student in zip(teachers, students, strict=True)]
        sums = [a + b for a, b in zip(sums, row, strict=True)] if sums else row
        queries += teachers[0].shape[1]
    return [total_GH / queries for total_GH in sums]


class Matching(NamedTuple):
    """Heads of a teacher's layer and of a student's, one to one, counted from 0.

    divergence_GH: that of all pairs, in nats; pairs: the matched ones, in the teacher's order; left: the teacher's and
    the student's heads that have no match, as there are more of them.
    """

    divergence_GH: np.ndarray
    pairs: list[tuple[int, int]]
    left: tuple[list[int], list[int]]

    @property
    def mean(self) -> float:
        """The mean divergence of the matched pairs."""
        return float(np.mean([self.divergence_GH[pair] for pair in self.pairs]))


def match(divergence_GH: np.ndarray) -> Matching:
    """The matching of least sum."""
    from scipy.optimize import linear_sum_assignment

    matched = [array.tolist() for array in linear_sum_assignment(divergence_GH)]
    heads = zip(divergence_GH.shape, matched, strict=True)
    teachers, students = ([head for head in range(count) if head not in taken] for count, taken in heads)
    return Matching(divergence_GH, list(zip(*matched, strict=True)), (teachers, students))


def average(maps: Iterable[Sequence[np.ndarray]]) -> np.ndarray:
    """(L,M): the mean over every head of every layer, and over the rows (ConvBERT Fig. 2).

    maps: for every row those of its layers. A place counts the rows that are long enough to have it.
    """
    total, count = np.zeros((0, 0)), np.zeros((0, 0))
    for layers in maps:
        row_LM = np.concatenate([layer_HLM.astype(np.float64) for layer_HLM in layers]).mean(axis=0)
        length = len(row_LM)
        total, count = (np.pad(array, (0, max(0, length - len(array)))) for array in (total, count))
        total[:length, :length] += row_LM
        count[:length, :length] += 1
    return total / count


def nearby(map_LM: np.ndarray, distance: int) -> float:
    """The share of attention that goes to tokens at most so far away, on average over the queries."""
    places = np.arange(len(map_LM))
    near_LM = abs(places[:, None] - places) <= distance
    return float((map_LM * near_LM).sum() / map_LM.sum())
