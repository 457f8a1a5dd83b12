"""Look into a model: `attention` draws its attention maps as a PNG, or those of a teacher and a student side by side.

Every head of the layers is a map: queries from above, keys from the left, one scale of colour for all, whose last
colour the highest 0.5 % share. With --teacher every head of the teacher stands above the student's that it is matched
with: the best one-to-one matching of heads, which is printed with the mean KL divergence of a query, in nats
(MobileBERT Fig. 3 and Appendix C). --average draws the mean over all heads of all layers and over the rows instead
(ConvBERT Fig. 2).

What is read is given as --text, or it is held-out rows of a run, unmasked. Of several, the maps of the first are drawn;
the matching and the average are over all. Layers and heads are numbered from 1; of ConvBERT's heads those that convolve
have no map. A model is a run, a checkpoint, a model directory, a Hugging Face directory or a TensorFlow 1 checkpoint.

examples:
  bertzoo inspect attention runs/demo --out=attention.png
  bertzoo inspect attention runs/mobilebert --teacher=runs/ib_bert --text='The cat sat on the mat.' --out=heads.png
  bertzoo inspect attention bert-base-uncased --heldout=runs/first --rows=100 --average --out=average.png
"""

import argparse
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertzoo.cli.support.options import corpus_option
from bertzoo.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from bertzoo.conversion.pretrained import Pretrained
    from bertzoo.data.tokenizers.vocabulary import Tokenizer
    from bertzoo.runs.report.attention import Matching, Row
    from bertzoo.runs.report.heatmaps import Strip

LAYERS = (1, 12)  # of MobileBERT's Appendix C
ROWS = 8
NEAR = 4  # tokens to either side: ConvBERT's windows of 9

SIDES = ("teacher", "student")

Layers = tuple[tuple[int, int], ...]  # (of the student, of the teacher)


class Source(NamedTuple):
    """What is read: the rows, what a person is told of it, and the tokens of the first row."""

    rows: list["Row"]
    what: str
    tokens: list[str]


class Found(NamedTuple):
    """What came of it: to be drawn, beside which tokens, to be printed as JSON, and to be printed for a person."""

    blocks: list[list["Strip"]]
    tokens: list[str] | None
    document: dict[str, Any]
    lines: list[str]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("what", choices=("attention",), help="what to look at")
    parser.add_argument("model", metavar="MODEL", help="the model, or the student")
    parser.add_argument("--teacher", metavar="MODEL", help="the model that it is compared with")
    parser.add_argument("--text", action="append", metavar="TEXT", help="what they read; may be given several times")
    parser.add_argument(
        "--heldout", metavar="RUN", help="read held-out rows of this run (default: of MODEL, if it is one)"
    )
    corpus_option(parser, "that run's corpus")
    parser.add_argument(
        "--rows",
        type=int,
        help=f"how many of them, of the first stage's length, to compare or average (default {ROWS})",
    )
    parser.add_argument(
        "--layers",
        type=_layers,
        metavar="N,…",
        help="the layers; 6:12 is the student's 6th and the teacher's 12th (default: the first, and the 12th or the "
        "last where there are fewer; all with --average)",
    )
    parser.add_argument("--average", action="store_true", help="one map: the mean over heads, layers and rows")
    parser.add_argument("--out", required=True, metavar="PNG", type=Path, help="the file to write")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")


def _layers(text: str) -> Layers:
    pairs = [part.split(":") for part in text.split(",")]
    if all(len(pair) <= 2 and all(number.isdecimal() for number in pair) for pair in pairs):
        return tuple((int(pair[0]), int(pair[-1])) for pair in pairs)
    raise UserError(f"--layers={text} is not a list of layers such as 1,12 or, with a teacher, 1:1,6:12")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Read, compute, draw, print."""
    from bertzoo.runs.report import heatmaps

    _check(args)
    student = _read(args.model)
    models = {"model": student}
    if args.teacher is not None:
        models = {"teacher": _read(args.teacher), "student": student}
        _check_vocabulary(student, models["teacher"].tokenizer, models["teacher"].origin)
    source = _texts(args.text, student) if args.text else _heldout(args, student)
    made = (_averages if args.average else _heads)(models, _chosen(args, models), source)
    drawn = "" if args.average or len(source.rows) == 1 else " (the first is drawn)"
    title = "\n".join([*(f"{role}: {found.origin}" for role, found in models.items()), source.what + drawn])
    heatmaps.draw(made.blocks, title, made.tokens, args.out)
    if args.json:
        print(json.dumps({"out": str(args.out), "rows": len(source.rows), **made.document}))
    else:
        print("\n".join([*made.lines, *[""] * bool(made.lines), f"Wrote {args.out}."]))
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be told wrong before anything is read."""
    if args.out.suffix != ".png":
        raise UserError(f"--out={args.out}: the picture is a PNG file; give a name that ends in .png")
    if not args.out.parent.is_dir() or args.out.is_dir():
        raise UserError(f"--out={args.out} cannot be written: name a file in a directory that exists")
    if args.text and args.heldout:
        raise UserError("--text and --heldout both say what is read; give one of them")
    if args.text and args.corpus:
        raise UserError("--text and --corpus both say what is read; give one of them")
    if args.text and args.rows is not None:
        raise UserError("--rows is of held-out text; leave it out beside --text")
    if args.rows is not None and args.rows < 1:
        raise UserError(f"--rows={args.rows} is not a number of rows; give at least 1")
    several = f"--rows={args.rows}" if (args.rows or 1) > 1 else f"{len(args.text or ())} times --text"
    if args.teacher is None and not args.average and max(args.rows or 1, len(args.text or ())) > 1:
        raise UserError(f"{several}, but the maps are of one row alone: give one, or --teacher or --average")
    if args.teacher is None and any(own != teachers for own, teachers in args.layers or ()):
        raise UserError("--layers names layers of a teacher, but there is no --teacher")


def _read(path: str) -> "Pretrained":
    from bertzoo.runs import any_model

    found = replace(any_model.read_model(path), origin=path)
    if found.tokenizer is None:
        raise UserError(f"{path} holds no tokenizer, without which it can read no text")
    return found


def _check_vocabulary(model: "Pretrained", tokenizer: "Tokenizer | None", origin: str) -> None:
    from bertzoo.data.tokenizers.tokenizer import difference

    assert model.tokenizer and tokenizer
    if (words := difference(model.tokenizer, tokenizer)) is not None:
        raise UserError(f"{model.origin} does not have the vocabulary of {origin}: {words}")


def _texts(texts: Sequence[str], model: "Pretrained") -> Source:
    """[CLS] text [SEP] of every text."""
    import numpy as np

    from bertzoo.runs.report.attention import Row

    assert model.tokenizer
    rows = []
    for text, ids in zip(texts, model.tokenizer.encode_batch(texts), strict=True):
        if not len(ids):
            raise UserError(f"--text={text!r} has no tokens; give some words")
        specials = model.tokenizer.specials
        whole = np.array([specials.cls, *ids, specials.sep], np.int32)
        rows.append(Row(whole, np.zeros_like(whole)))
    what = "text: " + textwrap.shorten(texts[0], 90, placeholder=" …")
    if len(rows) > 1:
        what = f"{len(rows)} texts, first: " + what.removeprefix("text: ")
    return Source(rows, what, _tokens(model.tokenizer, rows[0]))


def _heldout(args: argparse.Namespace, model: "Pretrained") -> Source:
    """Rows of the first stage's held-out part, in the plan's order."""
    from bertzoo.runs.batches import RunBatches
    from bertzoo.runs.report.attention import unmasked
    from bertzoo.runs.run_dir import RunDirectory

    if args.heldout is None and model.source.get("format") != "run":
        raise UserError(f"{model.origin} is not a run, which has text: give --text, or a run as --heldout")
    run = RunDirectory(args.heldout or str(model.source["path"]))
    run.fetch()
    recipe, corpus = run.load(), run.open_corpus(args.corpus)
    _check_vocabulary(model, corpus.tokenizer, f"the corpus of {run.name}")
    batches = RunBatches(recipe, corpus, run.plans, lambda warning: None).stage(0, "heldout")
    wanted = args.rows or (ROWS if args.teacher or args.average else 1)
    if wanted > batches.rows:
        raise UserError(f"--rows={wanted}, but {run.name} holds out {batches.rows} rows of the first stage's length")
    rows = unmasked(batches.sequential(0, wanted))
    what = f"{wanted} held-out row{'s' * (wanted > 1)} of {run.name}"
    return Source(rows, what, _tokens(corpus.tokenizer, rows[0]))


def _tokens(tokenizer: "Tokenizer", row: "Row") -> list[str]:
    return [tokenizer.token(int(index)) for index in row.input_ids]


def _chosen(args: argparse.Namespace, models: Mapping[str, "Pretrained"]) -> dict[str, list[int]]:
    """The layers of each model; of two that are compared those of a pair stand at the same place."""
    counts = {role: found.model.layers for role, found in models.items()}
    if args.layers is None and args.average:
        return {role: list(range(1, count + 1)) for role, count in counts.items()}
    pairs = args.layers or [(layer, layer) for layer in LAYERS]
    rows = [tuple(pair[role == "teacher"] for role in models) for pair in pairs]
    if args.layers is None:
        rows = [tuple(min(layer, count) for layer, count in zip(row, counts.values(), strict=True)) for row in rows]
    columns = zip(*dict.fromkeys(rows), strict=True)
    return {role: list(dict.fromkeys(c) if args.average else c) for role, c in zip(models, columns, strict=True)}


def _heads(models: Mapping[str, "Pretrained"], layers: Mapping[str, list[int]], source: Source) -> Found:
    """Every head of the layers on the first row, and with a teacher the matching of heads on all rows."""
    from bertzoo.runs.report.attention import attentions, compare, match

    rows = zip(*(attentions(found, source.rows, layers[role]) for role, found in models.items()), strict=True)
    first = next(rows)
    if len(models) == 1:
        (chosen,), (maps,) = layers.values(), first
        blocks = [
            [_strip(f"layer {n}", heads, range(len(heads)), repeat(""))] for n, heads in zip(chosen, maps, strict=True)
        ]
        return Found(blocks, source.tokens, {"layers": chosen}, [])
    queries = sum(len(row.input_ids) for row in source.rows)
    head = f"KL(teacher's head || student's) in nats, the mean of {queries:,} queries."
    made = Found([], source.tokens, {"layers": []}, [head])
    for *numbers, divergence in zip(*layers.values(), compare(chain([first], rows)), strict=True):
        index, matching = len(made.blocks), match(divergence)
        matched = zip(*matching.pairs, strict=True)
        teachers, students = ([*side, *left] for side, left in zip(matched, matching.left, strict=True))
        above = chain([""] * len(matching.pairs), repeat(", left over"))
        below = chain([f", KL {divergence[pair]:.3f}" for pair in matching.pairs], repeat(", left over"))
        made.blocks.append(
            [
                _strip(f"teacher, layer {numbers[0]}", first[0][index], teachers, above),
                _strip(f"student, layer {numbers[1]}", first[1][index], students, below),
            ]
        )
        made.document["layers"].append(_document(numbers, matching))
        made.lines.extend(["", *_table(numbers, matching)])
    return made


def _strip(label: str, maps: "np.ndarray", heads: Iterable[int], notes: Iterable[str]) -> "Strip":
    from bertzoo.runs.report.heatmaps import Panel, Strip

    return Strip(label, [Panel(f"head {head + 1}{note}", maps[head]) for head, note in zip(heads, notes, strict=False)])


def _document(layers: Sequence[int], matching: "Matching") -> dict[str, Any]:
    divergence = matching.divergence_GH
    return {
        **dict(zip(SIDES, layers, strict=True)),
        "kl": divergence.tolist(),
        "matching": [{"teacher": g + 1, "student": h + 1, "kl": float(divergence[g, h])} for g, h in matching.pairs],
        "left": {side: [head + 1 for head in left] for side, left in zip(SIDES, matching.left, strict=True)},
        "matched_kl": matching.mean,
        "any_kl": float(divergence.mean()),
    }


def _table(layers: Sequence[int], matching: "Matching") -> list[str]:
    """The divergences of all pairs of heads, those of matched ones marked, and what there is to say of them."""
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
            lines.append(f"Left over of the {side}'s heads: {', '.join(str(head + 1) for head in left)}.")
    return lines


def _averages(models: Mapping[str, "Pretrained"], layers: Mapping[str, list[int]], source: Source) -> Found:
    """The average map of each model, and how much of it is near its diagonal."""
    import numpy as np

    from bertzoo.runs.report.attention import attentions, average, nearby
    from bertzoo.runs.report.heatmaps import Panel, Strip

    panels, document, lines = [], {}, []
    for role, found in models.items():
        mean_LM = average(attentions(found, source.rows, layers[role]))
        near, even = nearby(mean_LM, NEAR), nearby(np.ones_like(mean_LM), NEAR)
        panels.append(Panel(f"{role}, mean of the heads of {_numbered(layers[role])}", mean_LM))
        document[role] = {"layers": layers[role], "near": near, "even": even}
        lines.append(
            f"{role}: {near:.1%} of the attention goes to the token itself and the {NEAR} on either side; "
            f"spread evenly it would be {even:.1%}."
        )
    tokens = source.tokens if len(source.rows) == 1 else None
    return Found([[Strip("", panels)]], tokens, document, lines)


def _numbered(layers: Sequence[int]) -> str:
    return f"layer {layers[0]}" if len(layers) == 1 else f"{len(layers)} layers"
