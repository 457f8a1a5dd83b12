"""Reorder a fine-tuned model's outputs to a task's label order, and compute a teacher's logits as soft labels."""

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np

from bertzoo.conversion import tensors
from bertzoo.conversion.pretrained import Pretrained, source_number
from bertzoo.core.errors import ConfigError
from bertzoo.core.paths import Location, resolve_name
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Say
from bertzoo.heads import SequenceClassification
from bertzoo.heads.labels import LabelledObjective
from bertzoo.models.parts import padding_seen
from bertzoo.runs import load_model
from bertzoo.runs.runner import FlaxRunner
from bertzoo.tasks.encode import encode
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.task import Example, Task


def relabel(model: Pretrained, task: Task, origin: str, tell: Say) -> Pretrained:
    """Return the model with its outputs in the order of the task's labels; raises ConfigError if the labels differ.

    Case is ignored, and the task's aliases count as labels. Labels without a name (LABEL_0) are assumed to be in the
    task's order, and `tell` reports this. origin: the model's name in messages.
    """
    if (order := label_order(model.head.labels, task, origin, tell)) is None:
        return model
    names = {f"{part}/output/{leaf}" for part in model.head.parameters for leaf in ("kernel", "bias")}
    moved = {name: array[..., order] for name, array in model.params.items() if name in names}
    if model.params and not moved:  # the model of an exported file has no parameters
        raise TypeError(
            f"the labels of {origin} cannot be reordered: its head {model.head.kind} has none of the parameters "
            f"{', '.join(sorted(names))}. Name the head's output layer `output`, and its path in `parameters`."
        )
    return replace(model, params=model.params | moved, head=replace(model.head, labels=task.labels))


def name_classes(model: Pretrained) -> Pretrained:
    """Return the model with class names for GLUE's labels, such as "positive" for SST-2's label 1.

    A model that does not record a task of GLUE, or has other labels, is returned unchanged.
    """
    task = GLUE.get(model.source.get("task", ""))
    if task is None or getattr(model.head, "labels", ()) != task.labels:
        return model
    return replace(model, head=replace(model.head, labels=task.class_names))


def label_order(labels: tuple[str, ...], task: Task, origin: str, tell: Say) -> list[int] | None:
    """Return, for each label of the task, its index in a model's `labels`; None if nothing must be reordered.

    Matches labels, calls `tell` and raises ConfigError as `relabel` does.
    """
    expected = task.labels
    if len(labels) != (len(expected) or 1):
        raise ConfigError(
            f"{origin} has {len(labels)} labels, but {task.name} has {len(expected) or 1}. Use a model of this task."
        )
    if not expected or labels == expected:
        return None
    known = {name.casefold(): label for name, label in task.aliases.items()}
    known |= {label.casefold(): label for label in expected}
    names = labels if set(labels) == set(expected) else [known.get(label.casefold(), label) for label in labels]
    if set(names) == set(expected):
        return [names.index(label) for label in expected]
    if not all(label.startswith("LABEL_") for label in labels):
        raise ConfigError(
            f"{origin} has the labels {', '.join(labels)}, but {task.name} has {', '.join(expected)}. Use a model of "
            "this task."
        )
    tell(
        f"{origin} names its labels LABEL_0 and so on; they are read as {', '.join(expected)}. Check this order with "
        "the model's author."
    )
    return list(range(len(labels)))


def teacher_logits(
    path: Location, recipe: Finetune, task: Task, examples: Sequence[Example], mesh: jax.sharding.Mesh, tell: Say
) -> tuple[np.ndarray, dict[str, str]]:
    """Return the teacher's logits (examples, labels), and the teacher's path and parameter hash for run.json.

    A regression's logits are rescaled to the `scale` of `recipe`, the student's config. The teacher uses its own
    tokenizer. Raises ConfigError if the teacher lacks a tokenizer or the task's labels, or if only one of teacher and
    task allows several labels of a text.
    """
    model = load_model.read_model(path, tell)
    tokenizer = model.tokenizer
    if not isinstance(model.head, SequenceClassification) or tokenizer is None:
        lacks = "tokenizer" if isinstance(model.head, SequenceClassification) else "head for classes"
        raise ConfigError(f"--teacher={path} has no {lacks}. Use a model fine-tuned on {task.name}.")
    several = model.head.task_kind == "multi_label"
    if several != (task.kind == "multi_label"):
        number = ("one label", "any number of labels")
        raise ConfigError(
            f"--teacher={path} predicts {number[several]} per text, but {task.name} has {number[not several]} per "
            f"text. Use a model fine-tuned on {task.name}."
        )
    record = {"path": resolve_name(path), "parameters_sha256": tensors.digest(model.params)}
    model = relabel(model, task, f"--teacher={path}", tell)
    module, params = model.module()
    longest = min(recipe.max_length, model.model.max_positions)
    rows = encode(examples, tokenizer, longest, task.kind, padding_seen(model.model))
    predict = LabelledObjective(module).predict
    lengths = bucket_lengths([rows], recipe.buckets, longest)
    slots, outputs = FlaxRunner(predict, params, mesh, recipe.batch_size, lengths).run_all(rows)
    scale = source_number(model.source, "scale", 1.0) / recipe.scale
    return rows.restore(slots, [output["logits"] for output in outputs]) * np.float32(scale), record
