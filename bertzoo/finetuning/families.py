"""The task that a config names, with what its kind decides."""

from bertzoo.core.errors import ConfigError
from bertzoo.finetuning.classification import Labelled
from bertzoo.finetuning.question_answering import Span
from bertzoo.finetuning.settings import Finetune
from bertzoo.finetuning.task_kind import Family, changed
from bertzoo.tasks import custom_questions
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.squad_tasks import SQUAD

OWN = "own"
NAMES = (*(name for name, task in GLUE.items() if task.train), *SQUAD, OWN)  # what can be learnt


def family_of(recipe: Finetune) -> Family:
    """The task of a config; raises ConfigError where there is none of that name, and for options that it lacks."""
    name = recipe.task
    if not name:
        raise ConfigError(f"no task is named; give --task with one of {', '.join(NAMES)}")
    if name not in NAMES and name not in GLUE:
        raise ConfigError(f"task = {name!r} is unknown; the tasks are {', '.join(NAMES)}")
    if name == OWN:
        own = recipe.own
        return (
            Span(recipe, custom_questions.task(own))
            if own.kind == "span"
            else Labelled(recipe, own.task(recipe.data_dir))
        )
    if strange := changed(recipe.own):
        raise ConfigError(f"own.{strange} is for task = own, and task = {name} has files of its own: leave it out")
    return Span(recipe, SQUAD[name]) if name in SQUAD else Labelled(recipe, GLUE[name])
