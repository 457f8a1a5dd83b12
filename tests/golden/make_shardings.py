"""The text of shardings.txt: where every parameter of every shipped config goes on three meshes.

`python -m tests.golden` writes it.
"""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import jax
from flax import linen as nn

from bertzoo.core import config
from bertzoo.core.kinds import config_class, kind_of_files
from bertzoo.runs import experiments
from bertzoo.runs.configs import Transfer
from bertzoo.train import sharding
from bertzoo.train.state import boxed_shapes, name_of

MODELLESS = ("finetune", "prune")  # whose model is another's, or one of theirs
FILE = Path(__file__).with_name("shardings.txt")
AXES = ("data", "fsdp", "tensor")
MESHES = ((4, 2, 1), (2, 2, 2), (1, 8, 1))
HEAD = f"""\
The mesh axis that splits each dimension (. none, ! after a fallback) on the meshes {", ".join(map(str, MESHES))} of
({", ".join(AXES)}); layers that are placed alike share a line.
"""


def names() -> list[str]:
    """The shipped configs with a model."""
    return [name for name in config.shipped() if kind_of_files(name).name not in MODELLESS]


def recorded() -> dict[str, str]:
    """The block of lines of each config in the file."""
    return dict(block.strip("\n").split("\n", 1) for block in FILE.read_text(encoding="utf-8").split("\n\n")[1:])


def text(changed: Collection[str] = ()) -> str:
    """The whole file; with `changed` the blocks of other configs are as they are recorded."""
    before = {name: block for name, block in recorded().items() if changed and name not in changed}
    blocks = {name: before.get(name) or "\n".join(f"  {line}" for line in table(name)) for name in names()}
    return HEAD + "".join(f"\n{name}\n{block}\n" for name, block in blocks.items())


def table(name: str) -> Iterator[str]:
    """The lines of one shipped config."""
    recipe = config.load(config_class(name), [name])
    boxed = boxed_shapes(experiments.build_setups(recipe)[0].objective)
    if isinstance(recipe, Transfer):
        boxed = {**boxed, "teacher": experiments.teacher_of(recipe).shapes()}
    leaves = jax.tree.leaves_with_path(boxed, is_leaf=lambda leaf: isinstance(leaf, nn.meta.AxisMetadata))
    alike: dict[tuple[str, str], list[int]] = {}
    for path, leaf in leaves:
        where, shape, columns = name_of(path), leaf.unbox().shape, []
        for mesh in MESHES:
            placed = sharding.place(where, shape, leaf.names, jax.sharding.AbstractMesh(mesh, AXES))
            columns.append(" ".join(axis or "." for axis in placed.spec) + " !" * bool(placed.taken))
        layer = re.search(r"layers_(\d+)", where)
        key = re.sub(r"layers_\d+", "layers_*", where), f"{shape}: {' | '.join(columns)}"
        alike.setdefault(key, []).extend([int(layer[1])] if layer else [])
    for (where, rest), layers in alike.items():
        yield f"{where.replace('*', ranges(layers))} {rest}"


def ranges(numbers: list[int]) -> str:
    """Such as 0-3,5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
