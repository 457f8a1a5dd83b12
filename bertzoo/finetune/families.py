"""The task that a config names, with what its kind decides."""

from bertzoo.errors import ConfigError
from bertzoo.finetune.family import Family
from bertzoo.finetune.labelled import Labelled
from bertzoo.finetune.settings import Finetune
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.task import Task


def family_of(recipe: Finetune) -> Family:
    """The task of a config; raises ConfigError where there is none of that name, and for options that it lacks."""
    return Labelled(recipe, task_of(recipe))


def task_of(recipe: Finetune) -> Task:
    """The task of labels that a config names; raises ConfigError where there is none of that name."""
    if not recipe.task:
        raise ConfigError(f"no task is named; give --task with one of {', '.join(GLUE)} or own")
    if recipe.task == "own":
        return recipe.own.task(recipe.data_dir)
    if recipe.task not in GLUE:
        raise ConfigError(f"task = {recipe.task!r} is unknown; the tasks are {', '.join(GLUE)} and own")
    return GLUE[recipe.task]
