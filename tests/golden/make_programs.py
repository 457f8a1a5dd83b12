"""The text of programs.json: a hash of the training step's StableHLO for every stage of every shipped config.

`python -m tests.golden` writes it.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from unittest import mock

import jax

from bertzoo.core import config
from bertzoo.core.kinds import config_class, shipped
from bertzoo.nn.products import RESULTS_VARIABLE
from bertzoo.planning import estimate
from bertzoo.runs.experiments import build_experiment

FILE = Path(__file__).with_name("programs.json")


def names() -> list[str]:
    """The shipped configs of one run."""
    return sorted(shipped("pretrain") + shipped("transfer"))


def hashes(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the hash of each planned stage, lowered for one device without locations.

    Products in bfloat16 have the form of TPUs and GPUs, whatever this processor would use.
    """
    with mock.patch.dict(os.environ, {RESULTS_VARIABLE: "bfloat16"}):
        yield from _hashes(name)


def _hashes(name: str) -> Iterator[tuple[str, str]]:
    recipe = config.load(config_class(name), [name])
    built = build_experiment(recipe)
    for index in estimate.planned_stages(recipe):
        program = built.lower(index).as_text()
        yield f"{name}/{index}", hashlib.sha256(program.encode()).hexdigest()[:16]


def text(changed: Collection[str] = ()) -> str:
    """The whole file; with `changed` the hashes of other configs are as they are recorded, if by the same jax."""
    before = json.loads(FILE.read_text(encoding="utf-8"))
    if not changed or before["jax"] != jax.__version__:
        before = {}
    programs = {"jax": jax.__version__}
    for name in names():
        recorded = {} if name in changed else {key: value for key, value in before.items() if key.split("/")[0] == name}
        programs |= recorded or dict(hashes(name))
    return json.dumps(programs, indent=1) + "\n"
