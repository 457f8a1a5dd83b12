"""What a fine-tuning run starts from: another model without its heads, under the head of the task."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo.conversion import tensors
from bertzoo.core.errors import ConfigError
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Family
from bertzoo.models.tasks import NoHead, parameter_shapes
from bertzoo.runs import any_model
from bertzoo.runs.warm_start import pad_vocabulary
from bertzoo.train import state
from bertzoo.train.objective import Objective


@dataclass(frozen=True, kw_only=True)
class Begun:
    """model, head: configs; initial: by path, the parameters that are not drawn anew; record: for run.json; said: for a
    person, what is taken and what starts fresh.
    """

    model: Any
    head: Any
    objective: Objective
    initial: dict[str, np.ndarray]
    tokenizer: Tokenizer
    record: dict[str, Any]
    said: list[str]

    @property
    def parameters(self) -> int:
        """How many the model has, its head apart."""
        shapes = parameter_shapes(self.model, NoHead(pooler=self.head.pooler))
        return sum(math.prod(shape) for shape in shapes.values())


def begin(path: Path, recipe: Finetune, task: Family) -> Begun:
    """The model at `path` under a fresh head; raises UserError where that is no model, or not one for these rows."""
    found = any_model.read_model(path)
    if found.tokenizer is None:
        raise ConfigError(
            f"{path} holds no tokenizer, without which no text can be read: convert it with its vocabulary"
        )
    model = _model(found.model, recipe)
    if recipe.max_length > model.max_positions:
        raise ConfigError(
            f"max_length = {recipe.max_length} is longer than the {model.max_positions} positions of {path}"
        )
    head = task.head
    objective = task.objective(head.build(model, recipe.compute))
    shapes = state.shapes_of(objective)
    taken = [name for name in shapes if name in found.params and not name.startswith(HEADS)]
    fresh = sorted({name.split("/")[0] for name in shapes.keys() - set(taken)})
    if missing := [name for name in fresh if name in ("embedding", "encoder")]:
        raise ConfigError(f"{path} lacks parameters of its {missing[0]}")
    left = sorted({name.split("/")[0] for name in found.params} - {name.split("/")[0] for name in taken})
    said = [f"taken from {path}: {', '.join(dict.fromkeys(name.split('/')[0] for name in taken))}"]
    said.append(f"starting fresh: {', '.join(fresh)}")
    if left:
        said.append(f"left out: {', '.join(left)}")
    record: dict[str, Any] = {"path": str(path.resolve())}
    record["parameters_sha256"] = tensors.digest(found.params | found.generator)
    if "step" in found.source:
        record["step"] = found.source["step"]
    return Begun(
        model=model,
        head=head,
        objective=objective,
        initial={name: pad_vocabulary(found.params[name], shapes[name].shape) for name in taken},
        tokenizer=found.tokenizer,
        record=record,
        said=said,
    )


HEADS = (
    *("classifier/", "token_classifier/", "span_head/", "joint_span_head/"),
    *("masked_head/", "sentence_head/", "replaced_head/"),
)


def _model(model: Any, recipe: Finetune) -> Any:
    if recipe.encoder_dropout is None:
        return model
    return replace(model, dropout=recipe.encoder_dropout, attention_dropout=recipe.encoder_dropout)
