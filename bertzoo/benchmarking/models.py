"""What is measured: a config's model, one out of a directory, or an exported file."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.benchmarking.sidecar import Described, described
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.models import Model
from bertzoo.models.tasks import SequenceClassification, parameter_shapes
from bertzoo.runs import any_model
from bertzoo.runs.kind import recipe_class

# What a model was pretrained with; the papers measure none of these, but a classifier.
BEFORE_A_TASK = ("none", "masked", "replaced")
DEVIATION = 0.02  # of random weights, on which no time depends as long as they stay finite


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model under a name, or an exported file with what is said of it."""

    name: str
    pretrained: Pretrained | None = None
    file: Path | None = None
    said: Described = field(default_factory=Described)


def read(name: str, overrides: Sequence[tuple[str, str]], suffixes: Sequence[str]) -> Subject:
    """What a name stands for: a file that ends in one of `suffixes`, a directory that holds a model, or a config with
    overrides, whose weights are then random.

    A model under no task's head becomes a classifier of two classes. Raises UserError.
    """
    path = Path(name)
    if path.suffix in suffixes:
        if not path.is_file():
            raise UserError(f"{name} is not a file; `bertzoo convert` writes one")
        return Subject(name=name, file=path, said=described(path))
    if path.is_dir():
        found = any_model.read_model(path)
        return Subject(name=name, pretrained=classifier(found) if found.head.kind in BEFORE_A_TASK else found)
    model = config.load(recipe_class(name), [name], overrides).model
    return Subject(name=name, pretrained=untrained(model, name))


def untrained(model: Model, name: str) -> Pretrained:
    """A model with random weights as a classifier of two classes."""
    bare = Pretrained(model=model, head=None, params={}, tokenizer=None, origin=name, source={"format": "random"})
    return classifier(bare)


def is_config(subject: Subject) -> bool:
    """Whether options of the config can have changed it."""
    return subject.pretrained is not None and subject.pretrained.source == {"format": "random"}


def classifier(pretrained: Pretrained) -> Pretrained:
    """The model under a classifier of two classes; the parameters that it lacks are random."""
    head = SequenceClassification()
    random = np.random.default_rng(0)

    def made(path: str, shape: tuple[int, ...]) -> np.ndarray:
        kept: Any = pretrained.params.get(path)
        if kept is not None and kept.shape == shape:
            return kept
        if path.endswith(("scale", "bias")):
            return np.full(shape, float(path.endswith("scale")), np.float32)
        return DEVIATION * random.standard_normal(shape, np.float32)

    params = {path: made(path, shape) for path, shape in parameter_shapes(pretrained.model, head).items()}
    return replace(pretrained, head=head, params=params, others={}, generator={})
