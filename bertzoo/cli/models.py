"""List parameters, FLOPs and memory of every shipped model.

Three columns count parameters: the encoder with its embeddings, the same with the pooler, and all that is pretrained.
GFLOPs (2 per multiply-add) and activations are for one text of 128 tokens in float32. The column of activations shows
their peak memory without operator fusion. Published figures stand beside the shipped models.

examples:
  bertzoo models
  bertzoo models squeezebert bert_base --json
  bertzoo models squeezebert --model.layers=6
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertzoo.cli.config import config
from bertzoo.cli.support.options import Parser, json_option

if TYPE_CHECKING:
    from bertzoo.planning.sizes import Published
    from bertzoo.runs.configs import Recipe

HEAD = (
    *("name", "encoder", "with_pooler", "pretraining", "published_params"),
    *("GFLOPs", "published_GFLOPs", "activations", "paper"),
)


def arguments(parser: Parser) -> None:
    """Declare the command's flags."""
    parser.group("input").add_argument(
        "names", nargs="*", default=[], metavar="CONFIG", help="shipped configs or TOML files (default: all shipped)"
    )
    json_option(parser)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Print a row for each model as soon as it is measured."""
    from bertzoo.core import config as loader
    from bertzoo.core.kinds import config_class, shipped

    names = args.names or shipped("pretrain")
    recipes = [loader.load(config_class(name), [name], overrides) for name in names]
    rows = (measured(name, recipe) for name, recipe in zip(names, recipes, strict=True))
    if args.json:
        for index, row in enumerate(rows):
            print(f"{',' if index else '['}\n{json.dumps(row)}", end="", flush=True)
        print("\n]")
        return 0
    width = max(map(len, (*names, HEAD[0])))
    print(line(HEAD, width), flush=True)
    for row in rows:
        print(line(cells(row), width), flush=True)
    return 0


def measured(name: str, recipe: "Recipe") -> dict[str, Any]:
    """Return a config's sizes, FLOPs and published figures as a JSON object."""
    from bertzoo.planning.sizes import measure

    sizes, paper = measure(recipe.model, recipe.objective), published(name, recipe)
    return {
        "name": name,
        "paper": paper.paper,
        "params_encoder": sizes.params_encoder,
        "params_with_pooler": sizes.params_with_pooler,
        "params_pretraining": sizes.params_pretraining,
        "params_published": paper.params and round(paper.params * 1e6),
        "gflops_128": sizes.flops_128 / 1e9,
        "gflops_published": paper.gflops,
        "activation_bytes": sizes.activation_bytes,
    }


def published(name: str, recipe: "Recipe") -> "Published":
    """Return a shipped config's published figures, or empty ones if `recipe` has another model or objective."""
    from bertzoo.core import config as loader
    from bertzoo.planning.sizes import PUBLISHED, Published

    stem = Path(name).stem
    if stem in PUBLISHED:
        shipped = loader.load(config(), [loader.shipped()[stem]])
        if (shipped.model, shipped.objective) == (recipe.model, recipe.objective):
            return PUBLISHED[stem]
    return Published(paper="")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Format a JSON object of `measured` as a table row."""
    params = (row[f"params_{column}"] for column in ("encoder", "with_pooler", "pretraining", "published"))
    gflops = (row["gflops_128"], row["gflops_published"])
    return (
        row["name"],
        *("" if count is None else f"{count / 1e6:.1f} M" for count in params),
        *("" if count is None else f"{count:.2f}" for count in gflops),
        f"{row['activation_bytes'] / 2**20:.1f} MiB",
        row["paper"],
    )


def line(row: Sequence[str], width: int) -> str:
    """Return a row as a line whose first column has `width` characters.

    All widths are fixed in advance, because lines are printed before all rows are known.
    """
    widths = [max(len(head), len("1000.0 M")) for head in HEAD[1:-1]]
    return "  ".join([row[0].ljust(width), *map(str.rjust, row[1:-1], widths), row[-1]]).rstrip()
