"""What a fine-tuned model says of the examples that another is to learn."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from bertzoo.convert import directory, tensors
from bertzoo.errors import ConfigError
from bertzoo.finetune.judge import Predictor
from bertzoo.finetune.settings import Finetune
from bertzoo.models.tasks import SequenceClassification
from bertzoo.objectives.labelled import LabelledObjective
from bertzoo.tasks.encode import encode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.task import Example, Task


def logits(
    path: Path, recipe: Finetune, task: Task, examples: Sequence[Example], mesh: jax.sharding.Mesh
) -> tuple[np.ndarray, dict[str, str]]:
    """(N,C) of the teacher's logits, a regression's as the student's numbers are scaled, and its record for run.json.

    The teacher reads the texts by its own tokenizer. Raises ConfigError where it is not one of this task.
    """
    found = directory.read(path)
    wanted = len(task.labels) or 1
    labels = getattr(found.head, "labels", ())
    if not isinstance(found.head, SequenceClassification) or len(labels) != wanted or found.tokenizer is None:
        has = f"{len(labels)} labels" if labels else "no head of classes"
        raise ConfigError(
            f"--teacher={path} has {has}, but {task.name} has {wanted}; give one fine-tuned on {task.name}"
        )
    if task.labels and set(labels) == set(task.labels):
        order = [labels.index(label) for label in task.labels]
    elif task.labels and not all(label.startswith("LABEL_") for label in labels):
        raise ConfigError(
            f"--teacher={path} has the labels {', '.join(labels)}, but {task.name} has {', '.join(task.labels)}"
        )
    else:
        order = list(range(wanted))
    module, params = found.module()
    longest = min(recipe.max_length, found.model.max_positions)
    rows = encode(examples, found.tokenizer, longest, task.kind)
    objective = LabelledObjective(model=module, numbers=task.kind == "regression")
    predictor = Predictor(lambda params, batch: objective.logits(params, batch, None), mesh, recipe.batch_size)
    slots, said = predictor(params, rows, bucket_lengths([rows], recipe.buckets, longest), 1.0)
    scale = float(found.source.get("scale", 1.0)) / recipe.scale
    record = {"path": str(path.resolve()), "parameters_sha256": tensors.digest(found.params)}
    return rows.restore(slots, said)[:, order] * np.float32(scale), record
