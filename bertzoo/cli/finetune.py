"""Fine-tune a model on a task, several seeds one after another; run the same command again to resume.

The task is one of GLUE's (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli), squad1 or squad2 (SQuAD 1.1 and 2.0,
with the config finetune_squad), or `own`, whose files and columns the table [own] names. --from is a run, a model
directory, a Hugging Face directory, or another fine-tuning run: its head is left out and the task's starts fresh. With
--teacher, another fine-tuning run on the same task, a share 1 - alpha of what is learnt is what that says.

Every seed has a directory of its own with its scores after every epoch and the model of the best one; results.json has
the median, least and greatest score, and comes last.

examples:
  bertzoo finetune finetune --task=cola --data_dir=glue/CoLA --from=runs/first --run_dir=runs/cola
  bertzoo finetune finetune --task=mrpc --data_dir=glue/MRPC --from=runs/mnli --run_dir=runs/mrpc --seeds=3 --epochs=5
  bertzoo finetune finetune_squad --task=squad1 --data_dir=squad --from=runs/first --run_dir=runs/squad1
  bertzoo results runs/cola
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support import training
from bertzoo.cli.support.options import say

if TYPE_CHECKING:
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.finetuning.task_kind import Family


def config() -> type:
    """The class of the config."""
    from bertzoo.finetuning.settings import Finetune

    return Finetune


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="where everything of the run goes")
    parser.add_argument(
        "--from",
        dest="origin",
        type=training.model_flag("--from"),
        metavar="MODEL",
        help="the model that is fine-tuned; a run that is resumed knows where it was",
    )
    parser.add_argument(
        "--teacher",
        type=training.model_flag("--teacher"),
        metavar="RUN",
        help="a fine-tuning run that teaches this one",
    )
    parser.add_argument("--json", action="store_true", help="results.json on standard output too")


def task_of(args: argparse.Namespace, recipe: "Finetune") -> "Family":
    """The task of a run, whose options and teacher it can have; raises ConfigError as `main` would."""
    from bertzoo.finetuning.families import family_of
    from bertzoo.finetuning.run import check_teacher

    task = family_of(recipe)
    check_teacher(recipe, task, args.teacher)
    return task


def check_models(args: argparse.Namespace, recipe: "Finetune", seen: set[Any]) -> None:
    """Raise as `main` would where the model or the teacher is missing, or the model does not go with task and length.

    seen: what has been looked at already, to which this is added.
    """
    from bertzoo.finetuning.run_dir import model_of
    from bertzoo.finetuning.warm_start import begin
    from bertzoo.runs import any_model
    from bertzoo.runs.run_dir import RunDirectory

    origin = model_of(RunDirectory(args.run_dir), "from", args.origin)
    for path in {origin, args.teacher} - {None, *seen}:
        any_model.check_model(path)
        seen.add(path)
    together = (origin, recipe.task, recipe.max_length)
    if together not in seen:
        begin(origin, recipe, task_of(args, recipe))
        seen.add(together)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train all seeds, and print what they came to."""
    from bertzoo.core import config as loader
    from bertzoo.finetuning import run
    from bertzoo.finetuning.settings import Finetune

    recipe = loader.load(Finetune, args.files, overrides)
    found = run.train(recipe, args.run_dir, args.origin, args.teacher, say)
    print(run.as_json(found) if args.json else "\n".join(run.lines(found)))
    return 0
