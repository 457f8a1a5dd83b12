"""List parameters, FLOPs and memory of every shipped model.

Three columns count parameters: the encoder with its embeddings, the same with the pooler, and all that is pretrained.
GFLOPs (2 per multiply-add) and activations are for one text of 128 tokens in float32. The column of activations shows
their peak memory without operator fusion.

examples:
  bertzoo models
  bertzoo models squeezebert bert_base --json
  bertzoo models squeezebert --model.layers=6
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from bertzoo.cli.config import config as config
from bertzoo.cli.support import json_field
from bertzoo.core.options import option

if TYPE_CHECKING:
    from bertzoo.runs.configs import Recipe

HEAD = ("name", "encoder", "with_pooler", "pretraining", "GFLOPs", "activations")


@dataclass(frozen=True)
class ModelsFlags:
    names: tuple[str, ...] = option("shipped configs or TOML files (default: all shipped)", (), metavar="CONFIG")
    _: KW_ONLY
    overrides: tuple[tuple[str, str], ...] = ()
    json: bool = json_field()


def main(options: ModelsFlags) -> int:
    from bertzoo.core import config as loader
    from bertzoo.core.kinds import config_class, shipped

    names = options.names or shipped("pretrain")
    recipes = [loader.load(config_class(name), [name], options.overrides) for name in names]
    rows = measure_models(names, recipes)
    if options.json:
        for index, row in enumerate(rows):
            print(f"{',' if index else '['}\n{json.dumps(row)}", end="", flush=True)
        print("\n]")
        return 0
    # A line is printed as soon as its row is measured, so the widths are fixed in advance.
    widths = [max(map(len, (*names, HEAD[0]))), *(max(len(head), len("1000.0 M")) for head in HEAD[1:])]
    form = f"{{:{widths[0]}}}" + "".join(f"  {{:>{width}}}" for width in widths[1:])
    print(form.format(*HEAD), flush=True)
    for row in rows:
        params = (f"{row[f'params_{column}'] / 1e6:.1f} M" for column in ("encoder", "with_pooler", "pretraining"))
        cells = row["name"], *params, f"{row['gflops_128']:.2f}", f"{row['activation_bytes'] / 2**20:.1f} MiB"
        print(form.format(*cells), flush=True)
    return 0


def measure_models(names: Sequence[str], recipes: Sequence["Recipe"]) -> Iterator[dict[str, Any]]:
    """Yield the sizes and FLOPs of each config as a JSON object; many configs share a model, which is traced once."""
    from bertzoo.planning.sizes import measure

    cache = {}
    for name, recipe in zip(names, recipes, strict=True):
        tables = recipe.model, recipe.objective
        sizes = cache[tables] = cache.get(tables) or measure(*tables)
        yield {
            "name": name,
            "params_encoder": sizes.params_encoder,
            "params_with_pooler": sizes.params_with_pooler,
            "params_pretraining": sizes.params_pretraining,
            "gflops_128": sizes.flops_128 / 1e9,
            "activation_bytes": sizes.activation_bytes,
        }
