"""What a run needs and costs on a TPU slice, before there is one.

For every stage: the memory of a device by kind and whether it fits, what the devices send one another, operations with
and without the padding of the matrix units, the least time of a step; for the whole run steps a second, chip-hours,
dollars where a price is given, the size of a checkpoint, and training operations as ELECTRA's authors count them.

Where libtpu is installed (`pip install '.[tpu-plan]'` in the checkout), the TPU compiler compiles the real steps for
the slice, here: minutes for each stage, seconds the next time. A step that does not fit is a result and no error.

examples:
  bertzoo plan squeezebert --topology=v5e:16x16
  bertzoo plan configs/ib_bert_large.toml --topology=v4:4x4x8 --mesh.fsdp=4 --price=3.22 --json
  bertzoo plan bert_base --topology=tpu7x:4x4x4 --no-compile
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

from bertzoo.cli.support.options import say
from bertzoo.core.errors import UserError
from bertzoo.core.paths import on_disk


def config() -> type:
    """The class of the config."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--topology", required=True, metavar="KIND:SHAPE", help="a slice, such as v5e:16x16")
    parser.add_argument("--price", type=_price, metavar="DOLLARS", help="of one chip for an hour")
    parser.add_argument("--no-compile", action="store_true", help="only what needs no compiler")
    parser.add_argument(
        "--cache", type=_cache, metavar="DIR", help="where the compiler's results are kept (default: ~/.cache/bertzoo)"
    )
    parser.add_argument("--json", action="store_true", help="one object on standard output")


def _cache(text: str) -> str:
    return str(on_disk(text, "--cache =", "name a directory")) if text else text


def _price(text: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if 0 <= price < math.inf:
        return price
    raise UserError(f"--price={text} is not a number of dollars for a chip-hour, such as 1.20")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Plan and print."""
    import jax

    # A plan is made on the processor, whatever else is here: no device of this machine is looked at. It is the setting
    # and not the environment, which is too late where an option's key has been looked up in the config's class.
    jax.config.update("jax_platforms", "cpu")
    from bertzoo.core import config as loader
    from bertzoo.planning import cache, chips, compiled, convention, estimate, page, step
    from bertzoo.runs.kind import recipe_class

    topology = chips.parse(args.topology)
    recipe = loader.load(recipe_class(*args.files), args.files, overrides)
    step.imagined(recipe, topology)  # what a run there would refuse is said before anything takes long
    found, missing = None, None
    if args.no_compile:
        missing = "--no-compile was given"
    elif not compiled.available():
        missing = compiled.INSTALL
    else:
        found = compiled.compile_stages(recipe, topology, cache.directory(args.cache), say)
    name = Path(args.files[0]).stem
    # What is printed of a recipe is not printed of another that more files or options have made of it.
    own = not overrides and len(args.files) == 1
    published = convention.PUBLISHED.get(name) if own else None
    plan = estimate.make(recipe, topology, found, price=args.price, published=published)
    print(json.dumps(page.as_json(name, plan, missing)) if args.json else page.as_text(name, plan, missing))
    return 0
