"""Prune a model to a budget of parameters, FLOPs or milliseconds.

Run the same command again to resume. [target] is the budget, [cut] names the dimensions to cut and the number of
iterations. Each iteration trains prune vectors, one factor per element of a dimension, with the weights frozen
([weigh]). The iteration then cuts the elements with the smallest factors, multiplies the other factors into the weights
and fine-tunes the weights ([[tuning]]). RUN/model is the pruned model; the config RUN/pruned.toml trains it further.
Pass RUN itself to finetune, convert and predict.

examples:
  bertzoo prune demo_prune --from=runs/demo --run_dir=runs/pruned
  bertzoo prune prune_66m --from=runs/bert_base --data.source='text/*.txt.xz' --run_dir=runs/66m
  bertzoo convert runs/66m 66m.tflite --to=litert
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertzoo.api.options import PruneOptions
from bertzoo.cli.support import ProcessFlags, train_to_end
from bertzoo.core.errors import UserError
from bertzoo.pruning.layout import PRUNE

if TYPE_CHECKING:
    from bertzoo.pruning.settings import Prune

CLOSE = 0.01  # if more than this share of a budget is unused, the closing line explains it

config = PRUNE.config


@dataclass(frozen=True)
class PruneFlags(ProcessFlags, PruneOptions):
    """The command's flags."""


def main(options: PruneFlags) -> int:
    def train(recipe: Any, execution: Any) -> str:
        from bertzoo.pruning.layout import format_amount
        from bertzoo.pruning.run import prune

        result = prune(recipe, options.run_dir, options.from_model, execution)
        cost, whole, budget = (
            format_amount(amount, result.whole) for amount in (result.cost, result.whole, result.target)
        )
        unused = 1 - result.cost / result.target
        note = f" and {unused:.1%} below it, because the last elements can only be cut together"
        return (
            f"finished: {cost} of {whole} {recipe.target.unit}, within the budget of {budget}"
            f"{note if unused > CLOSE else ''}, in {result.model}; next: bertzoo report {options.run_dir}"
        )

    return train_to_end(options, train)


def check_models(options: PruneFlags, recipe: "Prune", checked: set[Any]) -> None:
    """Raise UserError if a sweep's run lacks its unpruned model or its text.

    checked: models and texts that earlier calls checked; this call adds those of `recipe`.
    """
    from bertzoo.data import pipeline
    from bertzoo.data.sources import pieces
    from bertzoo.runs import load_model

    if options.from_model is None:
        raise UserError("--from is missing. Name the model to prune.")
    data = recipe.data
    if options.from_model not in checked:
        load_model.check_model(options.from_model)
    if data.sources not in checked and not pipeline.is_corpus(data.source):
        pieces.check_sources(data.sources)
    checked |= {options.from_model, data.sources}
