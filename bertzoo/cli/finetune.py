"""Fine-tune a model on a task, several seeds one after another; run the same command again to resume.

The task is one of GLUE's (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli), squad1 or squad2 (SQuAD 1.1 and 2.0,
with the config finetune_squad), or `own`, whose files and columns the table [own] names. --from is a run, a model
directory, a Hugging Face directory, or another fine-tuning run; its head is replaced by a fresh one. With --teacher,
another fine-tuning run on the same task, the loss is alpha on the labels plus 1 - alpha on the teacher's predictions.

Every seed has a directory with its scores by epoch and the model of the best one; results.json has the median, lowest
and highest score, and is written last.

examples:
  bertzoo finetune finetune --task=cola --data_dir=glue/CoLA --from=runs/first --run_dir=runs/cola
  bertzoo finetune finetune --task=mrpc --data_dir=glue/MRPC --from=runs/mnli --run_dir=runs/mrpc --seeds=3 --epochs=5
  bertzoo finetune finetune_squad --task=squad1 --data_dir=squad --from=runs/first --run_dir=runs/squad1
  bertzoo results runs/cola
"""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bertzoo.cli.support import training
from bertzoo.cli.support.options import say

if TYPE_CHECKING:
    from bertzoo.finetuning.settings import Finetune
    from bertzoo.finetuning.task_kind import TaskKind


def config() -> type:
    """The class of the config."""
    from bertzoo.finetuning.settings import Finetune

    return Finetune


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's flags."""
    parser.add_argument("files", nargs="+", metavar="CONFIG", help="a TOML file or the name of a shipped config")
    parser.add_argument("--run_dir", required=True, metavar="RUN", help="the run's directory")
    training.model_option(parser, "--from", "the model to fine-tune; a resumed run has recorded it")
    training.model_option(parser, "--teacher", "a fine-tuning run whose predictions to learn")
    parser.add_argument("--json", action="store_true", help="print results.json, too")


def task_of(args: argparse.Namespace, recipe: "Finetune") -> "TaskKind":
    """The task of a run; raises ConfigError as `main` does if its options or its teacher do not apply."""
    from bertzoo.finetuning.run import check_teacher, resolve_task

    task = resolve_task(recipe)
    check_teacher(recipe, task, args.teacher)
    return task


def check_models(args: argparse.Namespace, recipe: "Finetune", seen: set[Any]) -> None:
    """Raise as `main` does if the model or the teacher is missing, or the model does not fit the task and the length.

    seen: the checks that have passed; this adds to it.
    """
    from bertzoo.finetuning.run_dir import model_of
    from bertzoo.finetuning.warm_start import load_starting_model
    from bertzoo.runs import any_model
    from bertzoo.runs.run_dir import RunDirectory

    origin = model_of(RunDirectory(args.run_dir), "from", args.origin)
    for path in {origin, args.teacher} - {None, *seen}:
        any_model.check_model(path)
        seen.add(path)
    key = (origin, recipe.task, recipe.max_length)
    if key not in seen:
        load_starting_model(origin, recipe, task_of(args, recipe))
        seen.add(key)


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Train all seeds and print their results."""
    from bertzoo.core import config as loader
    from bertzoo.finetuning import run
    from bertzoo.finetuning.settings import Finetune

    recipe = loader.load(Finetune, args.files, overrides)
    results = run.train(recipe, args.run_dir, args.origin, args.teacher, say)
    print(json.dumps(results) if args.json else "\n".join(run.summary_lines(results)))
    return 0
