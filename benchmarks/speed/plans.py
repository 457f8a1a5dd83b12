"""The plan of every shipped pretraining, transfer and pruning on TPU slices: writes docs/plans.md, by `make plans`.

Compiling takes minutes a stage and hours in all. The compiler's results are kept (--cache), so that the command can be
stopped and repeated. --no-compile writes the page from the results so far.
"""

import argparse
import importlib.metadata
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from benchmarks.lib.electra_flops import PUBLISHED_FLOPS, train_flops
from bertzoo.api.models import plan_pruning
from bertzoo.cli.support.options import say
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.core.kinds import config_class, shipped
from bertzoo.core.tables import markdown as table
from bertzoo.planning import chips, compiled, estimate
from bertzoo.planning.estimate import ASSUMPTIONS, RunPlan, StagePlan
from bertzoo.pruning.settings import Prune
from bertzoo.runs.configs import Pretrain, Recipe, Transfer

USUAL = "v5e:16x16"
SMALLER = ("v5e:8x16", "v5e:8x8", "v5e:4x8")  # for batches that do not divide over the usual one
OTHERS = tuple(
    (name, slice_) for slice_ in ("v4:4x4x8", "tpu7x:4x4x4") for name in ("bert_base", "squeezebert", "ib_bert_large")
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
PAGE = Path(__file__).parents[2] / "docs" / "plans.md"


def cases() -> Iterator[tuple[str, Recipe, chips.Topology, str]]:
    """(config, recipe, slice, why not the usual slice), those that compile soonest first."""
    recipes = {
        name: loader.load(config_class(name), [name], []) for name in (*shipped("pretrain"), *shipped("transfer"))
    }

    def size(name: str) -> int:
        objective = recipes[name].objective.build(recipes[name].model, recipes[name].compute)
        shapes = jax.tree.leaves(jax.eval_shape(objective.init, jax.random.key(0)))
        return len(shapes) * len(recipes[name].stages)

    names = sorted(recipes, key=size)
    for name, topology_name in [(name, USUAL) for name in names] + list(OTHERS):
        refused = ""
        for slice_ in (topology_name, *(SMALLER if topology_name == USUAL else ())):
            topology = chips.parse_topology(slice_)
            try:
                estimate.build_on_slice(recipes[name], topology)
            except ConfigError as error:
                refused = refused or str(error)
                continue
            yield name, recipes[name], topology, refused
            break


MEMORY_HEAD = (
    "config",
    "slice",
    "stage",
    "rows",
    "memory, MiB",
    "fits",
    "least time of a step, ms (bound)",
    "steps/s",
    "chip-hours",
)
OPENING = """# Plans

For readers who rent TPUs: the memory, time and chip-hours of every shipped recipe on a TPU slice, at its paper's own
batch size. `make plans` writes this page. `bertzoo plan CONFIG --topology=KIND:SHAPE` prints the same for any config,
with the parts of the memory, the operations, and the messages between devices.

## How a plan is made

1. A slice such as `v5e:16x16` becomes a mesh of absent devices, with the chip's numbers from `planning/chips.py`.
2. A run's own code builds state, batch and step of every stage on that mesh, as shapes without arrays. They give the
   exact bytes of parameters, moments, gradients and batch.
3. The step's jaxpr gives its operations and an upper bound of its activations.
4. libtpu, where it is installed, compiles the step for the slice ({compiler}). Its account replaces the bounds: the
   memory that it allocates, and what the devices send one another.
5. A roofline turns operations, bytes and messages into the least time of a step, and a range of utilisation into
   steps/s and chip-hours, under these [assumptions](#assumptions).

The rows are older than four changes: the last layer computes only the tokens that a masked language model reads (6 %
fewer operations of BERT-base), attention is
[a kernel](performance.md#a-training-step-on-a-tpu-by-its-compilers-account), gradients of scores and logits are rounded
to bfloat16 before their products, and the check for finite updates reads the new parameters. `make plans` compiles them
again. Their steps/s and chip-hours were computed from the rows for today's range of utilisation.

## Memory and time

Memory is per device. {progress}

- rows: of the batch, on one device at a time.
- memory: what the compiler allocates for the step, or wants for one that does not fit; "not yet" before `make plans`
  has compiled it.
- fits: a program may use {capacities}.
- least time of a step: the largest of the times that compute, memory and interconnect need, which the bound names.
- steps/s, chip-hours: worst to best; chip-hours cover the whole run.
"""
SECTIONS = """## Meshes that split parameters

All plans above use meshes of `data` alone, and their only messages are all-reduces. These first stages,
with other numbers of layers and rows, were compiled with libtpu 0.0.42.1 for v5e:2x2:

| config | layers | batch | mesh | compiled, MiB | MB a device sends |
| --- | --- | --- | --- | --- | --- |
| bert_base | 1 | 256 | fsdp=4 | 657 | 244 |
| bert_base | 1 | 256 | fsdp=2 tensor=2 | 525 | 182 |
| bert_base | 2 | 256 | data=2 tensor=2 | 773 | 335 |
| bert_small | 1 | 512 | fsdp=4 | 424 | 38 |
| bert_small | 3 | 512 | fsdp=4 | 719 | 44 |
| bert_small | 1 | 64, of 512 tokens | data=2 fsdp=2 | 69 | 40 |
| squeezebert | 1 | 256 | fsdp=4 | 679 | 226 |

`tensor` is Megatron-LM's split: the activations between the two maps of a layer are split, and the second map's result
and the first one's gradient are summed. `fsdp` gathers split parameters and scatters their gradients. The word table is
whole on every device, and its gradient is summed twice, once for the logits and once for the lookups.
"""
BESIDE = """## Beside published runs

`bertzoo plan` beside pretraining runs on a TPU v3-8 ({slice}) with the papers' TensorFlow code. BERTurk's speed is 2 M
steps in 7 days, checkpoints included. No run of bertzoo on a TPU has been timed. These runs set the range of
utilisation that every plan assumes.

"""
PRUNINGS = """## Prunings

The scores decide which sizes a cut leaves. These rows have the unpruned model's: upper bounds for all iterations, by
estimate, without the compiler. Stage 0 trains the prune vectors and counts as if it trained all weights; stage 1 is
the fine-tuning.

"""


def published() -> Iterator[tuple[str, StagePlan, float, float, str]]:
    """The plan of every published run: (what ran, its stage, published steps/s, utilisation, source)."""
    topology = chips.parse_topology(PUBLISHED_SLICE)
    for name, rows, tokens, predictions, vocabulary, rate, source in PUBLISHED:
        sizes = {"batch_size": rows, "max_length": tokens, "max_predictions": predictions}
        options = [(f"stages.0.{key}", str(value)) for key, value in sizes.items()]
        recipe = loader.load(Pretrain, [name], [*options, ("model.vocab_size", str(vocabulary))])
        (stage,) = estimate.make_plan(replace(recipe, stages=recipe.stages[:1]), topology).stages
        share = rate * stage.model_flops / (topology.chips * topology.chip.flops)
        yield f"{name}, {rows} × {tokens}", stage, rate, share, source


def published_section() -> str:
    """The section of the published runs."""
    head = ("config, rows × tokens", "published steps/s", "planned steps/s", "published run's utilisation", "source")
    rows = [
        (run, digits(rate), " to ".join(digits(1 / s) for s in reversed(stage.step_seconds)), f"{share:.1%}", source)
        for run, stage, rate, share, source in published()
    ]
    return BESIDE.format(slice=PUBLISHED_SLICE) + table(head, rows)


def prunings() -> Iterator[tuple[str, RunPlan]]:
    """The plan of every pruning, on the first slice that its batch divides over."""
    for name in shipped("prune"):
        recipe = loader.load(Prune, [name], [])
        for topology in (USUAL, *SMALLER):
            try:
                yield name, plan_pruning(recipe, topology)
            except ConfigError:
                continue
            break


def pruning_section(plans: Sequence[tuple[str, RunPlan]]) -> str:
    """The section of the prunings."""
    return PRUNINGS + table(
        MEMORY_HEAD, [memory_row(name, plan, stage) for name, plan in plans for stage in plan.stages]
    )


def markdown(
    plans: Sequence[tuple[str, RunPlan, str]],
    compiler: str,
    pruned: Sequence[tuple[str, RunPlan]] = (),
    electra: Mapping[str, float] = {},
    beside: str = "",
) -> str:
    """The page of many plans: (config, plan, why not the usual slice); `compiler`: its version; pruned: of prunings.

    electra: training operations as ELECTRA's authors count them, by config. beside: the section of published runs.
    """
    stages = [(name, plan, stage) for name, plan, _ in plans for stage in plan.stages]
    capacities = {plan.topology.partition(":")[0]: stage.capacity / chips.GIB for _, plan, stage in stages}
    opening = OPENING.format(
        compiler=compiler,
        progress=progress([stage for *_, stage in stages]),
        capacities=", ".join(f"{size:.2f} GiB on {chip}" for chip, size in capacities.items()),
    )
    parts = [opening + "\n" + table(MEMORY_HEAD, [memory_row(*stage) for stage in stages])]
    if over := [f"- `{name}` on {p.topology}, stage {s.index}: {s.advice}." for name, p, s in stages if not s.fits]:
        parts.append("Steps that do not fit, and the remedy:\n\n" + "\n".join(over))
    refused: dict[str, list[str]] = {}
    for name, _, reason in plans:
        refused.setdefault(reason, []).append(f"`{name}`")
    if lines := [f"- {', '.join(names)}: {reason}" for reason, names in refused.items() if reason]:
        parts.append("On a smaller slice, because a run on the usual one raises this error:\n\n" + "\n".join(lines))
    parts += [*filter(None, [beside]), SECTIONS.strip(), pruning_section(pruned), "## Operations of whole runs"]
    parts.append(
        table(
            ("config", "ours", "as ELECTRA counts", "ConvBERT prints", "of", "checkpoint, GB"),
            [
                (
                    name,
                    f"{plan.model_flops:.2e}",
                    f"{electra[name]:.2e}" if name in electra else "",
                    f"{PUBLISHED_FLOPS[name][0]:.1e}" if name in PUBLISHED_FLOPS else "",
                    PUBLISHED_FLOPS.get(name, ("", ""))[1],
                    f"{plan.checkpoint_bytes / 1e9:.2f}",
                )
                for name, plan in {name: plan for name, plan, _ in reversed(plans)}.items()
            ],
        )
    )
    parts += ["## Assumptions", "\n".join(f"- {line}" for line in ASSUMPTIONS)]
    return "\n\n".join(parts) + "\n"


def memory_row(name: str, plan: RunPlan, stage: StagePlan) -> tuple[str, ...]:
    """A row under MEMORY_HEAD; the chip-hours are the run's."""
    best, worst = stage.step_seconds
    fits = {True: "yes", False: "no", None: "unknown"}[stage.fits]
    return (
        name,
        plan.topology,
        str(stage.index),
        f"{stage.rows:,}",
        "not yet" if stage.compiled is None else mib(stage.compiled.wanted),
        f"{fits}{'' if stage.compiled else ', by the bound'}",
        f"{digits(stage.roofline.seconds * 1e3)} ({stage.roofline.bound})",
        f"{digits(1 / worst)} to {digits(1 / best)}",
        "" if stage.index else f"{digits(plan.chip_hours[0])} to {digits(plan.chip_hours[1])}",
    )


def progress(stages: Sequence[StagePlan]) -> str:
    """How many steps have been compiled, and how many of these take no more than the bound."""
    pairs = [(stage.compiled.wanted, stage.estimated) for stage in stages if stage.compiled is not None]
    within = sum(topology_name <= memory.total for topology_name, memory in pairs)
    ample = sum(topology_name <= memory.ample for topology_name, memory in pairs)
    return (
        f"{len(pairs)} of {len(stages)} steps have been compiled. {within} of them need at most the\nexact bytes "
        f"plus the bound, {ample} at most these plus a second copy of parameters and moments."
    )


def digits(number: float) -> str:
    """Three digits of a number, or all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def mib(size: int) -> str:
    """MiB of a number of bytes."""
    return f"{size / (1 << 20):,.0f}"


def main() -> None:
    """Plan every case and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", help="the folder of the compiler's results")
    parser.add_argument("--no-compile", action="store_true", help="only read the results so far")
    args = parser.parse_args()
    folder, done, electra = compiled.result_folder(args.cache), [], {}
    compiler = f"jax {jax.__version__}, libtpu {importlib.metadata.version('libtpu')}"
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name, recipe, topology, refused in cases():
        began = time.monotonic()
        try:
            results = compiled.compile_stages(recipe, topology, folder, cached_only=args.no_compile)
        except UserError as error:
            say(f"{name}: {error}")
            results = None
        done.append((name, estimate.make_plan(recipe, topology, results), refused))
        if not isinstance(recipe, Transfer):
            electra[name] = train_flops(recipe)
        say(f"{name} on {topology.name}: {time.monotonic() - began:.0f} s")
    done.sort(key=lambda one: (one[1].topology.partition(":")[0] != USUAL.partition(":")[0], one[1].topology, one[0]))
    PAGE.write_text(markdown(done, compiler, list(prunings()), electra, published_section()), encoding="utf-8")
