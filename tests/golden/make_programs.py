"""Writes programs.json: a hash of the training step's StableHLO for every stage of every shipped config.

usage: python tests/golden/make_programs.py

Run it after a change that is meant to change the compiled program, and say so in the commit.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import jax

from bertzoo.core import config
from bertzoo.planning import step
from bertzoo.runs.kind import recipe_class, shipped
from bertzoo.train import sharding

FILE = Path(__file__).with_name("programs.json")


def names() -> list[str]:
    """The shipped configs of one run."""
    return sorted(shipped("pretrain") + shipped("transfer"))


def hashes(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the hash of each planned stage, lowered for one device without locations."""
    recipe = config.load(recipe_class(name), [name])
    mesh = sharding.make_mesh(sharding.Mesh(data=1), jax.local_devices()[:1])
    for index in step.planned_stages(recipe):
        program = step.lower(recipe, index, mesh).as_text()
        yield f"{name}/{index}", hashlib.sha256(program.encode()).hexdigest()[:16]


if __name__ == "__main__":
    found = {"jax": jax.__version__} | {key: value for name in names() for key, value in hashes(name)}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
