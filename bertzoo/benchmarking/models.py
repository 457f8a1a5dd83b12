"""The models to time: configs with random weights, models in directories, and exported files; their files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.benchmarking.options import BACKEND_NAMES
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config
from bertzoo.core.errors import UserError
from bertzoo.core.kinds import config_class
from bertzoo.core.memory import check_available
from bertzoo.export.companions import check_takes_ids, read_metadata
from bertzoo.export.formats import FileSettings, Target, flops_by_signature
from bertzoo.export.graph.reference import training_graph
from bertzoo.export.options import SUFFIXES, Precision
from bertzoo.heads import SequenceClassification, parameter_shapes
from bertzoo.models import Model
from bertzoo.runs import load_model

BACKENDS = {SUFFIXES[name]: name for name in BACKEND_NAMES}  # by the suffix of the files that they run


@dataclass(frozen=True, kw_only=True)
class BenchmarkModel:
    """A model to time: `pretrained`, or an exported `file` with the content of its metadata JSON, {} if it has none."""

    name: str
    pretrained: Pretrained | None = None
    file: Path | None = None
    description: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_bert_base(self) -> bool:
        """Whether the model is a BERT of BERT-base's sizes."""
        model = self.pretrained and self.pretrained.model
        if model is None or model.kind != "bert":
            return False
        return (model.layers, model.hidden_size, model.heads, model.feed_forward_size) == (12, 768, 12, 3072)


def read_model(name: str, overrides: Sequence[tuple[str, str]] = ()) -> BenchmarkModel:
    """Read an exported file, a model directory, or a config with overrides and random weights.

    A model with a pretraining head, or without a head, becomes a classifier of two classes. Raises UserError if `name`
    is none of the three, the file's metadata JSON is damaged or belongs to another file, or the file takes texts.
    """
    path = Path(name)
    if path.suffix in BACKENDS:
        if not path.is_file():
            raise UserError(f"{name} does not exist. Write it with `bertzoo convert`.")
        description = read_metadata(path, "inputs", "precision", "head") or {}
        check_takes_ids(path, description.get("format"))
        return BenchmarkModel(name=name, file=path, description=description)
    if path.is_dir():
        pretrained = load_model.read_model(path)
        if not pretrained.head.task_kind:  # a classifier takes its place, which the papers time
            pretrained = classifier(pretrained)
        return BenchmarkModel(name=name, pretrained=pretrained)
    model = config.load(config_class(name), [name], overrides).model
    return BenchmarkModel(name=name, pretrained=untrained(model, name))


def check_overrides(overrides: Sequence[tuple[str, str]], models: Sequence[BenchmarkModel]) -> None:
    """Raise UserError if there are overrides, but no model comes from a config."""
    if overrides and not any(model.pretrained and model.pretrained.source == {"format": "random"} for model in models):
        names = ", ".join(model.name for model in models)
        raise UserError(
            f"--{overrides[0][0]} applies to configs, but no MODEL is one: {names}. Name one, or leave it out."
        )


def untrained(model: Model, name: str) -> Pretrained:
    """Return a model with random weights and a classification head of two classes."""
    bare = Pretrained(model=model, head=None, params={}, tokenizer=None, origin=name, source={"format": "random"})
    return classifier(bare)


def classifier(pretrained: Pretrained) -> Pretrained:
    """Return the model with a classification head of two classes; parameters that the model lacks are random."""
    head = SequenceClassification()
    random = np.random.default_rng(0)

    def parameter(path: str, shape: tuple[int, ...]) -> np.ndarray:
        array = pretrained.params.get(path)
        if array is not None and array.shape == shape:
            return array
        if path.endswith(("scale", "bias")):
            return np.full(shape, float(path.endswith("scale")), np.float32)
        return 0.02 * random.standard_normal(shape, np.float32)  # times do not depend on it

    shapes = parameter_shapes(pretrained.model, head)
    check_available(sum(4 * math.prod(shape) for shape in shapes.values()), f"the model of {pretrained.origin}")
    params = {path: parameter(path, shape) for path, shape in shapes.items()}
    return replace(pretrained, head=head, params=params, generator=None, unused={})


def write_timed(
    target: Target, pretrained: Pretrained, file: Path, lengths: Sequence[int], precision: Precision
) -> dict[str, Any]:
    """Write a file for rows of `lengths` tokens; return the entries of its metadata JSON that a benchmark reads."""
    graph = training_graph(pretrained)
    facts = target.make(pretrained, graph, FileSettings(lengths=tuple(lengths), precision=precision), file)
    model = pretrained.model
    return {
        "precision": precision,
        "parameters": pretrained.parameter_count,
        "model": {"vocab_size": model.vocab_size, "max_positions": model.max_positions},
        "head": {"kind": pretrained.head.kind},
        "inputs": list(graph.inputs),
        "flops": facts.get("flops") or flops_by_signature(graph, lengths),
    }
