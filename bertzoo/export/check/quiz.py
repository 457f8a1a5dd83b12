"""Choose examples to score a file and its model on, from the development set of the model's task."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.errors import UserError
from bertzoo.export.check.task_score import Quiz
from bertzoo.export.options import EXAMPLES
from bertzoo.finetuning import predict_answers, predict_labels, saved_model
from bertzoo.finetuning.labels import label_order
from bertzoo.finetuning.predict_answers import QuestionModel
from bertzoo.finetuning.predict_labels import LabelModel, read_split
from bertzoo.finetuning.scoring import AnswerSplit


def build_quiz(
    source: Path, pretrained: Pretrained, longest: int, examples: int | None, tell: Callable[[str], None]
) -> Quiz | None:
    """Return evenly spaced examples from the first development set of the task that `source` is fine-tuned for.

    pretrained: the model to export. It may treat padding differently from the model in `source`.
    longest: tokens of the file's longest row.
    examples: number of examples; 0 for all, None for the default.

    If the model cannot be scored, raises UserError if `examples` is set, and otherwise returns None.
    """
    if not saved_model.is_finetuned(source) or not pretrained.head.task_kind:
        if examples is not None:
            raise UserError(
                f"--examples={examples} applies only to a fine-tuned model with its task's head. Leave --examples out."
            )
        return None
    most = EXAMPLES if examples is None else examples
    try:
        model = saved_model.load_saved(source)
        if not model.knows_task:
            raise UserError(
                f"{source} does not record the task it was trained on, so it cannot be scored. Convert the "
                "fine-tuning run itself."
            )
        model = replace(model, pretrained=replace(model.pretrained, model=pretrained.model))
        if longest < model.max_length:
            tell(f"{model.task_name}: scored on rows of {longest} tokens; training had {model.max_length}")
        answering = predict_answers.question_model(model)
        quiz = (
            _labels(predict_labels.label_model(model), pretrained, longest, most, tell)
            if answering is None
            else _questions(answering, longest, most)
        )
    except UserError as error:
        if examples is not None:
            raise
        tell(f"the task's scores were not measured: {error}")
        return None
    if (count := len(quiz.split.examples)) < quiz.whole:
        tell(
            f"{quiz.split.task.name}, {quiz.name}: scored on {count:,} of {quiz.whole:,} examples (--examples=0 takes "
            "all)"
        )
    return quiz


def _labels(model: LabelModel, pretrained: Pretrained, longest: int, most: int, tell: Callable[[str], None]) -> Quiz:
    task = model.task()
    model = replace(model.for_task(task, tell), max_length=min(model.max_length, longest))
    count = len(pretrained.head.labels)
    if label_order(pretrained.head.labels, task, str(model.path), lambda line: None) not in (None, [*range(count)]):
        raise UserError(
            f"{task.name} has the labels {', '.join(task.labels)}, but the model has them in the order "
            f"{', '.join(pretrained.head.labels)}. Fine-tune the model again on this task."
        )
    if not task.dev:
        raise UserError(f"{task.name} has no development set. Fine-tune the model again with --own.dev=FILE.")
    split = task.dev[0]
    whole = read_split(task, split, model.recipe.data_dir, tell).examples
    if any(example.label is None for example in whole):
        raise UserError(f"the {split} set of {task.name} has no labels. Add labels to the file of this set.")
    return Quiz(model.split(task, draw_evenly(whole, most)), split, len(whole), pretrained.head.readable)


def _questions(model: QuestionModel, longest: int, most: int) -> Quiz:
    task = model.task()
    model = fit_windows(model.for_task(task), longest)
    whole = model.read_questions(task, "dev", model.recipe.data_dir)
    questions = draw_evenly(whole.questions, most)
    task.check(questions)
    windows = model.windows(questions, labels=False)
    if not windows.windows:
        raise UserError(
            f"{task.name}: all {len(questions):,} drawn questions have an empty paragraph. Add texts to the paragraphs."
        )
    decoding = model.recipe.squad.decoding(task.nulls)
    split = AnswerSplit(task=task, windows=windows, decoding=decoding)
    return Quiz(split, "dev", len(whole.questions), model.pretrained.head.readable)


def fit_windows(model: QuestionModel, longest: int) -> QuestionModel:
    """Return the model with windows of at most `longest` tokens.

    Raises UserError if a window has no room for a paragraph beside a question of `squad.max_question` tokens.
    """
    options = model.recipe.squad
    room = longest - options.max_question - 3  # tokens of the paragraph, beside [CLS] and two [SEP]
    if room < 1:
        raise UserError(
            f"rows of {longest} tokens leave no room for a paragraph beside a question of {options.max_question} "
            "tokens. Use longer --lengths."
        )
    # Windows overlap by at least half, as in long rows.
    options = replace(options, stride=min(options.stride, max(1, room // 2)))
    recipe = replace(model.recipe, squad=options)
    return replace(model, max_length=min(model.max_length, longest), recipe=recipe)


def draw_evenly(examples: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` evenly spaced examples, or all if `most` is 0."""
    count = min(most or len(examples), len(examples))
    return [examples[index * len(examples) // count] for index in range(count)]
