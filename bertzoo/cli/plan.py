"""Estimate memory, time and cost of a run on a TPU slice, without a TPU.

For every stage, the plan shows the memory that a device needs, whether it fits, and the collectives, FLOPs and minimum
time of a step. For the whole run, the plan shows chip-hours, dollars and the size of a checkpoint. If libtpu (the extra
tpu-plan) is installed, the TPU compiler compiles the real steps, which takes minutes for each stage the first time.
Without the compiler, the memory of the activations is an upper bound. The plan of a pruning is for the sizes of the
unpruned model and does not use the compiler.

examples:
  bertzoo plan squeezebert --topology=v5litepod-256
  bertzoo plan configs/ib_bert_large.toml --topology=v4:4x4x8 --mesh.fsdp=4 --price=3.22 --json
  bertzoo plan bert_base --topology=tpu7x:4x4x4 --no-compile
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertzoo.cli.support.options import Parser, config_files, json_option
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk

if TYPE_CHECKING:
    from bertzoo.planning.estimate import RunPlan
    from bertzoo.pruning.settings import Prune


def config() -> type:
    """Return Pretrain; the error for a mistyped option suggests a key of this class."""
    from bertzoo.runs.configs import Pretrain

    return Pretrain


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    config_files(parser)
    planning = parser.group("planning")
    planning.add_argument(
        "--topology", required=True, metavar="SLICE", help="the TPU slice, such as v5e:16x16 or v5litepod-256"
    )
    planning.add_argument(
        "--price", type=_price, metavar="DOLLARS", help="price of a chip-hour (default: print no cost)"
    )
    planning.add_argument("--no-compile", action="store_true", help="estimate without the TPU compiler")
    planning.add_argument(
        "--cache",
        type=_cache,
        metavar="DIR",
        help="folder for the compiler's results, which later plans reuse (default: ~/.cache/bertzoo/plans)",
    )
    json_option(parser)


def _cache(text: str) -> str:
    return str(on_disk(text, "--cache =", "Name a directory.")) if text else text


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if 0 <= price < math.inf:
        return price
    raise UserError(f"--price={text} is not a number of dollars for a chip-hour. Write, for example, --price=1.20.")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Estimate the run and print the plan."""
    import jax

    # A plan uses no device of this machine. The environment variable JAX_PLATFORMS would be too late, because looking
    # up an option's key in the config's class may have imported jax.
    jax.config.update("jax_platforms", "cpu")
    from bertzoo.core import config as loader
    from bertzoo.core.kinds import config_class, kind_of_files
    from bertzoo.planning import estimate, page
    from bertzoo.pruning.settings import Prune

    name = Path(args.files[0]).stem
    if kind_of_files(*args.files).config() is Prune:
        if args.cache is not None:
            raise UserError(
                f"--cache={args.cache} does not apply to a pruning, which is planned without the compiler. Leave "
                "--cache out."
            )
        plan = plan_pruning(loader.load(Prune, args.files, overrides), args.topology, args.price)
    else:
        plan = estimate.plan(
            loader.load(config_class(*args.files), args.files, overrides),
            args.topology,
            compile_steps=not args.no_compile,
            cache_dir=args.cache,
            price=args.price,
        )
    print(json.dumps(page.plan_to_json(name, plan)) if args.json else page.plan_to_text(name, plan))
    return 0


def plan_pruning(recipe: "Prune", topology: str, price: float | None = None) -> "RunPlan":
    """Return the estimated memory, time and cost of a pruning, as if no iteration cut anything.

    Does not use the compiler. A step that trains prune vectors counts as one that trains all weights.
    topology, price: as in `estimate.plan`.
    """
    from bertzoo.planning import estimate

    parts = {"weigh": recipe.scoring_recipe(recipe.model), "tuning": recipe.distillation_recipe(recipe.model)}
    plans = {name: estimate.plan(part, topology, compile_steps=False, price=price) for name, part in parts.items()}
    note = f"{recipe.cut.iterations} iterations, estimated with the unpruned model's sizes: a cut makes steps cheaper"
    return estimate.join_plans(plans, recipe.cut.iterations, note)
