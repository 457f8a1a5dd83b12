"""Every shipped config's model: parameters, operations and memory, counted on the real module beside the published.

Parameters in millions: the encoder with its embeddings, that with the pooler, and all that is pretrained, with the
generator of replaced token detection where there is one. GFLOPs
(2 per multiply-add) and activations are those of one inference of 128 tokens in float32; activations are the most bytes
of values live at once that depend on the input, were nothing fused. What a paper prints of its model stands beside it
as long as the model and its objective are the shipped config's.

examples:
  bertzoo models
  bertzoo models squeezebert bert_base --json
  bertzoo models squeezebert --model.layers=6
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertzoo.planning.sizes import Published
    from bertzoo.runs.transfer_config import Recipe


def config() -> type:
    """The class of the configs."""
    from bertzoo.runs.pretrain_config import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument(
        "names", nargs="*", metavar="CONFIG", help="shipped configs or TOML files (default: all shipped)"
    )
    parser.add_argument("--json", action="store_true", help="a list of objects on standard output")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Count, and print every row of the table as soon as it is counted."""
    from bertzoo.core import config as loader
    from bertzoo.runs.kind import recipe_class, shipped

    names = args.names or shipped("pretrain")
    recipes = [loader.load(recipe_class(name), [name], overrides) for name in names]
    rows = (counted(name, recipe) for name, recipe in zip(names, recipes, strict=True))
    if args.json:
        print(json.dumps(list(rows)))
        return 0
    width = max(map(len, names))
    print(line(HEAD, width), flush=True)
    for row in rows:
        print(line(cells(row), width), flush=True)
    return 0


def counted(name: str, recipe: "Recipe") -> dict:
    """What is said of one config."""
    from bertzoo.planning.sizes import measure

    sizes, printed = measure(recipe.model, recipe.objective), published(name, recipe)
    return {
        "name": name,
        "paper": printed.paper,
        "params_encoder": sizes.params_encoder,
        "params_with_pooler": sizes.params_with_pooler,
        "params_pretraining": sizes.params_pretraining,
        "params_published": printed.params and round(printed.params * 1e6),
        "gflops_128": sizes.flops_128 / 1e9,
        "gflops_published": printed.gflops,
        "activation_bytes": sizes.activation_bytes,
    }


def published(name: str, recipe: "Recipe") -> "Published":
    """What is printed of the shipped config with this name, or of the file's, if its model and objective are the same.

    What is printed of a model is not printed of another that options or a file of one's own have made of it.
    """
    from bertzoo.core import config as loader
    from bertzoo.planning.sizes import PUBLISHED, Published

    stem = Path(name).stem
    if stem in PUBLISHED:
        shipped = loader.load(config(), [loader.shipped()[stem]])
        if (shipped.model, shipped.objective) == (recipe.model, recipe.objective):
            return PUBLISHED[stem]
    return Published(paper="")


HEAD = (
    "name",
    "encoder",
    "with_pooler",
    "pretraining",
    "published_params",
    "GFLOPs",
    "published_GFLOPs",
    "activations",
    "paper",
)


def cells(row: dict) -> tuple[str, ...]:
    """A row of the table for a person."""

    def millions(count: float | None) -> str:
        return "" if count is None else f"{count / 1e6:.1f} M"

    return (
        row["name"],
        *(millions(row[f"params_{what}"]) for what in ("encoder", "with_pooler", "pretraining", "published")),
        f"{row['gflops_128']:.2f}",
        "" if row["gflops_published"] is None else f"{row['gflops_published']:.2f}",
        f"{row['activation_bytes'] / 2**20:.1f} MiB",
        row["paper"],
    )


def line(row: Sequence[str], width: int) -> str:
    """A row under its head; the names are `width` wide, and no number is known before it is counted."""
    numbers = "  ".join(
        cell.rjust(max(len(head), len("1000.0 M"))) for cell, head in zip(row[1:-1], HEAD[1:-1], strict=True)
    )
    return f"{row[0].ljust(max(width, len(HEAD[0])))}  {numbers}  {row[-1]}".rstrip()
