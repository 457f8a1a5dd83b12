"""Fine-tune a model on a task, one run per seed.

Run the same command again to resume. --task is one of GLUE's (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli),
squad1 or squad2 (with the config finetune_squad), or `own`: your files, which the config describes in [own]. Every
seed's directory has the scores of each epoch and the best model. results.json has the median, lowest and highest score
over the seeds.

examples:
  bertzoo finetune finetune --task=cola --data_dir=glue/CoLA --from=runs/first --run_dir=runs/cola
  bertzoo finetune finetune --task=mrpc --data_dir=glue/MRPC --from=runs/mnli --run_dir=runs/mrpc --seeds=3 --epochs=5
  bertzoo finetune finetune_squad --task=squad1 --data_dir=squad --from=runs/first --run_dir=runs/squad1
"""

import json
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from bertzoo.api.options import Config, FinetuneOptions, config_field, recipe_of
from bertzoo.cli.support import json_field
from bertzoo.finetuning.kind import FINETUNE

if TYPE_CHECKING:
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.finetuning.task_kind import TaskKind

config = FINETUNE.config


@dataclass(frozen=True)
class FinetuneFlags(FinetuneOptions):
    config: Config = config_field()
    _: KW_ONLY
    json: bool = json_field("print results.json instead of a summary")


def task_of(options: FinetuneFlags, recipe: "Finetune") -> "TaskKind":
    """Return the task that the config names; raises the errors of `resolve_task` and `check_teacher`."""
    from bertzoo.finetuning.run import check_teacher, resolve_task

    task = resolve_task(recipe)
    check_teacher(recipe, task, options.teacher)
    return task


def check_models(options: FinetuneFlags, recipe: "Finetune", checked: set[Any]) -> None:
    """Raise UserError if the model or the teacher is missing, or if the model does not fit the task or max_length.

    checked: models and (model, task, max_length) combinations that earlier calls checked, to skip; this call adds those
    of `recipe`.
    """
    from bertzoo.finetuning.warm_start import load_starting_model
    from bertzoo.runs import load_model
    from bertzoo.runs.run_dir import RunDirectory

    origin = RunDirectory(options.run_dir).model_path("from", options.from_model)[0]
    for path in {origin, options.teacher} - {None, *checked}:
        load_model.check_model(path)
        checked.add(path)
    key = (origin, recipe.task, recipe.max_length)
    if key not in checked:
        load_starting_model(origin, recipe, task_of(options, recipe))
        checked.add(key)


def main(options: FinetuneFlags) -> int:
    from bertzoo.finetuning import run

    results = run.train(recipe_of(options), str(options.run_dir), options.from_model, options.teacher)
    print(json.dumps(results) if options.json else "\n".join(run.summary_lines(results)))
    return 0
