"""Attention maps of one model, or of a teacher and its student, on texts: compare and draw them.

A map covers one text without padding, so each query's probabilities sum to 1. Axes: G teacher heads, H student
heads, L queries, M keys.
"""

import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.tokenizer import difference
from bertzoo.runs import load_model
from bertzoo.runs.report import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYERS = (1, 12)  # default layers, as in MobileBERT's Appendix C
LABELLED = 40  # tokens; positions of longer texts are numbered
COLOURS = "YlGnBu"
PEAKS = 0.005  # share of the values beyond the scale: rare peaks would make everything else one colour
# Inches: side of a map, side of a single map, side per labelled token, character of a token, title with its gap.
SIDE, ALONE, TOKEN, LETTER, TITLE = 1.7, 4.5, 0.105, 0.053, 0.35
_SMALLEST = float(np.finfo(np.float32).tiny)
Models = Mapping[str, Pretrained]  # by role: "model", or "teacher" and "student"
# A row of the figure: a label, and attention maps (queries, keys) side by side, each with a title.
Strip = tuple[str, Sequence[tuple[str, np.ndarray]]]


def open_models(path: str, teacher: str | None) -> dict[str, Pretrained]:
    """Read the models; return {"model": …} or, with a teacher, {"teacher": …, "student": …}.

    path: the model or the student. Raises UserError if a model has no tokenizer or the two tokenizers differ.
    """
    student = _read_model(path)
    if teacher is None:
        return {"model": student}
    models = {"teacher": _read_model(teacher), "student": student}
    assert student.tokenizer and models["teacher"].tokenizer
    if (different := difference(student.tokenizer, models["teacher"].tokenizer)) is not None:
        raise UserError(
            f"{path} and {teacher} have different vocabularies: {different}. Use models with one vocabulary."
        )
    return models


def _read_model(path: str) -> Pretrained:
    pretrained = replace(load_model.read_model(path), origin=path)
    if pretrained.tokenizer is None:
        raise UserError(
            f"{path} has no tokenizer and cannot read text. Convert the model again, from a folder with the vocabulary."
        )
    return pretrained


def encode_texts(texts: Sequence[str], model: Pretrained) -> tuple[list[np.ndarray], str, list[str]]:
    """Encode every text as the sequence [CLS] text [SEP]; raises UserError if a text has no tokens.

    Returns the sequences of ids (L,), their description for a title, and the tokens of the first one.
    """
    assert model.tokenizer
    specials, rows = model.tokenizer.specials, []
    for text, ids in zip(texts, model.tokenizer.encode_batch(texts), strict=True):
        if not len(ids):
            raise UserError(f"--text={text!r} has no tokens. Give some words.")
        rows.append(np.array([specials.cls, *ids, specials.sep], np.int32))
    first = textwrap.shorten(texts[0], 90, placeholder=" …")
    description = f"{len(rows)} texts, first: {first}" if len(rows) > 1 else f"text: {first}"
    return rows, description, [model.tokenizer.token(int(index)) for index in rows[0]]


def choose_layers(models: Models, pairs: Sequence[tuple[int, int]] | None) -> dict[str, list[int]]:
    """Return {role: numbers of the layers to show, counted from 1}; the i-th layers of all roles belong together.

    pairs: (layer of the model or student, layer of the teacher) to show. None stands for LAYERS; a model that lacks one
    of LAYERS shows its last layer instead.
    """
    counts = [pretrained.model.layers for pretrained in models.values()]
    if pairs is None:
        rows = [tuple(min(layer, count) for count in counts) for layer in LAYERS]
    else:
        rows = [tuple(pair[role == "teacher"] for role in models) for pair in pairs]
    columns = zip(*dict.fromkeys(rows), strict=True)
    return {role: list(column) for role, column in zip(models, columns, strict=True)}


def attentions(pretrained: Pretrained, rows: Sequence[np.ndarray], layers: Sequence[int]) -> Iterator[list[np.ndarray]]:
    """Yield the attention maps of each sequence of ids (L,), without dropout: (heads, queries, keys) of `layers`.

    layers: counted from 1. Memory holds the maps of one text at a time. Raises UserError if the model has no layers, if
    a layer does not exist or has no heads, or if a text has more tokens than the model has positions.
    """
    model, origin = pretrained.model, pretrained.origin
    if not model.layers:
        raise UserError(f"{origin} has no layers, so no attention. Use another model.")
    for layer in layers:
        if not 1 <= layer <= model.layers:
            raise UserError(f"layer {layer} does not exist in {origin}. Use 1 to {model.layers}.")
    longest = max(map(len, rows))
    if longest > model.max_positions:
        raise UserError(
            f"the text has {longest} tokens, but {origin} reads at most {model.max_positions}. Give a shorter text."
        )
    module, params = pretrained.module()

    @jax.jit
    def maps(params, ids, mask):  # XLA drops the other layers' maps and everything after the last layer
        encoded = module.apply({"params": params}, ids, jnp.zeros_like(ids), mask, False, method="encode")
        return [encoded.attentions[layer - 1] for layer in layers]

    def row_maps(row: np.ndarray) -> list[np.ndarray]:
        length = len(row)
        ids, mask = (np.pad(array, (0, longest - length))[None] for array in (row, np.ones_like(row)))
        arrays = [np.asarray(array)[0] for array in maps(params, ids, mask)]
        for layer, array in zip(layers, arrays, strict=True):
            if not len(array):
                raise UserError(f"layer {layer} of {origin} has no attention heads. Leave it out of --layers.")
            if array.shape[-1] != longest:
                raise UserError(
                    f"layer {layer} of {origin} has {array.shape[-1]} keys for {longest} tokens, but a map needs a key "
                    "for every token. Use a model with stride = 1."
                )
        return [array[:, :length, :length] for array in arrays]

    return map(row_maps, rows)


def compare_heads(
    models: Models, layers: Mapping[str, list[int]], rows: Sequence[np.ndarray]
) -> tuple[list[Strip], dict[str, Any]]:
    """Return the strips of the attention maps of every head of `layers` on the first text, and measurements as JSON.

    With a teacher, match the two models' heads by their divergences, averaged over all texts.
    """
    maps = zip(*(attentions(model, rows, layers[role]) for role, model in models.items()), strict=True)
    first = next(maps)
    strips: list[Strip] = []
    if len(models) == 1:
        for number, heads_HLM in zip(layers["model"], first[0], strict=True):
            strips.append((f"layer {number}", [(f"head {h}", m) for h, m in enumerate(heads_HLM, 1)]))
        return strips, {"layers": layers["model"]}
    comparisons = []
    for index, divergence_GH in enumerate(compare(chain([first], maps))):
        pairs, numbers = match(divergence_GH), {role: layers[role][index] for role in models}
        unmatched = {}
        for side, (role, number) in enumerate(numbers.items()):
            matched = [pair[side] for pair in pairs]
            unmatched[role] = [head for head in range(divergence_GH.shape[side]) if head not in matched]
            notes = [f", KL {divergence_GH[pair]:.3f}" if role == "student" else "" for pair in pairs]
            titled = [*zip(matched, notes, strict=True), *((head, ", left over") for head in unmatched[role])]
            drawn = [(f"head {head + 1}{note}", first[side][index][head]) for head, note in titled]
            strips.append((f"{role}, layer {number}", drawn))
        layer = {
            **numbers,
            "kl": divergence_GH.tolist(),
            "matching": [{"teacher": g + 1, "student": h + 1, "kl": float(divergence_GH[g, h])} for g, h in pairs],
            "left": {role: [head + 1 for head in heads] for role, heads in unmatched.items()},
            "matched_kl": float(np.mean([divergence_GH[pair] for pair in pairs])),
            "any_kl": float(divergence_GH.mean()),
        }
        comparisons.append(layer)
    return strips, {"layers": comparisons}


def divergences(teacher_GLM: np.ndarray, student_HLM: np.ndarray) -> np.ndarray:
    """Return KL(teacher's head || student's head) for every pair of heads (G,H), in nats, summed over a text's queries.

    Probabilities that float32 rounded to 0 count as the smallest positive float32.
    """
    doubles = (array.astype(np.float64) for array in (teacher_GLM, student_HLM))
    teacher_GLM, student_HLM = (array / array.sum(axis=-1, keepdims=True) for array in doubles)
    entropies_G = np.einsum("glm,glm->g", teacher_GLM, np.log(np.maximum(teacher_GLM, _SMALLEST)))
    crosses_GH = np.einsum("glm,hlm->gh", teacher_GLM, np.log(np.maximum(student_HLM, _SMALLEST)))
    return np.maximum(entropies_G[:, None] - crosses_GH, 0)  # rounding can take equal heads below 0


def compare(pairs: Iterable[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]) -> list[np.ndarray]:
    """Return the heads' mean divergence per query (G,H), in nats, for each pair of layers (MobileBERT, Appendix C).

    pairs: for every text, the attention maps of the teacher's layers and of the student's layers.
    """
    rows, queries = [], 0
    for teachers, students in pairs:
        rows.append([divergences(teacher, student) for teacher, student in zip(teachers, students, strict=True)])
        queries += teachers[0].shape[1]
    return [np.sum(layer, axis=0) / queries for layer in zip(*rows, strict=True)]


def match(divergence_GH: np.ndarray) -> list[tuple[int, int]]:
    """Return the one-to-one matching (teacher's head, student's head) with the smallest sum of divergences.

    Heads are numbered from 0, and the pairs are in the teacher's order.
    """
    from scipy.optimize import linear_sum_assignment

    return list(zip(*(array.tolist() for array in linear_sum_assignment(divergence_GH)), strict=True))


def draw(strips: Sequence[Strip], title: str, tokens: Sequence[str], path: Path) -> "Figure":
    """Draw all strips from top to bottom, on one colour scale; write a PNG file and return the figure.

    tokens: labels of the positions, which are numbered instead if there are more than LABELLED.
    """
    columns = max(len(maps) for _, maps in strips)
    labels = tokens if len(tokens) <= LABELLED else None
    side = max(ALONE if len(strips) == 1 and columns < 3 else SIDE, TOKEN * len(labels or ()))
    margin = 0.6 + LETTER * max(map(len, labels or [""]))
    size = columns * (side + 0.15) + margin + 1, len(strips) * (side + TITLE) + margin + 0.2 * len(title.splitlines())
    page = new_figure(*size, layout="compressed", dpi=120)
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    grid = page.subplots(len(strips), columns, squeeze=False)
    values = np.concatenate([array.ravel() for _, maps in strips for _, array in maps])
    scale = Normalize(0, np.quantile(values, 1 - PEAKS))
    for row, (label, maps) in enumerate(strips):
        grid[row, 0].set_ylabel(label, fontsize=8, parse_math=False)
        for axes in grid[row, len(maps) :]:
            axes.axis("off")
        for column, (axes, (name, array)) in enumerate(zip(grid[row], maps, strict=False)):
            axes.imshow(array, cmap=COLOURS, norm=scale, interpolation="nearest")
            axes.set_title(name, fontsize=8, pad=3, parse_math=False)
            lowest = all(len(below) <= column for _, below in strips[row + 1 :])
            axes.tick_params(
                labelsize=6.5, length=2 if labels is None else 0, labelleft=column == 0, labelbottom=lowest
            )
            if labels is not None:
                axes.set_yticks(range(len(labels)), labels, parse_math=False)
                axes.set_xticks(range(len(labels)), labels, rotation=90, parse_math=False)
    page.suptitle(title, fontsize=10, parse_math=False)
    bar = page.colorbar(
        ScalarMappable(scale, COLOURS), ax=grid, extend="max", shrink=1 / len(strips), aspect=15, anchor=(0, 1)
    )
    bar.set_label("attention of row to column", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font draws a box for scripts it lacks
        page.savefig(path, format="png")
    return page
