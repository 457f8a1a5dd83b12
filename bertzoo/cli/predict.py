"""Fill the blanks of a sentence, or label texts with a fine-tuned model.

MODEL is a run (a fine-tuning run's best seed), RUN/seed-N, RUN/checkpoints/STEP, a model or Hugging Face directory, or
a file that `bertzoo convert` wrote. The model's head decides the prediction: tokens for each [MASK], a label with its
probability, all labels above 50 %, a number, a tag for every word, entities with their start and end, or the answer to
a question. For a task on pairs, two TEXTs, or one line with a tab, make one pair. Entities and answers are found in
texts of any length; other texts are cut to the row length of training, and the command prints how many.

examples:
  bertzoo predict runs/demo 'This function returns the [MASK] of the array.'
  bertzoo predict runs/mrpc --input=pairs.csv --text_a=first --text_b=second --output=labels.tsv
  bertzoo predict runs/squad1 --question='Who was it?' --context='It was Ada, as they say.'
"""

import json
import sys
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from bertzoo.api.options import PredictOptions, finetuned
from bertzoo.cli.support import finetuned as tasks
from bertzoo.cli.support.options import json_field
from bertzoo.core.options import option, reject

if TYPE_CHECKING:
    from bertzoo.runs.blanks import BlankFiller

TASK_FLAGS = ("task", "data_dir", "input", "text_a", "text_b", "split", "pair", "output", "question", "context")


@dataclass(frozen=True)
class PredictFlags(PredictOptions):
    """The command's flags."""

    texts: tuple[str, ...] = option("the texts (default: lines of standard input)", (), metavar="TEXT")
    _: KW_ONLY
    task: str | None = finetuned("the task (default: the task that the model records)", None, metavar="NAME")
    data_dir: str | None = finetuned("the directory of the task's files (default: as in training)", None, metavar="DIR")
    input: str | None = finetuned(
        "texts in a TSV, CSV, JSONL, Parquet or CoNLL file, or SQuAD's JSON (default: the TEXTs)", None, metavar="FILE"
    )
    text_a: str | None = finetuned(
        "the column of the text or question (default: own.text_a or own.question in the run's config)",
        None,
        metavar="COLUMN",
    )
    text_b: str | None = finetuned(
        "the column of the second text or paragraph (default: own.text_b or own.context in the run's config)",
        None,
        metavar="COLUMN",
    )
    split: str | None = finetuned("predict the task's train, dev or test set (default: none)", None, metavar="SPLIT")
    question: str | None = finetuned("a question about --context (default: none)", None, metavar="TEXT")
    context: str | None = finetuned("the text with the answer to --question (default: none)", None, metavar="TEXT")
    pair: bool = finetuned("read pairs of texts, if the model does not record its task", False)
    output: str | None = option(
        "a .jsonl, .tsv or, for questions, .json file to write (default: print)", None, group="output", metavar="FILE"
    )
    json: bool = json_field("print JSON; for a fine-tuned model, one line per text")


def main(options: PredictFlags) -> int:
    """Print the most likely tokens of every blank, or a fine-tuned model's predictions."""
    from bertzoo.api.models import open_predictor
    from bertzoo.export.file_model import is_pretraining
    from bertzoo.runs.blanks import BlankFiller
    from bertzoo.train.step import keep_programs

    keep_programs()
    suffix = "" if is_pretraining(options.path) else tasks.output_suffix(options)  # raises before any prediction
    model = open_predictor(options, TASK_FLAGS)
    if isinstance(model, BlankFiller):
        return _fill(options, model)
    reject(options, ("top",), f"{options.path}, which is a fine-tuned model")
    return tasks.predict(options, model, suffix)


def _fill(options: PredictFlags, model: "BlankFiller") -> int:
    from bertzoo.finetuning.task_kind import warn_unknown
    from bertzoo.runs.blanks import BLANK
    from bertzoo.tasks import inputs

    texts = options.texts or [line.rstrip("\n") for line in sys.stdin if line.strip()]
    written = inputs.from_texts([text.replace(BLANK, " ") for text in texts], inputs.InputForm())
    warn_unknown(model.tokenizer, written, "the texts")
    records = model.records(texts, options.top)
    if options.json:
        print(json.dumps(records, ensure_ascii=False))
        return 0
    for record in records:
        print(record["text"])
        for blank in record["blanks"]:
            print(f"    {', '.join(f'{token} {chance:.0%}' for token, chance in blank.items())}")
    return 0
