"""Report the attention maps of one model, or of a teacher and its student side by side, on rows of text."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

import numpy as np

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.data.tokenizers.tokenizer import difference
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.runs import load_model
from bertzoo.runs.batches import RunBatches
from bertzoo.runs.report.attention import (
    Matching,
    UnpaddedRow,
    attentions,
    average,
    compare,
    match,
    nearby,
    unmasked,
)
from bertzoo.runs.report.heatmaps import Strip, wrap
from bertzoo.runs.run_dir import RunDirectory

LAYERS = (1, 12)  # default layers, as in MobileBERT's Appendix C
NEAR = 4  # tokens to either side: ConvBERT's windows of 9
SIDES = ("teacher", "student")
LayerPairs = Sequence[tuple[int, int]]  # (student's layer, teacher's layer), counted from 1
Models = Mapping[str, Pretrained]  # by role: "model", or "teacher" and "student"


@dataclass(frozen=True)
class InspectedText:
    """The rows that the models read, their description for a title, and the tokens of the first row."""

    rows: list[UnpaddedRow]
    description: str
    tokens: list[str]


@dataclass
class AttentionReport:
    """A report on attention: heat maps (`strips`), and measured numbers as JSON (`document`) and text (`lines`).

    tokens: labels of the maps' axes, or None.
    """

    strips: list[Strip]
    tokens: list[str] | None
    document: dict[str, Any]
    lines: list[str] = field(default_factory=list)


def open_models(path: str, teacher: str | None) -> dict[str, Pretrained]:
    """Read the models; return {"model": …} or, with a teacher, {"teacher": …, "student": …}.

    path: the model or the student. Raises UserError if a model has no tokenizer or the two tokenizers differ.
    """
    student = _read_model(path)
    if teacher is None:
        return {"model": student}
    models = {"teacher": _read_model(teacher), "student": student}
    _check_vocabulary(student, models["teacher"].tokenizer, teacher)
    return models


def _read_model(path: str) -> Pretrained:
    pretrained = replace(load_model.read_model(path), origin=path)
    if pretrained.tokenizer is None:
        raise UserError(
            f"{path} has no tokenizer and cannot read text. Convert the model again, from a folder with the vocabulary."
        )
    return pretrained


def _check_vocabulary(model: Pretrained, tokenizer: Tokenizer | None, origin: str) -> None:
    assert model.tokenizer and tokenizer
    if (different := difference(model.tokenizer, tokenizer)) is not None:
        raise UserError(
            f"{model.origin} and {origin} have different vocabularies: {different}. Use models with one vocabulary."
        )


def encode_texts(texts: Sequence[str], model: Pretrained) -> InspectedText:
    """Encode every text as a row [CLS] text [SEP] with the model's tokenizer.

    Raises UserError if a text has no tokens.
    """
    assert model.tokenizer
    specials, rows = model.tokenizer.specials, []
    for text, ids in zip(texts, model.tokenizer.encode_batch(texts), strict=True):
        if not len(ids):
            raise UserError(f"--text={text!r} has no tokens. Give some words.")
        whole = np.array([specials.cls, *ids, specials.sep], np.int32)
        rows.append(UnpaddedRow(whole, np.zeros_like(whole)))
    first = textwrap.shorten(texts[0], 90, placeholder=" …")
    description = f"{len(rows)} texts, first: {first}" if len(rows) > 1 else f"text: {first}"
    return InspectedText(rows, description, _tokens(model.tokenizer, rows[0]))


def heldout_rows(model: Pretrained, path: str | None, corpus_path: str | None, count: int) -> InspectedText:
    """Return `count` rows of a run's held-out text, without masks and as long as in the run's first training stage.

    path: the run, by default the one that `model` was read from. corpus_path: path or URL of the run's corpus, if it
    has moved. Raises UserError if there is no run, or if the run has too few rows.
    """
    if path is None and model.source.get("format") != "run":
        raise UserError(f"{model.origin} is not a run, so it has no held-out text. Use --text=TEXT or --heldout=RUN.")
    run = RunDirectory(path or str(model.source["path"]))
    run.fetch()
    recipe, corpus = run.load(), run.open_corpus(corpus_path)
    _check_vocabulary(model, corpus.tokenizer, f"the corpus of {run.name}")
    batches = RunBatches(recipe, corpus, run.plans, lambda warning: None).stage(0, "heldout")
    if count > batches.rows:
        raise UserError(
            f"--rows={count} is more than the {batches.rows} held-out rows of {run.name} at the first stage's "
            f"length. Use at most {batches.rows}."
        )
    rows = unmasked(batches.sequential(0, count))
    description = f"{count} held-out row{'s' * (count > 1)} of {run.name}"
    return InspectedText(rows, description, _tokens(corpus.tokenizer, rows[0]))


def _tokens(tokenizer: Tokenizer, row: UnpaddedRow) -> list[str]:
    return [tokenizer.token(int(index)) for index in row.input_ids]


def choose_layers(models: Models, pairs: LayerPairs | None, *, averaged: bool) -> dict[str, list[int]]:
    """Return {role: numbers of the layers to show, counted from 1}; the roles are the keys of `models`.

    pairs: (layer of the model or student, layer of the teacher) to show. None stands for all layers if `averaged`, else
    for LAYERS; a model that lacks one of LAYERS shows its last layer instead.
    averaged: whether a model's maps are averaged over its layers. If not, the i-th layers of all roles belong together.
    """
    counts = {role: pretrained.model.layers for role, pretrained in models.items()}
    if pairs is None and averaged:
        return {role: list(range(1, count + 1)) for role, count in counts.items()}
    rows = [tuple(pair[role == "teacher"] for role in models) for pair in pairs or [(n, n) for n in LAYERS]]
    if pairs is None:
        rows = [tuple(min(layer, count) for layer, count in zip(row, counts.values(), strict=True)) for row in rows]
    columns = zip(*dict.fromkeys(rows), strict=True)
    return {role: list(dict.fromkeys(c) if averaged else c) for role, c in zip(models, columns, strict=True)}


def compare_heads(models: Models, layers: Mapping[str, list[int]], text: InspectedText) -> AttentionReport:
    """Report the attention map of every head of `layers` on the first row.

    With a teacher, also match the two models' heads by their divergences, averaged over all rows.
    """
    maps = zip(*(attentions(model, text.rows, layers[role]) for role, model in models.items()), strict=True)
    first = next(maps)
    if len(models) == 1:
        (numbers,) = layers.values()
        whole = [
            _strip(f"layer {n}", heads, range(len(heads)), repeat(""))
            for n, heads in zip(numbers, first[0], strict=True)
        ]
        return AttentionReport([piece for strip in whole for piece in wrap([strip])], text.tokens, {"layers": numbers})
    queries = sum(len(row.input_ids) for row in text.rows)
    report = AttentionReport([], text.tokens, {"layers": []})
    report.lines.append(f"KL(teacher's head || student's) in nats, the mean of {queries:,} queries.")
    divergences = compare(chain([first], maps))
    for index, (*numbers, divergence) in enumerate(zip(*layers.values(), divergences, strict=True)):
        matching = match(divergence)
        matched = zip(*matching.pairs, strict=True)
        teachers, students = ([*side, *left] for side, left in zip(matched, matching.left, strict=True))
        above = chain([""] * len(matching.pairs), repeat(", left over"))
        below = chain([f", KL {divergence[pair]:.3f}" for pair in matching.pairs], repeat(", left over"))
        report.strips += wrap(
            [
                _strip(f"teacher, layer {numbers[0]}", first[0][index], teachers, above),
                _strip(f"student, layer {numbers[1]}", first[1][index], students, below),
            ]
        )
        report.document["layers"].append(_matching_as_json(numbers, matching))
        report.lines += ["", *_matching_as_text(numbers, matching)]
    return report


def _strip(label: str, maps: np.ndarray, heads: Iterable[int], notes: Iterable[str]) -> Strip:
    return Strip(label, [(f"head {head + 1}{note}", maps[head]) for head, note in zip(heads, notes, strict=False)])


def _matching_as_json(layers: Sequence[int], matching: Matching) -> dict[str, Any]:
    divergence = matching.divergence_GH
    return {
        **dict(zip(SIDES, layers, strict=True)),
        "kl": divergence.tolist(),
        "matching": [{"teacher": g + 1, "student": h + 1, "kl": float(divergence[g, h])} for g, h in matching.pairs],
        "left": {side: [head + 1 for head in left] for side, left in zip(SIDES, matching.left, strict=True)},
        "matched_kl": matching.mean,
        "any_kl": float(divergence.mean()),
    }


def _matching_as_text(layers: Sequence[int], matching: Matching) -> list[str]:
    divergence = matching.divergence_GH
    lines = [
        f"Teacher's layer {layers[0]} (down) and student's layer {layers[1]} (across), * the best matching of heads:",
        " " * 10 + "".join(f"{f'head {h + 1}':>9} " for h in range(divergence.shape[1])).rstrip(),
    ]
    for g, row in enumerate(divergence):
        cells = (f"{kl:9.4f}{'*' if (g, h) in matching.pairs else ' '}" for h, kl in enumerate(row))
        lines.append(f"  head {g + 1:<3}" + "".join(cells).rstrip())
    lines.append(f"Matched heads {matching.mean:.4f} on average, any two {divergence.mean():.4f}.")
    for side, left in zip(SIDES, matching.left, strict=True):
        if left:
            lines.append(f"Unmatched heads of the {side}: {', '.join(str(head + 1) for head in left)}.")
    return lines


def average_maps(models: Models, layers: Mapping[str, list[int]], text: InspectedText) -> AttentionReport:
    """Report each model's attention map, averaged over heads, layers and rows.

    Also reports the share of attention within NEAR tokens of the query.
    """
    means: list[tuple[str, np.ndarray]] = []
    report = AttentionReport([Strip("", means)], text.tokens if len(text.rows) == 1 else None, {})
    for role, model in models.items():
        numbers = layers[role]
        mean_LM = average(attentions(model, text.rows, numbers))
        near, even = nearby(mean_LM, NEAR), nearby(np.ones_like(mean_LM), NEAR)
        heads = f"layer {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} layers"
        means.append((f"{role}, mean of the heads of {heads}", mean_LM))
        report.document[role] = {"layers": numbers, "near": near, "even": even}
        report.lines.append(
            f"{role}: {near:.1%} of the attention goes to the token itself and the {NEAR} on either side; "
            f"spread evenly it would be {even:.1%}."
        )
    return report
