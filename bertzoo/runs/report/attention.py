"""Compute models' attention maps on rows of text, divergences between two models' heads, and average maps.

A map covers one row without its padding, so each query's probabilities sum to 1. Axes: G teacher heads, H student
heads, L queries, M keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError

_SMALLEST = float(np.finfo(np.float32).tiny)


class UnpaddedRow(NamedTuple):
    """A row without padding: ids (L,) and token types (L,)."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray


def unmasked(batch: Mapping[str, np.ndarray]) -> list[UnpaddedRow]:
    """Return the rows of a masked batch, without padding and with the original ids restored."""
    rows = []
    for index, length in enumerate(batch["attention_mask"].sum(axis=1)):
        ids = batch["input_ids"][index].copy()
        used = batch["masked_weights"][index] > 0
        ids[batch["masked_positions"][index][used]] = batch["masked_ids"][index][used]
        rows.append(UnpaddedRow(ids[:length], batch["token_type_ids"][index][:length]))
    return rows


def attentions(
    pretrained: Pretrained, rows: Sequence[UnpaddedRow], layers: Sequence[int]
) -> Iterator[list[np.ndarray]]:
    """Yield each row's attention maps, without dropout: one array (heads, queries, keys) for each of `layers`.

    layers: numbers of layers, counted from 1.

    Memory holds the maps of one row at a time. Raises UserError if a layer does not exist or has no heads, or if the
    rows have more positions or token types than the model.
    """
    model, origin = pretrained.model, pretrained.origin
    for layer in layers:
        if not 1 <= layer <= model.layers:
            raise UserError(f"layer {layer} does not exist in {origin}. Use 1 to {model.layers}.")
    longest = max(len(row.input_ids) for row in rows)
    if longest > model.max_positions:
        raise UserError(
            f"the text has {longest} tokens, but {origin} reads at most {model.max_positions}. Give a shorter text."
        )
    types = 1 + max(int(row.token_type_ids.max()) for row in rows)
    if 0 < model.token_types < types:
        raise UserError(
            f"the rows have {types} segments, but {origin} has {model.token_types} token types. Use --text, whose rows "
            "have one segment."
        )
    module, params = pretrained.module()

    @jax.jit
    def maps(params, ids, types, mask):  # XLA drops the other layers' maps and everything after the last layer
        encoded = module.apply({"params": params}, ids, types, mask, False, method="encode")
        return [encoded.attentions[layer - 1] for layer in layers]

    def of_row(row: UnpaddedRow) -> list[np.ndarray]:
        length = len(row.input_ids)
        padded = partial(np.pad, pad_width=(0, longest - length))
        ids, types, mask = (padded(array)[None] for array in (*row, np.ones(length, np.int32)))
        arrays = [np.asarray(array)[0] for array in maps(params, ids, types, mask)]
        for layer, array in zip(layers, arrays, strict=True):
            if not len(array):
                raise UserError(f"layer {layer} of {origin} has no attention heads. Leave it out of --layers.")
            if array.shape[-1] != longest:
                raise UserError(
                    f"layer {layer} of {origin} has {array.shape[-1]} keys for {longest} tokens, but a map needs a key "
                    "for every token. Use a model with stride = 1."
                )
        return [array[:, :length, :length] for array in arrays]

    return map(of_row, rows)


def divergences(teacher_GLM: np.ndarray, student_HLM: np.ndarray) -> np.ndarray:
    """Return KL(teacher's head || student's head) for every pair of heads (G,H), in nats, summed over a row's queries.

    Probabilities that float32 rounded to 0 count as the smallest positive float32.
    """
    teacher_GLM, student_HLM = (_normalised(array) for array in (teacher_GLM, student_HLM))
    entropies_G = np.einsum("glm,glm->g", teacher_GLM, np.log(np.maximum(teacher_GLM, _SMALLEST)))
    crosses_GH = np.einsum("glm,hlm->gh", teacher_GLM, np.log(np.maximum(student_HLM, _SMALLEST)))
    return np.maximum(entropies_G[:, None] - crosses_GH, 0)  # rounding can take equal heads below 0


def _normalised(array: np.ndarray) -> np.ndarray:
    array = array.astype(np.float64)
    return array / array.sum(axis=-1, keepdims=True)


def compare(pairs: Iterable[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """Return the heads' mean divergence per query (G,H), in nats, for each pair of layers (MobileBERT, Appendix C).

    pairs: for every row, the attention maps of the teacher's layers and of the student's layers.
    """
    sums: list[np.ndarray] = []
    queries = 0
    for teachers, students in pairs:
        row = [divergences(teacher, student) for teacher, student in zip(teachers, students, strict=True)]
        sums = [total + update for total, update in zip(sums, row, strict=True)] if sums else row
        queries += teachers[0].shape[1]
    return [total_GH / queries for total_GH in sums]


class Matching(NamedTuple):
    """A one-to-one matching of the heads in a teacher's and a student's layer; heads are numbered from 0.

    divergence_GH: divergence of every pair of heads, in nats.
    pairs: matched (teacher's head, student's head), in the teacher's order.
    left: unmatched heads of the teacher and of the student.
    """

    divergence_GH: np.ndarray
    pairs: list[tuple[int, int]]
    left: tuple[list[int], list[int]]

    @property
    def mean(self) -> float:
        """Mean divergence of the matched pairs, in nats."""
        return float(np.mean([self.divergence_GH[pair] for pair in self.pairs]))


def match(divergence_GH: np.ndarray) -> Matching:
    """Return the one-to-one matching of heads with the smallest sum of divergences."""
    from scipy.optimize import linear_sum_assignment

    matched = [array.tolist() for array in linear_sum_assignment(divergence_GH)]
    heads = zip(divergence_GH.shape, matched, strict=True)
    teachers, students = ([head for head in range(count) if head not in taken] for count, taken in heads)
    return Matching(divergence_GH, list(zip(*matched, strict=True)), (teachers, students))


def average(maps: Iterable[Sequence[np.ndarray]]) -> np.ndarray:
    """Return the mean map (queries, keys) over all heads, layers and rows (ConvBERT, Fig. 2).

    A position is averaged over the rows that are long enough to have it. maps: for every row, the maps of its layers.
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
    """Return the share of attention within `distance` tokens of the query, averaged over queries."""
    places = np.arange(len(map_LM))
    near_LM = abs(places[:, None] - places) <= distance
    return float((map_LM * near_LM).sum() / map_LM.sum())
