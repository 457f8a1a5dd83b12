"""What a fine-tuned model says of the examples that another is to learn."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from bertzoo.conversion import tensors
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.labels import relabelled
from bertzoo.finetuning.scoring import Predictor
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Say
from bertzoo.models.parts import padding_seen
from bertzoo.models.tasks import SequenceClassification
from bertzoo.objectives.labelled import LabelledObjective
from bertzoo.runs import any_model
from bertzoo.tasks.encode import encode
from bertzoo.tasks.rows import bucket_lengths
from bertzoo.tasks.task import Example, Task


def logits(
    path: Path, recipe: Finetune, task: Task, examples: Sequence[Example], mesh: jax.sharding.Mesh, tell: Say
) -> tuple[np.ndarray, dict[str, str]]:
    """(N,C) of the teacher's logits, a regression's as the student's numbers are scaled, and its record for run.json.

    The teacher reads the texts by its own tokenizer; `tell` hears where its labels are taken by number. Raises
    ConfigError where it is not one of this task.
    """
    found = any_model.read_model(path)
    tokenizer = found.tokenizer
    if not isinstance(found.head, SequenceClassification) or tokenizer is None:
        lacks = "no tokenizer" if isinstance(found.head, SequenceClassification) else "no head of classes"
        raise ConfigError(f"--teacher={path} has {lacks}: give one fine-tuned on {task.name}")
    record = {"path": str(path.resolve()), "parameters_sha256": tensors.digest(found.params)}
    found = relabelled(found, task, f"--teacher={path}", tell)
    module, params = found.module()
    longest = min(recipe.max_length, found.model.max_positions)
    rows = encode(examples, tokenizer, longest, task.kind, padding_seen(found.model))
    objective = LabelledObjective(model=module, numbers=task.kind == "regression")
    predictor = Predictor(lambda params, batch: objective.logits(params, batch, None), mesh, recipe.batch_size)
    slots, said = predictor(params, rows, bucket_lengths([rows], recipe.buckets, longest), 1.0)
    scale = float(found.source.get("scale", 1.0)) / recipe.scale
    return rows.restore(slots, said) * np.float32(scale), record
