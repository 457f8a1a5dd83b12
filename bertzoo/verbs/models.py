"""Every shipped config's model: parameters, operations and memory, counted on the real module beside the published.

Parameters in millions: the encoder with its embeddings, that with the pooler, and the whole pretraining model. GFLOPs
(2 per multiply-add) and activations are those of one inference of 128 tokens in float32; activations are the most bytes
of values live at once that depend on the input, were nothing fused.

examples:
  bertzoo models
  bertzoo models squeezebert bert_base --json
  bertzoo models mobilebert --model.feed_forwards=2
"""

import argparse
import json
from collections.abc import Sequence


def config() -> type:
    """The class of the config."""
    from bertzoo.recipe import Pretrain

    return Pretrain


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument(
        "names", nargs="*", metavar="CONFIG", help="shipped configs or TOML files (default: all shipped)"
    )
    parser.add_argument("--json", action="store_true", help="a list of objects on standard output")


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Count and print."""
    from bertzoo import config as loader
    from bertzoo.sizes import PUBLISHED, Published, measure

    rows = []
    for name in args.names or loader.shipped():
        recipe = loader.load(config(), [name], overrides)
        sizes = measure(recipe.model, recipe.objective.sentence != "none")
        # What a paper prints is not said of a model that options have changed.
        published = Published(paper="") if overrides else PUBLISHED.get(name, Published(paper=""))
        rows.append(
            {
                "name": name,
                "paper": published.paper,
                "params_encoder": sizes.params_encoder,
                "params_with_pooler": sizes.params_with_pooler,
                "params_pretraining": sizes.params_pretraining,
                "params_published": published.params and round(published.params * 1e6),
                "gflops_128": sizes.flops_128 / 1e9,
                "gflops_published": published.gflops,
                "activation_bytes": sizes.activation_bytes,
            }
        )
    if args.json:
        print(json.dumps(rows))
    else:
        show(rows)
    return 0


def show(rows: Sequence[dict]) -> None:
    """Print the table for a person."""

    def millions(count: float | None) -> str:
        return "" if count is None else f"{count / 1e6:.1f} M"

    head = ("name", "encoder", "with pooler", "pretraining", "published", "GFLOPs", "published", "activations", "paper")
    table = [
        (
            row["name"],
            *(millions(row[f"params_{what}"]) for what in ("encoder", "with_pooler", "pretraining", "published")),
            f"{row['gflops_128']:.2f}",
            "" if row["gflops_published"] is None else f"{row['gflops_published']:.2f}",
            f"{row['activation_bytes'] / 2**20:.1f} MiB",
            row["paper"],
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *table, strict=True)]
    for row in (head, *table):
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
        print(f"{row[0].ljust(widths[0])}  {numbers}  {row[-1]}".rstrip())
