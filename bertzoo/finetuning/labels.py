"""A fine-tuned model's labels under those of a task."""

from collections.abc import Sequence
from dataclasses import replace

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.task_kind import Say
from bertzoo.tasks.task import Task

_OUTPUTS = tuple(f"{head}/output/{leaf}" for head in ("classifier", "token_classifier") for leaf in ("kernel", "bias"))


def relabelled(found: Pretrained, task: Task, origin: str, tell: Say) -> Pretrained:
    """The same model with its labels in the order of a task's; raises ConfigError where they are others.

    Labels may be spelt in any case and as the task's aliases. Those without a name (LABEL_0) are taken to be in that
    order, which is told.
    """
    labels, wanted = found.head.labels, task.labels
    if len(labels) != (len(wanted) or 1):
        raise ConfigError(f"{origin} has {len(labels)} labels, but {task.name} has {len(wanted) or 1}")
    if not wanted or labels == wanted:
        return found
    named = labels if set(labels) == set(wanted) else _spelt(labels, task)
    if set(named) == set(wanted):
        order = [named.index(label) for label in wanted]
        moved = {name: array[..., order] for name, array in found.params.items() if name in _OUTPUTS}
        return replace(found, params=found.params | moved, head=replace(found.head, labels=wanted))
    if not all(label.startswith("LABEL_") for label in labels):
        raise ConfigError(f"{origin} has the labels {', '.join(labels)}, but {task.name} has {', '.join(wanted)}")
    tell(
        f"{origin} calls its labels LABEL_0 and so on: they are taken by number to be {', '.join(wanted)}, which other"
        " code may have in another order"
    )
    return replace(found, head=replace(found.head, labels=wanted))


def _spelt(labels: Sequence[str], task: Task) -> list[str]:
    """The labels as a task spells them, and those that it does not have as they are."""
    known = {name.casefold(): label for name, label in task.aliases.items()}
    known |= {label.casefold(): label for label in task.labels}
    return [known.get(label.casefold(), label) for label in labels]
