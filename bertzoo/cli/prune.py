"""Prune a model to a budget (schuBERT); run the same command again to resume.

--from is the model that is pruned, which the config has as [model]: a run, one of its checkpoints, a model directory, a
Hugging Face directory or a TensorFlow 1 checkpoint, with the heads of [objective]. [target] is the budget, [cut] says
which dimensions may go, in how many iterations. In each, prune vectors are trained with the weights frozen ([weigh]),
the smallest go and the others are multiplied into the weights, which are then fine-tuned ([[tuning]]).

Every weighing and every fine-tuning is a run in RUN/iterations. In the end RUN/model is the model and RUN/pruned.toml
the config that trains it on; finetune, convert and predict take RUN itself.

examples:
  bertzoo prune demo_prune --from=runs/demo --run_dir=runs/pruned
  bertzoo prune prune_66m --from=runs/bert_base --data.source='text/*.txt.xz' --run_dir=runs/66m
  bertzoo report runs/66m
  bertzoo convert runs/66m 66m.tflite --to=litert
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertzoo.cli.support import training

if TYPE_CHECKING:
    from bertzoo.pruning.settings import Prune

CLOSE = 0.01  # of a budget, that may be left without a word


def config() -> type:
    """The class of the config."""
    from bertzoo.pruning.settings import Prune

    return Prune


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's flags."""
    training.arguments(parser)
    parser.add_argument(
        "--from",
        dest="origin",
        type=training.model_flag("--from"),
        metavar="MODEL",
        help="the model that is pruned; a run that is resumed knows where it was",
    )


def main(args: argparse.Namespace, overrides: Sequence[tuple[str, str]]) -> int:
    """Prune to the end, as one process or as one of several."""
    return training.main(args, overrides, config(), train)


def train(args: argparse.Namespace, recipe: "Prune") -> str:
    """Prune to the end and return what there is to say."""
    from bertzoo.pruning.run import prune
    from bertzoo.runs.prune_layout import format_amount as shown

    found = prune(recipe, args.run_dir, args.origin, training.options(args))
    unused = 1 - found.left / found.target
    wide = f" and {unused:.1%} below it, as what goes last is as large" if unused > CLOSE else ""
    return (
        f"finished: {shown(found.left, found.whole)} of {shown(found.whole, found.whole)} {recipe.target.unit}, within "
        f"the budget of {shown(found.target, found.whole)}{wide}, in {found.model}; next: bertzoo report {args.run_dir}"
    )
