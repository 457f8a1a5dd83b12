"""A fine-tuned model's labels under those of a task."""

from dataclasses import replace

from bertzoo.convert.pretrained import Pretrained
from bertzoo.errors import ConfigError
from bertzoo.tasks.task import Task

_OUTPUTS = tuple(f"{head}/output/{leaf}" for head in ("classifier", "token_classifier") for leaf in ("kernel", "bias"))


def relabelled(found: Pretrained, task: Task, origin: str) -> Pretrained:
    """The same model with its labels in the order of a task's; raises ConfigError where they are others.

    Labels without a name (LABEL_0) are taken to be in that order.
    """
    labels, wanted = found.head.labels, task.labels
    if len(labels) != (len(wanted) or 1):
        raise ConfigError(f"{origin} has {len(labels)} labels, but {task.name} has {len(wanted) or 1}")
    if not wanted or labels == wanted:
        return found
    if set(labels) == set(wanted):
        order = [labels.index(label) for label in wanted]
        moved = {name: array[..., order] for name, array in found.params.items() if name in _OUTPUTS}
        return replace(found, params=found.params | moved, head=replace(found.head, labels=wanted))
    if not all(label.startswith("LABEL_") for label in labels):
        raise ConfigError(f"{origin} has the labels {', '.join(labels)}, but {task.name} has {', '.join(wanted)}")
    return replace(found, head=replace(found.head, labels=wanted))
