"""The plan of every shipped pretraining config on TPU slices, as docs/plans.md: `make plans`.

Compiling takes minutes a stage and hours in all. What was compiled is kept (--cache), so that the command may be
stopped and given again. The page is written at the end, and at any time by --no-compile, which reads what is kept.
"""

import argparse
import importlib.metadata
import os
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from bertzoo.cli.support.options import say
from bertzoo.core import config as loader
from bertzoo.core.errors import ConfigError, UserError
from bertzoo.planning import cache, chips, compiled, convention, estimate, page, step
from bertzoo.runs.kind import shipped
from bertzoo.runs.pretrain_config import Pretrain

USUAL = "v5e:16x16"
SMALLER = ("v5e:8x16", "v5e:8x8", "v5e:4x8")  # for batches that do not divide over the usual one
OTHERS = tuple(
    (name, slice_) for slice_ in ("v4:4x4x8", "tpu7x:4x4x4") for name in ("bert_base", "squeezebert", "ib_bert_large")
)
PAGE = Path(__file__).parent.parent / "docs" / "plans.md"


def asked() -> Iterator[tuple[str, Pretrain, chips.Topology, str]]:
    """(config, recipe, slice, what the usual slice said), what compiles soonest first."""
    recipes = {name: loader.load(Pretrain, [name], []) for name in shipped("pretrain")}

    def size(name: str) -> int:
        objective = recipes[name].objective.build(recipes[name].model, recipes[name].compute)
        shapes = jax.tree.leaves(jax.eval_shape(objective.init, jax.random.key(0)))
        return len(shapes) * len(recipes[name].stages)

    names = sorted(recipes, key=size)
    for name, wanted in [(name, USUAL) for name in names] + list(OTHERS):
        refused = ""
        for slice_ in (wanted, *(SMALLER if wanted == USUAL else ())):
            topology = chips.parse(slice_)
            try:
                step.imagined(recipes[name], topology)
            except ConfigError as error:
                refused = refused or str(error)
                continue
            yield name, recipes[name], topology, refused
            break


def main() -> None:
    """Plan and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", help="where the compiler's results are kept")
    parser.add_argument("--no-compile", action="store_true", help="only read what is kept")
    args = parser.parse_args()
    folder, done = cache.directory(args.cache), []
    compiler = f"jax {jax.__version__}, libtpu {importlib.metadata.version('libtpu')}"
    for name, recipe, topology, refused in asked():
        began = time.monotonic()
        try:
            found = compiled.compile_stages(recipe, topology, folder, say, kept=args.no_compile)
        except UserError as error:
            say(f"{name}: {error}")
            found = None
        plan = estimate.make(recipe, topology, found, published=convention.PUBLISHED.get(name))
        done.append((name, plan, refused))
        say(f"{name} on {topology.name}: {time.monotonic() - began:.0f} s")
    done.sort(key=lambda one: (one[1].topology.partition(":")[0] != USUAL.partition(":")[0], one[1].topology, one[0]))
    PAGE.write_text(page.markdown(done, compiler), encoding="utf-8")


if __name__ == "__main__":
    main()
