"""Plans of every shipped config on TPU slices, for docs/plans.md and docs/reproduce.md.

docs/data/plans.json keeps what a step of each plan computes, holds and sends, and the memory that the TPU compiler
allocates; both depend on the config and on the number of devices only. `python -m benchmarks render` computes the
pages' hours and dollars from it, with the chips and the assumptions of bertzoo/planning. A step in the file is not
counted or compiled again without --again. Counting takes a minute or more a plan; --compile takes minutes a step.
"""

import dataclasses
import functools
import importlib.metadata
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from benchmarks.lib import results
from benchmarks.lib.electra_flops import PUBLISHED_FLOPS, train_flops
from benchmarks.lib.tables import Row
from bertzoo.core import atomic
from bertzoo.core import config as loader
from bertzoo.core.documents import read_json
from bertzoo.core.errors import ConfigError
from bertzoo.core.kinds import config_class, shipped
from bertzoo.planning import chips, compiled, estimate
from bertzoo.planning.estimate import StagePlan, StepCounts
from bertzoo.pruning.settings import Prune
from bertzoo.runs.configs import Pretrain, Recipe
from bertzoo.train.memory import StepMemory, bytes_of

USUAL = ("v5e:16x16", "v5e:8x16", "v5e:8x8", "v5e:4x8")  # the first over which a config's batches divide
OTHERS = tuple(
    (name, slice_) for slice_ in ("tpu7x:4x4x4", "v4:4x4x8") for name in ("bert_base", "ib_bert_large", "squeezebert")
)
# Published runs: (config, rows, tokens, predictions, vocabulary, steps/s, source). All ran TensorFlow 1 on a TPU v3-8.
PUBLISHED_SLICE = "v3:2x2"
CANTOFORMER = "[cantoformer](https://github.com/paramiai/cantoformer/blob/master/scripts.md)"
BERTURK = "[BERTurk](https://github.com/stefan-it/turkish-bert/issues/4)"
PUBLISHED = (
    ("electra_small", 128, 384, 59, 32056, 19.0, CANTOFORMER),
    ("electra_base", 256, 384, 59, 32056, 1.754, CANTOFORMER),
    ("bert_base", 128, 512, 75, 32000, 2e6 / (7 * 86400), BERTURK),
)
# Dollars for a chip-hour on demand in us-central1 and us-east5, from Google's price list.
PRICES = {"v5e": 1.2, "v6e": 2.7}
LONGEST = 7 * 24  # hours that a paper's run may take
# Per paper its configs, each with the slices from which the cheapest is chosen: of 4x4, 8x8 and 16x16, those on which
# the steps fit and the run does not take much more than a week.
PAPERS = {
    "BERT (Devlin et al. 2019)": {"bert_base": ("4x4", "8x8"), "bert_large": ("8x8",)},
    "SqueezeBERT (Iandola et al. 2020)": {"squeezebert": ("16x16",)},
    "MobileBERT (Sun et al. 2020)": {
        "ib_bert_large": ("16x16",),
        "mobilebert_transfer": ("8x8",),
        "mobilebert_tiny_transfer": ("8x8",),
    },
    "ConvBERT (Jiang et al. 2020)": dict.fromkeys(
        ("convbert_small", "convbert_medium_small", "convbert_base"), ("4x4",)
    ),
    "schuBERT (Khetan & Karnin 2020)": dict.fromkeys(("schubert_66m", "schubert_43m"), ("4x4",)),
    "ELECTRA (Clark et al. 2020)": {"electra_small": ("4x4",), "electra_base": ("4x4", "8x8")},
    "ALBERT (Lan et al. 2020)": {"albert_base": ("16x16",)},
    "DistilBERT, TinyBERT": dict.fromkeys(("distilbert", "tinybert"), ("4x4",)),
}
WIDTHS = sorted({chip.mxu for chip in chips.CHIPS.values()})
_LOG = logging.getLogger("bertzoo")


@functools.cache
def recipe_of(name: str) -> Recipe:
    """The recipe of a plan: of a config, of a part of a pruning (prune_66m/tuning), or of a published run."""
    if name in (labels := [label(*run[:3]) for run in PUBLISHED]):
        config, rows, tokens, predictions, vocabulary, *_ = PUBLISHED[labels.index(name)]
        sizes = {"batch_size": rows, "max_length": tokens, "max_predictions": predictions}
        options = [(f"stages.0.{key}", str(value)) for key, value in sizes.items()]
        recipe = loader.load(Pretrain, [config], [*options, ("model.vocab_size", str(vocabulary))])
        return replace(recipe, stages=recipe.stages[:1])
    config, _, part = name.partition("/")
    if not part:
        return loader.load(config_class(config), [config], [])
    pruning = loader.load(Prune, [config], [])
    # As if no cut made the model smaller. Scores train as many values as the fine-tuning in this estimate.
    return pruning.scoring_recipe(pruning.model) if part == "weigh" else pruning.tuning_recipe(pruning.model)


def for_slices() -> list[str]:
    """The shipped configs that one machine is too small for."""
    return [name for name in (*shipped("pretrain"), *shipped("transfer")) if not name.endswith("_mini")]


def label(config: str, rows: int, tokens: int) -> str:
    """The name of a published run."""
    return f"{config}, {rows} × {tokens}"


def wanted() -> Iterator[tuple[str, Sequence[str]]]:
    """(plan, slices): the plan is counted on the first of these slices over which its batches divide."""
    yield from ((label(*run[:3]), (PUBLISHED_SLICE,)) for run in PUBLISHED)
    yield from ((f"{name}/{part}", USUAL) for name in shipped("prune") for part in ("weigh", "tuning"))
    for papers in PAPERS.values():
        yield from ((config, (f"v5e:{shape}",)) for config, shapes in papers.items() for shape in shapes)
    yield from ((name, (slice_,)) for name, slice_ in OTHERS)
    yield from ((name, USUAL) for name in for_slices())


class Counts:
    """The counted and compiled steps in the file."""

    def __init__(self, record: Mapping[str, Any]):
        self.record = record

    def steps(self, name: str, slice_: str) -> list[dict[str, Any]]:
        devices = chips.parse_topology(slice_).devices
        return [step for step in self.record["steps"] if (step["plan"], step["devices"]) == (name, devices)]

    def compiled(self, name: str, slice_: str) -> dict[int, compiled.CompiledStep]:
        """What the compiler allocated for the steps of a plan, by stage."""
        stages = [one for one in self.record["compiled"] if (one["plan"], one["slice"]) == (name, slice_)]
        return {one["stage"]: loader.from_dict(compiled.CompiledStep, one["result"]) for one in stages}

    def plan(self, name: str, slice_: str) -> list[StagePlan]:
        """The stages of a plan on a slice; none if the plan was not counted on as many devices."""
        topology, stages = chips.parse_topology(slice_), self.compiled(name, slice_)
        plans = []
        for step in self.steps(name, slice_):
            index, recipe = step["stage"], recipe_of(name)
            counts = {**step["counts"], "memory": StepMemory(**step["counts"]["memory"])}
            counts["padded_flops"] = {int(width): flops for width, flops in counts["padded_flops"].items()}
            plans.append(estimate.time_step(recipe, index, StepCounts(**counts), topology, stages.get(index)))
        return plans

    def usual(self, name: str) -> str:
        """The slice of a plan in docs/plans.md."""
        return next(slice_ for slice_ in USUAL if self.steps(name, slice_))


def count(recipe: Recipe, slice_: str, known: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The counted steps of a recipe; raises ConfigError if its batches do not divide over the slice.

    known: earlier results, for recipes that differ in their numbers of steps only.
    """
    built = estimate.build_on_slice(recipe, chips.parse_topology(slice_))
    tables = {name: table for name, table in loader.plain(recipe).items() if name not in ("mesh", "run", "seed")}
    key = slice_ + re.sub(r'"(warmup_)?steps": \d+', "", json.dumps(tables))
    if known is not None and key in known:
        return known[key]
    counted = [
        {
            "stage": index,
            "counts": dataclasses.asdict(estimate.count_step(recipe, built, index, WIDTHS)),
            "checkpoint": bytes_of(built.state(index), whole=True),
        }
        for index in estimate.planned_stages(recipe)
    ]
    if known is not None:
        known[key] = counted
    return counted


def tables(record: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The tables of the pages."""
    counts = Counts(record)
    usual = [(name, counts.usual(name)) for name in for_slices()]
    order = {slice_: place for place, slice_ in enumerate(dict.fromkeys([*USUAL, *(slice_ for _, slice_ in OTHERS)]))}
    plans = sorted([*usual, *OTHERS], key=lambda plan: (order[plan[1]], plan[0]))
    return {
        "steps": [row for name, slice_ in plans for row in memory_rows(counts, name, [(name, 1)], slice_)],
        "published": [published_row(counts, *run) for run in PUBLISHED],
        "prunings": [row for name in shipped("prune") for row in pruning_rows(counts, name)],
        "operations": [operations_row(counts, name, slice_) for name, slice_ in usual],
        "recipes": [recipe_row(counts, paper, *item) for paper, configs in PAPERS.items() for item in configs.items()],
    }


def memory_rows(counts: Counts, name: str, parts: Sequence[tuple[str, int]], slice_: str) -> Iterator[Row]:
    """A row a stage; parts: (plan, how often it is run) of one run, whose hours are in the first row."""
    topology = chips.parse_topology(slice_)
    plans = {part: counts.plan(part, slice_) for part, _ in parts}
    hours = [
        [times * end for end in estimate.chip_hours(recipe_of(part), plans[part], topology)] for part, times in parts
    ]
    for number, stage in enumerate(itertools.chain.from_iterable(plans.values())):
        fits = {True: "yes", False: "no", None: "unknown"}[stage.fits]
        yield {
            "config": name,
            "slice": slice_,
            "stage": str(number if len(parts) > 1 else stage.index),
            "rows": stage.rows,
            "memory, MiB": "not compiled" if stage.compiled is None else f"{stage.compiled.required / (1 << 20):,.0f}",
            "fits": fits if stage.compiled else f"{fits}, by the bound",
            "least time of a step, ms (bound)": f"{digits(stage.roofline.seconds * 1e3)} ({stage.roofline.bound})",
            "steps/s": span(digits, 1 / stage.step_seconds[1], 1 / stage.step_seconds[0]),
            "chip-hours": "" if number else span(digits, *map(sum, zip(*hours, strict=True))),
        }


def pruning_rows(counts: Counts, name: str) -> Iterator[Row]:
    """The rows of a pruning, whose iterations train twice each."""
    times = loader.load(Prune, [name], []).cut.iterations
    parts = [(f"{name}/{part}", times) for part in ("weigh", "tuning")]
    return memory_rows(counts, name, parts, counts.usual(parts[0][0]))


def published_row(counts: Counts, config: str, rows: int, tokens: int, *others: Any) -> Row:
    """The plan of a published run beside its speed."""
    *_, rate, source = others
    (stage,) = counts.plan(name := label(config, rows, tokens), PUBLISHED_SLICE)
    topology = chips.parse_topology(PUBLISHED_SLICE)
    return {
        "config, rows × tokens": name,
        "published steps/s": digits(rate),
        "planned steps/s": span(digits, 1 / stage.step_seconds[1], 1 / stage.step_seconds[0]),
        "published run's utilisation": f"{rate * stage.model_flops / (topology.chips * topology.chip.flops):.1%}",
        "source": source,
    }


def operations_row(counts: Counts, name: str, slice_: str) -> Row:
    """The operations of a whole run, by three ways to count."""
    plan, electra = counts.plan(name, slice_), counts.record["electra"]
    printed, of = PUBLISHED_FLOPS.get(name, (None, ""))
    steps = counts.steps(name, slice_)
    return {
        "config": name,
        "ours": f"{estimate.sum_over_run(recipe_of(name), plan, lambda stage: stage.model_flops):.2e}",
        "as ELECTRA counts": f"{electra[name]:.2e}" if name in electra else "",
        "ConvBERT prints": "" if printed is None else f"{printed:.1e}",
        "of": of,
        "checkpoint, GB": f"{max(step['checkpoint'] for step in steps) / 1e9:.2f}",
    }


def recipe_row(counts: Counts, paper: str, name: str, shapes: Sequence[str]) -> Row:
    """A paper's recipe on the cheapest slice: its steps fit, and it ends in a week at worst."""
    row: dict[str, object] = {"paper": paper, "config": name}
    for chip, price in PRICES.items():
        plans = []
        for shape in shapes:
            topology = chips.parse_topology(f"{chip}:{shape}")
            stages = counts.plan(name, topology.name)
            best, worst = estimate.chip_hours(recipe_of(name), stages, topology)
            good = all(stage.fits for stage in stages) and worst / topology.chips <= LONGEST
            plans.append((not good, worst, best, topology.chips))
        _, worst, best, number = min(plans)
        row |= {
            f"{chip} chips": number,
            f"{chip}, hours": span(short, best / number, worst / number),
            f"{chip}, chip-hours": span(short, best, worst),
            f"{chip}, dollars at {price:.2f}": span(short, best * price, worst * price),
        }
    return row


def span(shown: Callable[[float], str], low: float, high: float) -> str:
    return f"{shown(low)} to {shown(high)}"


def digits(number: float) -> str:
    """Three digits of a number, or all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def short(number: float) -> str:
    """Two digits of a number, or all before the point."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def main() -> None:
    """Count, and with --compile compile, the steps that the file lacks."""
    options = results.parser("plans", __doc__)
    options.add_argument("--compile", action="store_true", help="compile the steps too, for which libtpu is needed")
    options.add_argument("--again", metavar="PLAN", action="append", default=[], help="count it anew (repeatable)")
    args = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    record = read_json(args.out) if args.out.is_file() else {"steps": [], "compiled": [], "electra": {}}
    done = {(step["plan"], step["devices"]) for step in record["steps"] if step["plan"] not in args.again}
    known: dict[str, Any] = {}
    for name, slices in wanted():
        recipe = recipe_of(name)
        for slice_ in slices:
            plan = {"plan": name, "devices": chips.parse_topology(slice_).devices}
            if (key := tuple(plan.values())) not in done:
                try:
                    counted = count(recipe, slice_, known)
                except ConfigError:  # the batch does not divide over the slice
                    continue
                others = [step for step in record["steps"] if (step["plan"], step["devices"]) != key]
                record["steps"] = [*others, *(plan | step for step in counted)]
                if isinstance(recipe, Pretrain) and name in shipped("pretrain"):
                    record["electra"][name] = train_flops(recipe)
                done.add(key)
                _LOG.info(f"counted {name} on {plan['devices']} devices")
            if args.compile:
                compile_steps(record, name, slice_)
            write(args.out, record)
            break
    write(args.out, record)


def write(file: Path, record: Mapping[str, Any]) -> None:
    """Write the file, which so far may lack some plans."""
    origin = {"command": results.command(), "context": [f"jax {jax.__version__}", f"commit {results.commit()}"]}
    atomic.write_json(file, {**record, **origin})


def compile_steps(record: dict[str, Any], name: str, slice_: str) -> None:
    """Compile the steps of a plan, unless all results are in the file."""
    counts = Counts(record)
    if len(counts.compiled(name, slice_)) == len(counts.plan(name, slice_)):
        return
    steps = compiled.compile_stages(recipe_of(name), chips.parse_topology(slice_), compiled.result_folder())
    for stage, step in steps.items():
        one = {"plan": name, "slice": slice_, "stage": stage, "libtpu": importlib.metadata.version("libtpu")}
        record["compiled"].append({**one, "result": dataclasses.asdict(step)})
